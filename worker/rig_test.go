package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

const (
	name = queue.Name("llm-chat-a")
	arn  = "arn:aws:sqs:us-east-1:000000000000:" + string(name)
)

// rig is the function's handler over the real worker and the real client of an embedded SQS, in a bubble. What
// its calls come to is up to the test.
type rig struct {
	t      *testing.T
	server *local.Server
	api    *awssqs.Client
	client *sqs.Client
	url    string
	handle func(context.Context, events.SQSEvent) (response, error)
	run    func(id string) engine.Verdict

	mu   sync.Mutex // guards all below
	runs []string   // ids, in order
	gets int        // of bodies
}

func (r *rig) Run(_ context.Context, c engine.Call) engine.Verdict {
	r.mu.Lock()
	r.runs = append(r.runs, c.Request.ID)
	r.mu.Unlock()
	return r.run(c.Request.ID)
}

func (r *rig) Ended(context.Context, llmq.Request) (bool, error) { return false, nil }

// store is the body store.
type store struct{ *rig }

func (s store) Get(context.Context, llmq.Ref) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	return []byte(`{"messages":[]}`), nil
}

func (store) Put(context.Context, string, []byte) (llmq.Ref, error) {
	return llmq.Ref{}, errors.New("nothing is put aside here")
}

func (store) Delete(context.Context, string) error { return nil }

func inRig(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, server: local.New(local.Options{}), run: func(string) engine.Verdict { return ok(0) }}
		defer r.server.Close()
		r.api = awssqs.New(awssqs.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), Credentials: credentials.NewStaticCredentialsProvider("door", "s", ""),
			HTTPClient: &http.Client{Transport: r.server.Transport()}, RetryMaxAttempts: 1,
		})
		for _, q := range []queue.Name{name.DLQ(), name} {
			out, err := r.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(string(q)), Attributes: map[string]string{"VisibilityTimeout": "330"}})
			if err != nil {
				t.Fatal(err)
			}
			r.url = *out.QueueUrl
		}
		r.client = sqs.New(r.api, strings.TrimSuffix(r.url, "/"+string(name)), 2*time.Second, sqs.MaxMessageBytes)
		timeouts := map[llmq.Lane]worker.Timeouts{}
		for _, l := range llmq.Lanes() {
			timeouts[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
		}
		w, err := worker.New(worker.Config{
			Names: queue.Names{Prefix: "llm"}, Senders: queue.Senders{Own: []string{"door"}}, Timeouts: timeouts,
			Catalogue: llmq.NewCatalogue([]llmq.Model{{Alias: "chat-a", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []llmq.Target{{
				Model: "chat-a", Name: "main", Provider: "p", ModelID: "m", Wires: []llmq.Wire{llmq.WireOpenAI},
			}}}}),
		}, worker.Deps{Queue: r.client, Engine: r, Bodies: store{r}, Keys: anyKey{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r.handle = newHandler(w, func() {}, slog.New(slog.DiscardHandler))
		test(t, r)
	})
}

// ok is the verdict on a call that took a while.
func ok(took time.Duration) engine.Verdict {
	time.Sleep(took)
	return engine.Verdict{Action: engine.Stored, Reason: "ok"}
}

func envelope(id string) string {
	return `{"v":1,"id":"` + id + `","op":"chat","model":"chat-a","tenant":"t","params":{"messages":[]}}`
}

// invoke gives the handler an event, and returns its reply as Lambda sees it.
func (r *rig) invoke(ev events.SQSEvent) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 330*time.Second)
	defer cancel()
	for i, rec := range ev.Records {
		if rec.Attributes["SenderId"] == "" {
			ev.Records[i].Attributes = map[string]string{"SenderId": "door"}
		}
	}
	resp, err := r.handle(ctx, ev)
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := json.Marshal(resp)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(got)
}

// receive is what an event source gets at once.
func (r *rig) receive() events.SQSEvent {
	r.t.Helper()
	out, err := r.api.ReceiveMessage(r.t.Context(), &awssqs.ReceiveMessageInput{
		QueueUrl: &r.url, MaxNumberOfMessages: 10, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, MessageAttributeNames: []string{"All"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var ev events.SQSEvent
	for _, m := range out.Messages {
		ev.Records = append(ev.Records, events.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes, EventSourceARN: arn})
	}
	return ev
}

// settle does with a batch what Lambda does with a reply: it deletes what the reply does not list.
func (r *rig) settle(ev events.SQSEvent, reply string) {
	r.t.Helper()
	var resp events.SQSEventResponse
	if err := json.Unmarshal([]byte(reply), &resp); err != nil {
		r.t.Fatal(err)
	}
	in := &awssqs.DeleteMessageBatchInput{QueueUrl: &r.url}
	for i, rec := range ev.Records {
		if !slices.ContainsFunc(resp.BatchItemFailures, func(f events.SQSBatchItemFailure) bool { return f.ItemIdentifier == rec.MessageId }) {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(rec.ReceiptHandle)})
		}
	}
	if len(in.Entries) == 0 {
		return
	}
	out, err := r.api.DeleteMessageBatch(r.t.Context(), in)
	if err != nil || len(out.Failed) > 0 {
		r.t.Errorf("delete: %v, %+v", err, out)
	}
}

// dead are the dead letters' reasons by their bodies.
func (r *rig) dead() map[string]string {
	r.t.Helper()
	msgs, err := r.client.Receive(r.t.Context(), name.DLQ(), queue.Fetch{Max: 10})
	if err != nil {
		r.t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, m := range msgs {
		reasons[string(m.Body)] = m.Attributes[queue.AttrReason]
	}
	return reasons
}

// anyKey lets every key use the model.
type anyKey struct{}

func (anyKey) Allowed(context.Context, string, string) (llmq.ModelSet, error) {
	return llmq.ModelSet{"chat-a"}, nil
}
