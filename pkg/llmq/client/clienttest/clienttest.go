// Package clienttest runs all of llmq that a Go program meets in the program's own process: client, queue, worker, engine and
// state store, with a provider that is a function. It is for tests and examples; nothing that is deployed may import it.
package clienttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
	"github.com/llm-queue/llmq/pkg/llmq/internal/idhash"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/offload"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// Provider serves every target. emit is nil for calls whose reply comes as a whole.
type Provider func(ctx context.Context, r provider.Request, emit provider.Emit) (*provider.Response, error)

var _ provider.Streamer = Provider(nil)

// Call implements [provider.Provider].
func (p Provider) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	return p(ctx, r, nil)
}

// Stream implements [provider.Streamer].
func (p Provider) Stream(ctx context.Context, r provider.Request, emit provider.Emit) (*provider.Response, error) {
	return p(ctx, r, emit)
}

// Models are what [Start] serves: chat-a and emb-a on OpenAI's wire, conv-a on Bedrock's Converse. Each has the targets
// main and spare, where the provider knows it by its alias with -main and -spare.
func Models() []llmq.Model {
	model := func(alias string, w llmq.Wire) llmq.Model {
		m := llmq.Model{Alias: alias, Lanes: llmq.Lanes()}
		for _, name := range []string{"main", "spare"} {
			m.Targets = append(m.Targets, llmq.Target{Model: alias, Name: name, Provider: "fake", ModelID: alias + "-" + name, Wires: []llmq.Wire{w}})
		}
		return m
	}
	return []llmq.Model{model("chat-a", llmq.WireOpenAI), model("emb-a", llmq.WireOpenAI), model("conv-a", llmq.WireConverse)}
}

// Program is what package wiring opens, on stand-ins.
type Program struct {
	*client.Client
	http    *http.Client
	queue   *inProcess
	closers []func() error
}

const tenant = "team-a"

// Start starts it. It listens nowhere but for its state store, on a loopback port.
func Start(p Provider) (*Program, error) {
	out := &Program{}
	if err := out.start(p); err != nil {
		return nil, errors.Join(err, out.closeAll())
	}
	return out, nil
}

func (p *Program) onClose(f func() error) { p.closers = append(p.closers, f) }

func (p *Program) closeAll() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	return errors.Join(errs...)
}

func (p *Program) start(serve Provider) error {
	log, catalogue, names, space := slog.New(slog.DiscardHandler), llmq.NewCatalogue(Models()), queue.Names{Prefix: "llm"}, keys.New("test")
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return fmt.Errorf("start the state store: %w", err)
	}
	p.onClose(func() error { mini.Close(); return nil })
	mini.ClockTTL(true)
	llmqtest.HookLua(mini)
	store := redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true})
	p.onClose(store.Close)
	if err := store.Set(context.Background(), space.Epoch(), 1, 0).Err(); err != nil { // it is known to be new
		return fmt.Errorf("preset the state store: %w", err)
	}
	bodies, held, stops := offload.NewValkey(store, space), claims.New(space), claims.NewStops(store, space)
	p.onClose(stops.Close)
	ends := results.New(store, space, nowhere{}, math.MaxInt)
	hub := results.NewHub(ends)
	p.onClose(hub.Close)

	e, err := engine.New(engine.Config{Worker: "in-process", AttemptTimeout: time.Minute, RTCapacityWait: time.Second, Retry: retry.Default()}, engine.Deps{
		Valkey: store, Catalogue: catalogue, Claims: held, Stops: stops, Capacity: capacity.New(space), Results: ends,
		Providers: map[string]provider.Provider{"fake": serve}, Log: log,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	p.queue = &inProcess{ctx: running}
	p.onClose(func() error { stop(); p.queue.working.Wait(); return nil })
	forWorker, forClient, forDoor := map[llmq.Lane]worker.Timeouts{}, map[llmq.Lane]client.Timeouts{}, httpapi.DefaultConfig()
	for _, l := range llmq.Lanes() {
		forWorker[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
		forClient[l] = client.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	p.queue.worker, err = worker.New(worker.Config{
		Names: names, Catalogue: catalogue, Timeouts: forWorker,
		Senders: queue.Senders{Producers: []queue.Producer{{Name: sender, SenderID: sender, Tenant: tenant}}},
	}, worker.Deps{Queue: p.queue, Engine: e, Bodies: bodies, Keys: nobody{}, Log: log})
	if err != nil {
		return err
	}
	ids, err := idhash.New(idhash.LocalSalt)
	if err != nil {
		return err
	}
	p.Client, err = client.New(client.Config{
		Names: names, Catalogue: catalogue, InlineMaxBytes: 200 << 10, CancelWithContext: true, OutlastStore: true,
		Program: client.Program{Tenant: tenant, Timeouts: forClient, HashID: ids.Hash},
	}, client.Deps{Valkey: store, Queue: p.queue, Claims: held, Results: ends, Hub: hub, Bodies: bodies, Log: log})
	if err != nil {
		return err
	}
	p.onClose(func() error { p.Client.Close(); return nil })
	door, err := httpapi.New(forDoor, httpapi.Deps{Calls: p.Client, HashID: ids.Hash, Program: auth.Program(tenant, Models()), Catalogue: catalogue, Logger: log})
	if err != nil {
		return err
	}
	p.http = &http.Client{Transport: httpapi.NewTransport(door)}
	return nil
}

// HTTPClient is for an SDK: what goes through it goes to the queue.
func (p *Program) HTTPClient() *http.Client { return p.http }

// Sent is how many messages were put on queues so far.
func (p *Program) Sent() int {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.sent
}

// Close ends everything and waits for what runs.
func (p *Program) Close() error { return p.closeAll() }

// nowhere stands in for the bucket of results: all of them fit into the state store.
type nowhere struct{}

func (nowhere) Put(context.Context, string, []byte) (llmq.Ref, error) {
	return llmq.Ref{}, errors.New("clienttest: there is no bucket")
}

func (nowhere) Get(context.Context, llmq.Ref) ([]byte, error) {
	return nil, errors.New("clienttest: there is no bucket")
}

// nobody has keys here.
type nobody struct{}

func (nobody) Allowed(context.Context, string, string) (llmq.ModelSet, error) {
	return nil, llmq.Errorf(llmq.CodeKeyRevoked, "there are no keys here")
}

// sender is who sends all messages.
const sender = "program"

// again is how soon a message that a worker has handed back is delivered again.
const again = 20 * time.Millisecond

// inProcess is a queue whose messages are handled as soon as they are sent, each by itself.
type inProcess struct {
	ctx     context.Context // until the close
	worker  *worker.Worker
	working sync.WaitGroup

	mu   sync.Mutex
	sent int // guarded by mu
}

var _ queue.Queue = (*inProcess)(nil)

// Send implements [queue.Queue].
func (q *inProcess) Send(_ context.Context, name queue.Name, m queue.Outgoing) error {
	q.mu.Lock()
	q.sent++
	id := fmt.Sprintf("message-%d", q.sent)
	q.mu.Unlock()
	msg := queue.Message{
		ID: id, Receipt: id, Queue: name, Body: m.Body, SentAt: time.Now(), SenderID: sender, Attributes: m.Attributes,
	}
	q.working.Go(func() {
		for wait := m.Delay; q.pause(wait); wait = again {
			msg.ReceiveCount++
			if q.worker.Handle(q.ctx, []queue.Message{msg})[0].Action == worker.Ack {
				return
			}
		}
	})
	return nil
}

// pause reports whether the time went by before the close.
func (q *inProcess) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return q.ctx.Err() == nil
	case <-q.ctx.Done():
		return false
	}
}

// Extend implements [queue.Queue].
func (q *inProcess) Extend(_ context.Context, _ queue.Name, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

// Delete is what a worker asks for.
func (q *inProcess) Delete(_ context.Context, _ queue.Name, receipts []string) []error {
	return make([]error, len(receipts))
}

// Depth implements [queue.Queue].
func (q *inProcess) Depth(context.Context, queue.Name) (queue.Depth, error) {
	return queue.Depth{}, nil
}
