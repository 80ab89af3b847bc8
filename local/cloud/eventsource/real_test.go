package eventsource

import (
	"context"
	"encoding/json"
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
	host *lambda.Host
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
	result, err := c.host.Invoke(ctx, name, payload, opts)
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

	server := sqs.New(sqs.Options{})
	defer server.Close()
	listener := httptest.NewServer(server)
	defer listener.Close()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	defer transport.CloseIdleConnections()
	client := awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(listener.URL), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient: &http.Client{Transport: sqs.RebufferTransport(transport)},
	})
	created, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("calls"), Attributes: map[string]string{"VisibilityTimeout": "600"}})
	if err != nil {
		t.Fatal(err)
	}

	c := &counting{host: host, want: messages, seen: make(map[string]int, messages), all: make(chan struct{})}
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

	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for first := s * 10; first < messages; first += 40 {
				in := &awssqs.SendMessageBatchInput{QueueUrl: created.QueueUrl}
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
	select {
	case <-c.all:
	case <-time.After(5 * time.Minute):
		t.Errorf("stuck: %+v", mappings.Source(info.UUID).Stats())
	}
	mappings.Close(context.Background()) // settles what has been answered

	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("message %s was delivered %d times", id, n)
		}
	}
	st := mappings.Source(info.UUID).Stats()
	if want := (EventCounts{Polled: messages, Invoked: messages, Deleted: messages}); st.EventCounts != want || len(c.seen) != messages {
		t.Errorf("%d messages seen, counts %+v", len(c.seen), st.EventCounts)
	}
	left, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: created.QueueUrl, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		if left.Attributes[name] != "0" {
			t.Errorf("%s is %s", name, left.Attributes[name])
		}
	}
	if fn := host.Stats("worker"); fn.Errors != 0 || fn.Peak > processes || fn.Throttles != st.Throttles {
		t.Errorf("function %+v", fn)
	}
}
