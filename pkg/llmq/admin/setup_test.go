package admin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	source = queue.Name("llm-chat-a")
	dlq    = queue.Name("llm-chat-a-dlq")
)

// rig is an operator of one model's queues on an embedded SQS without sockets: made inside a synctest bubble, its
// minutes take no time.
type rig struct {
	*Operator
	server  *local.Server
	queue   *sqs.Client // admin's
	worker  *sqs.Client // a worker's, which buries
	sources *fakeSources
	bodies  fakeBodies
	log     *bytes.Buffer
	records authtest.Objects // the state bucket
	inForce InForce
}

// fakeBodies are those that were put aside, by key.
type fakeBodies map[string]string

func (b fakeBodies) Put(_ context.Context, key string, body []byte) (llmq.Ref, error) {
	b[key] = string(body)
	return llmq.Ref{Key: key, Bytes: int64(len(body)), SHA256: strings.Repeat("0", 64)}, nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := local.New(local.Options{})
	api := client(server, "admin")
	for _, name := range []queue.Name{source, dlq, "llm-chat-a-rt", "llm-chat-a-rt-dlq"} {
		if _, err := api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(string(name))}); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{server: server, queue: over(api), sources: &fakeSources{}, bodies: fakeBodies{}, log: &bytes.Buffer{}}
	r.worker = r.as("worker")
	catalogue := llmq.NewCatalogue([]llmq.Model{{
		Alias: "chat-a", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []llmq.Target{{Model: "chat-a", Name: "main"}},
	}})
	lanes := map[llmq.Lane]LaneRule{}
	for _, l := range llmq.Lanes() {
		lanes[l] = LaneRule{Worker: "worker-" + string(l), BatchSize: 10, MaxConcurrency: 10, Timeout: 300 * time.Second, Visibility: 330 * time.Second}
	}
	r.Operator = NewOperator(
		New(Deps{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue, Queue: r.queue, Bodies: r.bodies, InForce: func(context.Context) InForce { return r.inForce }}),
		OperatorDeps{Queue: r.queue, Sources: r.sources, Lanes: lanes, Senders: senders(), Trail: Trail{slog.New(slog.NewTextHandler(r.log, nil)), &r.records}},
	)
	return r
}

func senders() queue.Senders {
	return queue.Senders{
		Own: []string{"enqueue", "admin"}, Workers: []string{"worker"}, Producers: []queue.Producer{{Name: "b", SenderID: "billing", Tenant: "billing"}},
	}
}

func client(server *local.Server, sender string) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.invalid"), Credentials: credentials.NewStaticCredentialsProvider(sender, "s", ""),
		HTTPClient: &http.Client{Transport: server.Transport()}, RetryMaxAttempts: 1,
	})
}

func over(api *awssqs.Client) *sqs.Client {
	return sqs.New(api, "http://sqs.invalid/000000000000", 2*time.Second, sqs.MaxMessageBytes)
}

// as is a client of the queues for another sender.
func (r *rig) as(sender string) *sqs.Client { return over(client(r.server, sender)) }

// bury puts n dead letters of a reason into the dead-letter queue, ids from on.
func (r *rig) bury(t *testing.T, reason string, from, n int) {
	t.Helper()
	for i := range n {
		body, err := llmq.Envelope{
			ID: fmt.Sprintf("r-%d", from+i), Op: llmq.OpChat, Model: "chat-a", Lane: llmq.LaneBG, Tenant: "acme",
			Deadline: time.UnixMilli(1000), Params: []byte(`{ "x":"<b>&</b>" }`),
		}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		attrs := map[string]string{"llmq_op": "chat", queue.AttrTenant: "acme"}
		if reason != "" {
			attrs[queue.AttrReason], attrs[queue.AttrError] = reason, "it went wrong"
		}
		r.send(t, dlq, queue.Outgoing{Body: body, Attributes: attrs})
	}
}

func (r *rig) send(t *testing.T, q queue.Name, m queue.Outgoing) {
	t.Helper()
	if err := r.worker.Send(t.Context(), q, m); err != nil {
		t.Fatal(err)
	}
}

// drain takes everything that is visible in a queue, and leaves it hidden.
func (r *rig) drain(t *testing.T, q queue.Name) []queue.Message {
	t.Helper()
	var all []queue.Message
	for {
		msgs, err := r.queue.Receive(t.Context(), q, queue.Fetch{Max: 10, Hide: 12 * time.Hour, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			return all
		}
		all = append(all, msgs...)
	}
}

// fakeSources are event sources that do at once what they are asked for, or fail.
type fakeSources struct {
	mu    sync.Mutex
	list  map[string][]queue.Source // by function
	fail  []error                   // of the next changes, in order; nil is none
	calls []string
}

func (f *fakeSources) List(_ context.Context, function string) ([]queue.Source, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "list "+function)
	return f.list[function], nil
}

func (f *fakeSources) SetMaxConcurrency(_ context.Context, id string, most int) (queue.Source, error) {
	return f.change(fmt.Sprintf("bound %s %d", id, most), id, func(s *queue.Source) { s.MaxConcurrency, s.State = most, queue.SourceUpdating })
}

func (f *fakeSources) SetEnabled(_ context.Context, id string, enabled bool) (queue.Source, error) {
	return f.change(fmt.Sprintf("enable %s %t", id, enabled), id, func(s *queue.Source) {
		s.State = queue.SourceDisabling
		if enabled {
			s.State = queue.SourceEnabling
		}
	})
}

func (f *fakeSources) change(call, id string, apply func(*queue.Source)) (queue.Source, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if len(f.fail) > 0 {
		err := f.fail[0]
		f.fail = f.fail[1:]
		if err != nil {
			return queue.Source{}, err
		}
	}
	for _, list := range f.list {
		for i := range list {
			if list[i].ID == id {
				apply(&list[i])
				return list[i], nil
			}
		}
	}
	return queue.Source{}, queue.ErrNoSource
}
