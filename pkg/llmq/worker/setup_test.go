package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// world is a worker with its collaborators, and what it did to them. The funcs may be set
// before Handle; left nil, everything succeeds and every request is stored.
type world struct {
	*worker.Worker
	allowed func(kid, tenant string) (llmq.ModelSet, error)
	run     func(ctx context.Context, c engine.Call) engine.Verdict
	get     func(ctx context.Context, ref llmq.Ref) ([]byte, error)
	put     func(key string, body []byte) (llmq.Ref, error) // nil fails
	send    func(ctx context.Context, q queue.Name) error
	fits    func(m queue.Outgoing) bool // a message, into the queue
	extend  func(ctx context.Context, q queue.Name, leases []queue.Lease) error
	delete  func(ctx context.Context, q queue.Name, receipts []string) []error
	remove  func(ctx context.Context, key string) error // a stored body
	ended   func(ctx context.Context, r llmq.Request) (bool, error)

	start time.Time
	log   bytes.Buffer // slog's handler guards it; read it after Handle

	mu    sync.Mutex // guards all below
	calls []engine.Call
	sent  []letter
	did   []string // in order, as "seconds what"
}

type letter struct {
	Queue queue.Name
	queue.Outgoing
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, fmt.Sprintf("%gs ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

// done lists what was done so far, and forgets it.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	did := w.did
	w.did = nil
	return did
}

type runner struct{ *world }

func (r runner) Run(ctx context.Context, c engine.Call) engine.Verdict {
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	if r.run == nil {
		return engine.Verdict{Action: engine.Stored, Reason: "ok"}
	}
	return r.run(ctx, c)
}

func (r runner) Ended(ctx context.Context, q llmq.Request) (bool, error) {
	if r.ended == nil {
		return false, nil
	}
	return r.ended(ctx, q)
}

type bodies struct{ *world }

func (b bodies) Delete(ctx context.Context, key string) error {
	b.note("remove %s", key)
	if b.remove == nil {
		return nil
	}
	return b.remove(ctx, key)
}

func (b bodies) Put(_ context.Context, key string, body []byte) (llmq.Ref, error) {
	if b.put == nil {
		return llmq.Ref{}, llmq.Errorf(llmq.CodeQueueUnavailable, "the body store is away")
	}
	b.note("put %s", key)
	return b.put(key, body)
}

func (b bodies) Get(ctx context.Context, ref llmq.Ref) ([]byte, error) { return b.get(ctx, ref) }

// allowance lets every key use chat-a, unless the world says otherwise.
type allowance struct{ *world }

func (k allowance) Allowed(_ context.Context, kid, tenant string) (llmq.ModelSet, error) {
	if k.allowed != nil {
		return k.allowed(kid, tenant)
	}
	return llmq.ModelSet{"chat-a"}, nil
}

type fakeQueue struct{ *world }

func (q fakeQueue) Send(ctx context.Context, name queue.Name, m queue.Outgoing) error {
	if q.send != nil {
		if err := q.send(ctx, name); err != nil {
			q.note("send to %s failed", name)
			return err
		}
	}
	if q.fits != nil && !q.fits(m) {
		return llmq.Errorf(llmq.CodeTooLarge, "too large")
	}
	q.mu.Lock()
	q.sent = append(q.sent, letter{name, m})
	q.mu.Unlock()
	q.note("send to %s", name)
	return nil
}

func (q fakeQueue) Extend(ctx context.Context, name queue.Name, leases []queue.Lease) []error {
	errs := make([]error, len(leases))
	if q.extend != nil {
		if err := q.extend(ctx, name, leases); err != nil {
			for i := range errs {
				errs[i] = err
			}
		}
	}
	for i, l := range leases {
		what := "hide"
		if errs[i] != nil {
			what = "can't hide"
		}
		q.note("%s %s of %s for %gs (%d of %d)", what, l.Receipt, name, l.For.Seconds(), i+1, len(leases))
	}
	return errs
}

func (q fakeQueue) Delete(ctx context.Context, name queue.Name, receipts []string) []error {
	errs := make([]error, len(receipts))
	if q.delete != nil {
		errs = q.delete(ctx, name, receipts)
	}
	for i, r := range receipts {
		what := "delete"
		if errs[i] != nil {
			what = "can't delete"
		}
		q.note("%s %s of %s (%d of %d)", what, r, name, i+1, len(receipts))
	}
	return errs
}

var names = queue.Names{Prefix: "llm"}

// chat-a has a queue for each lane, chat-b none for bulk, conv speaks another wire.
func catalogue() llmq.Catalogue {
	target := func(model string, w llmq.Wire) []llmq.Target {
		return []llmq.Target{{Model: model, Name: "main", Provider: "p", ModelID: "vendor/" + model, Wires: []llmq.Wire{w}, MaxConcurrency: 1}}
	}
	return llmq.NewCatalogue([]llmq.Model{
		{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: target("chat-a", llmq.WireOpenAI)},
		{Alias: "chat-b", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: target("chat-b", llmq.WireOpenAI)},
		{Alias: "conv", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: target("conv", llmq.WireConverse)},
		{Alias: "inv", Lanes: []llmq.Lane{llmq.LaneRT}, Targets: target("inv", llmq.WireInvoke)},
	})
}

// AROAX is the door's role, AROAW a worker's; two services send for themselves.
func senders() queue.Senders {
	return queue.Senders{
		Own: []string{"AROAX"}, Workers: []string{"AROAW"}, Producers: []queue.Producer{
			{Name: "nightly", SenderID: "AROAP", Tenant: "team-p", Replies: []queue.Reply{{Alias: "done", Queue: "replies"}}},
			{Name: "daily", SenderID: "AROAQ", Tenant: "team-q"},
			{Name: "program", SenderID: "AROAG", Tenant: "team-p", Program: true},
		},
	}
}

func config() worker.Config {
	return worker.Config{Names: names, Senders: senders(), Catalogue: catalogue(), Timeouts: map[llmq.Lane]worker.Timeouts{
		llmq.LaneRT:   {Default: 7 * time.Second, Max: 70 * time.Second},
		llmq.LaneBG:   {Default: 8 * time.Second, Max: 80 * time.Second},
		llmq.LaneBulk: {Default: 9 * time.Second, Max: 90 * time.Second},
	}}
}

// bubble runs a test of a worker on virtual time.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{start: time.Now()}
		made, err := worker.New(config(), worker.Deps{
			Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w},
			Log: slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatalf("new worker: %v", err)
		}
		w.Worker = made
		test(t, w)
	})
}

// message is one on the rt queue of chat-a, sent now. Its receipt is h and its id.
func message(id, body string) queue.Message {
	return queue.Message{
		ID: id, Receipt: "h" + id, Queue: "llm-chat-a-rt", Body: []byte(body), ReceiveCount: 1, SentAt: time.Now(), SenderID: "AROAX:door",
	}
}

// envelope is a message's body that any worker of chat-a takes.
func envelope(id string) string {
	return `{"v":1,"id":"` + id + `","op":"chat","model":"chat-a","tenant":"t","params":{"messages":[]}}`
}

func messages(n int) []queue.Message {
	out := make([]queue.Message, n)
	for i := range out {
		out[i] = message(fmt.Sprint(i+1), envelope(fmt.Sprintf("r-%d", i+1)))
	}
	return out
}
