package eventsource

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares with a file of testdata; -update writes it. A missing file fails.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// fakeQueue is a port with one func per method; bench makes the usual ones.
type fakeQueue struct {
	attributes func(*sqs.GetQueueAttributesInput) (*sqs.GetQueueAttributesOutput, error)
	receive    func(context.Context, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error)
	remove     func(*sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error)
}

func (q *fakeQueue) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return q.attributes(in)
}

func (q *fakeQueue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return q.receive(ctx, in)
}

func (q *fakeQueue) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	return q.remove(in)
}

type fakeInvoker func(ctx context.Context, name string, payload []byte) (lambda.Result, error)

func (f fakeInvoker) Invoke(ctx context.Context, name string, payload []byte, _ lambda.InvokeOptions) (lambda.Result, error) {
	return f(ctx, name, payload)
}

// bench is a source with a queue that gives what is put into its channel, one element per receive.
type bench struct {
	mapping Mapping
	tuning  Tuning
	queue   *fakeQueue
	invoke  fakeInvoker
	arrive  chan []types.Message

	mu      sync.Mutex
	deleted []string // receipt handles, in order
}

func newBench() *bench {
	b := &bench{
		mapping: Mapping{
			Function: "worker", QueueURL: "http://127.0.0.1/q", QueueARN: "arn:aws:sqs:eu-west-1:000000000000:q",
			Region: "eu-west-1", BatchSize: 10, ReportBatchItemFailures: true,
		},
		tuning: DefaultTuning(),
		arrive: make(chan []types.Message, 10_000),
	}
	b.invoke = func(context.Context, string, []byte) (lambda.Result, error) { return lambda.Result{}, nil }
	b.queue = &fakeQueue{
		attributes: func(*sqs.GetQueueAttributesInput) (*sqs.GetQueueAttributesOutput, error) {
			return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"VisibilityTimeout": "30"}}, nil
		},
		receive: b.receive,
		remove:  b.remove,
	}
	return b
}

func (b *bench) receive(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
	timer := time.NewTimer(time.Duration(in.WaitTimeSeconds) * time.Second)
	defer timer.Stop()
	select {
	case messages := <-b.arrive:
		return &sqs.ReceiveMessageOutput{Messages: messages}, nil
	case <-timer.C:
		return &sqs.ReceiveMessageOutput{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *bench) remove(in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		b.deleted = append(b.deleted, aws.ToString(e.ReceiptHandle))
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func (b *bench) handles() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.deleted...)
}

// start runs the source; the returned function stops it and waits.
func (b *bench) start(t *testing.T) (*Source, func()) {
	t.Helper()
	s, err := New(b.mapping, b.tuning, Deps{Queue: b.queue, Invoker: b.invoke})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// texts makes messages with the ids given, their handles led by "h-".
func texts(ids ...string) []types.Message {
	messages := make([]types.Message, len(ids))
	for i, id := range ids {
		messages[i] = types.Message{MessageId: aws.String(id), ReceiptHandle: aws.String("h-" + id), Body: aws.String("body " + id)}
	}
	return messages
}

func many(prefix string, n int) []types.Message {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	return texts(ids...)
}

// records counts the messages of an event.
func records(event []byte) int { return strings.Count(string(event), `"messageId":`) }
