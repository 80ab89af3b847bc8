package eventsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// counting counts the deliveries of each message, and tells when all of them have been answered.
type counting struct {
	invoker
	want int

	mu   sync.Mutex
	seen map[string]int
	all  chan struct{}
}

func (c *counting) Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error) {
	var e events.SQSEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return lambda.Result{}, fmt.Errorf("event: %w", err)
	}
	result, err := c.invoker.Invoke(ctx, name, payload, opts)
	if err != nil || result.FunctionError != "" {
		return result, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.seen)
	for _, r := range e.Records {
		c.seen[r.Body]++
	}
	if before < c.want && len(c.seen) == c.want {
		close(c.all)
	}
	return result, nil
}

// once reports messages that were not delivered exactly once.
func (c *counting) once(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("message %s was delivered %d times", id, n)
		}
	}
	if len(c.seen) != c.want {
		t.Errorf("%d of %d messages were delivered", len(c.seen), c.want)
	}
}

// realQueue serves a queue "calls" with a visibility timeout of 10 minutes on a socket: what is hidden by mistake is missing.
func realQueue(t *testing.T) (client *awssqs.Client, url string) {
	t.Helper()
	server := sqs.New(sqs.Options{})
	t.Cleanup(server.Close)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	t.Cleanup(transport.CloseIdleConnections)
	client = awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(listener.URL), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient: &http.Client{Transport: sqs.RebufferTransport(transport)},
	})
	created, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("calls"), Attributes: map[string]string{"VisibilityTimeout": "600"}})
	if err != nil {
		t.Fatal(err)
	}
	return client, aws.ToString(created.QueueUrl)
}

// sendAll sends n messages from four senders, each body a number.
func sendAll(t *testing.T, client *awssqs.Client, url string, n int) {
	t.Helper()
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for first := s * 10; first < n; first += 40 {
				in := &awssqs.SendMessageBatchInput{QueueUrl: &url}
				for i := range 10 {
					id := fmt.Sprint(first + i)
					in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(id), MessageBody: aws.String(id)})
				}
				if out, err := client.SendMessageBatch(t.Context(), in); err != nil || len(out.Failed) > 0 {
					t.Errorf("send: %v, %v", err, out)
					return
				}
			}
		})
	}
	senders.Wait()
}

// empty reports messages that are left.
func empty(t *testing.T, client *awssqs.Client, url string) {
	t.Helper()
	left, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		if left.Attributes[name] != "0" {
			t.Errorf("%s is %s", name, left.Attributes[name])
		}
	}
}

// 20,000 messages through sockets, the loop and worker processes (of package lambda's test function, which returns what it
// gets, and an event has no batchItemFailures, which is success): none is lost, none comes twice, none is left.
func TestPipeline_NothingLostNothingTwice(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-o", bootstrap, "../lambda/internal/testfn")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test function: %v: %s", err, out)
	}
	host, err := lambda.New(lambda.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close(context.Background())
	const processes = 4
	err = host.Create(lambda.FunctionConfig{Name: "worker", Bootstrap: bootstrap, Timeout: 60 * time.Second, MemoryMB: 128, Concurrency: processes})
	if err != nil {
		t.Fatal(err)
	}

	client, url := realQueue(t)
	c := &counting{invoker: host, want: messages, seen: make(map[string]int, messages), all: make(chan struct{})}
	o := DefaultOptions()
	o.Region, o.AccountID, o.Queue, o.Invoker = "us-east-1", "000000000000", client, c
	o.FunctionTimeout = func(name string) (time.Duration, bool) { return time.Minute, name == "worker" }
	mappings, err := NewMappings(o)
	if err != nil {
		t.Fatal(err)
	}
	defer mappings.Close(context.Background())
	info, err := mappings.Add(t.Context(), Mapping{Function: "worker", QueueARN: callsARN, MaximumConcurrency: processes, ReportBatchItemFailures: true})
	if err != nil {
		t.Fatal(err)
	}

	sendAll(t, client, url, messages)
	select {
	case <-c.all:
	case <-time.After(5 * time.Minute):
		t.Errorf("stuck: %+v", mappings.Source(info.UUID).Stats())
	}
	mappings.Close(context.Background()) // settles what has been answered

	c.once(t)
	st := mappings.Source(info.UUID).Stats()
	if want := (EventCounts{Polled: messages, Invoked: messages, Deleted: messages}); st.EventCounts != want {
		t.Errorf("counts %+v", st.EventCounts)
	}
	empty(t, client, url)
	if fn := host.Stats("worker"); fn.Errors != 0 || fn.Peak > processes || fn.Throttles != st.Throttles {
		t.Errorf("function %+v", fn)
	}
}

// Over sockets, with polls answered all the time, changes come one upon the other: no answer is hung up on.
func TestUpdate_OverSocketsHidesNothing(t *testing.T) {
	t.Parallel()
	const messages = 3000
	client, url := realQueue(t)
	nothing := fakeInvoker(func(context.Context, string, []byte) (lambda.Result, error) { return lambda.Result{}, nil })
	c := &counting{invoker: nothing, want: messages, seen: make(map[string]int, messages), all: make(chan struct{})}
	o := DefaultOptions()
	o.Region, o.AccountID, o.Queue, o.Invoker, o.Transition = "us-east-1", "000000000000", client, c, 0
	mappings, err := NewMappings(o)
	if err != nil {
		t.Fatal(err)
	}
	defer mappings.Close(context.Background())
	info, err := mappings.Add(t.Context(), Mapping{Function: "worker", QueueARN: callsARN, MaximumConcurrency: 8})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() { defer close(sent); sendAll(t, client, url, messages) }()
	changes := []Change{{MaximumConcurrency: new(2)}, {BatchSize: new(3)}, {MaximumConcurrency: new(8), BatchSize: new(10)}, {Enabled: new(false)}, {Enabled: new(true)}}
	updates := 0
	deadline, tick := time.After(5*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-c.all:
			done = true
		case <-deadline:
			t.Fatalf("stuck after %d updates: %+v", updates, mappings.Source(info.UUID).Stats())
		case <-tick.C:
			_, err := mappings.Update(t.Context(), info.UUID, changes[updates%len(changes)])
			if err == nil {
				updates++ // else the one before is not in force yet
			} else if !errors.Is(err, CodeInUse) {
				t.Fatal(err)
			}
		}
	}
	<-sent
	mappings.Close(context.Background())
	c.once(t)
	empty(t, client, url)
	if updates < len(changes) {
		t.Errorf("only %d updates", updates)
	}
}
