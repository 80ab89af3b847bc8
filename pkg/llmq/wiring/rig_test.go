package wiring

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/internal/offload"
	store "github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// realValkey starts a server of the test's own, since these tests flush its scripts, kill its
// connections and make it announce another port.
func realValkey(t testing.TB, cluster bool) *valkey.Server {
	t.Helper()
	server, err := valkey.Start(t.Context(), valkey.Options{Engine: valkey.Real, Standalone: !cluster})
	if errors.Is(err, valkey.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skipf("needs valkey-server: %v", err)
	}
	if err != nil {
		t.Fatalf("start valkey-server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stop valkey-server: %v", err)
		}
	})
	return server
}

// dial connects as the functions do; address may be that of something between.
func dial(t testing.TB, server *valkey.Server, address string, cluster bool, within time.Duration) redis.UniversalClient {
	t.Helper()
	c, err := store.Dial(store.Options{Address: address, Password: server.Password(), Cluster: cluster, CommandTimeout: within, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// direct is a client that nothing counts and nothing disturbs.
func direct(t testing.TB, server *valkey.Server) redis.UniversalClient {
	t.Helper()
	return dial(t, server, server.Addr(), false, 5*time.Second)
}

// clusterWire is a wire to a server in cluster mode, which from now on sends its clients there.
func clusterWire(t testing.TB, server *valkey.Server) *llmqtest.Wire {
	t.Helper()
	w := llmqtest.NewWire(t, server.Addr())
	if err := direct(t, server).ConfigSet(t.Context(), "cluster-announce-port", strconv.Itoa(w.Port())).Err(); err != nil {
		t.Fatalf("announce the wire: %v", err)
	}
	return w
}

var names = queue.Names{Prefix: "llm"} //nolint:gochecknoglobals // never changed

const slots = 20 // of the one target

func target() llmq.Target {
	return llmq.Target{Model: "chat-a", Name: "main", Provider: "p", ModelID: "m", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: slots}
}

func catalogue() llmq.Catalogue {
	return llmq.NewCatalogue([]llmq.Model{{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{target()}}})
}

// callFunc is a provider.
type callFunc func(ctx context.Context, req provider.Request) (*provider.Response, error)

func (f callFunc) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	return f(ctx, req)
}

// process is what a function wires, over a store client of its own.
type process struct {
	t       testing.TB
	valkey  redis.UniversalClient
	space   keys.Space
	claims  *claims.Store
	gate    *capacity.Gate
	results *results.Store
	hub     *results.Hub
	stops   *claims.Stops
	log     *syncBuffer
	logger  *slog.Logger
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newProcess(t testing.TB, rdb redis.UniversalClient, space keys.Space) *process {
	t.Helper()
	p := &process{t: t, valkey: rdb, space: space, claims: claims.New(space), gate: capacity.New(space), log: &syncBuffer{}}
	p.logger = slog.New(slog.NewTextHandler(p.log, nil))
	p.results = results.New(rdb, space, noBodies{}, math.MaxInt)
	p.hub, p.stops = results.NewHub(p.results), claims.NewStops(rdb, space)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the process's log:\n%s", p.log)
		}
		if err := errors.Join(p.hub.Close(), p.stops.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// preset marks a store that is known to be new.
func preset(t testing.TB, rdb redis.UniversalClient) keys.Space {
	t.Helper()
	space := luatest.Space()
	if err := rdb.Set(t.Context(), space.Epoch(), 1, 0).Err(); err != nil {
		t.Fatalf("preset the store: %v", err)
	}
	return space
}

func (p *process) client(q queue.Queue) *client.Client {
	p.t.Helper()
	c, err := client.New(client.Config{Names: names, Catalogue: catalogue(), InlineMaxBytes: 200 << 10},
		client.Deps{Valkey: p.valkey, Queue: q, Claims: p.claims, Results: p.results, Hub: p.hub, Bodies: offload.NewValkey(p.valkey, p.space), Log: p.logger})
	if err != nil {
		p.t.Fatalf("new client: %v", err)
	}
	return c
}

func (p *process) worker(name string, calls provider.Provider) *worker.Worker {
	p.t.Helper()
	e, err := engine.New(engine.Config{Worker: name, AttemptTimeout: time.Minute, RTCapacityWait: time.Second, Retry: retry.Default()}, engine.Deps{
		Valkey: p.valkey, Catalogue: catalogue(), Claims: p.claims, Stops: p.stops, Capacity: p.gate, Results: p.results,
		Providers: map[string]provider.Provider{"p": calls}, Log: p.logger,
	})
	if err != nil {
		p.t.Fatalf("new engine: %v", err)
	}
	timeouts := map[llmq.Lane]worker.Timeouts{}
	for _, l := range llmq.Lanes() {
		timeouts[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	w, err := worker.New(worker.Config{Names: names, Senders: queue.Senders{Own: []string{"door"}}, Catalogue: catalogue(), Timeouts: timeouts},
		worker.Deps{Queue: noQueue{}, Engine: e, Bodies: offload.NewValkey(p.valkey, p.space), Keys: testKeys.Records, Log: p.logger})
	if err != nil {
		p.t.Fatalf("new worker: %v", err)
	}
	return w
}

// noQueue takes every lease and refuses to send.
type noQueue struct{}

func (noQueue) Send(context.Context, queue.Name, queue.Outgoing) error {
	return errors.New("nothing is to be sent")
}

func (noQueue) Extend(_ context.Context, _ queue.Name, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

func (noQueue) Delete(_ context.Context, _ queue.Name, receipts []string) []error {
	return make([]error, len(receipts))
}

func (noQueue) Depth(context.Context, queue.Name) (queue.Depth, error) { return queue.Depth{}, nil }

const tenant = "t"

// message is one of a request, sent now.
func message(id string) queue.Message {
	return queue.Message{
		ID: "m-" + id, Receipt: "h-" + id, Queue: names.Model("chat-a", llmq.LaneRT), ReceiveCount: 1, SentAt: time.Now(), SenderID: "door",
		Body: []byte(`{"v":1,"id":"` + id + `","op":"chat","model":"chat-a","tenant":"` + tenant + `","params":{"for":"` + id + `"}}`),
	}
}

// request is the same one as [message]'s.
func request(id string) llmq.Request {
	return llmq.Request{
		ID: id, Tenant: tenant, Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain,
		Deadline: time.UnixMilli(time.Now().Add(90 * time.Second).UnixMilli()), Body: []byte(`{"for":"` + id + `"}`),
	}
}

// stored is a request's result, or nil.
func (p *process) stored(id string) *llmq.Result {
	p.t.Helper()
	r := request(id)
	b, err := p.valkey.Get(p.t.Context(), p.space.Call(tenant, r.RID()).Result).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		p.t.Fatalf("read the result: %v", err)
	}
	res, err := p.results.Decode(p.t.Context(), r, b)
	if err != nil {
		p.t.Fatalf("decode the result: %v", err)
	}
	return &res
}

// handle gives a worker one message, and says what became of it.
func handle(ctx context.Context, w *worker.Worker, m queue.Message) string {
	out := w.Handle(ctx, []queue.Message{m})
	what := "keep"
	if out[0].Action == worker.Ack {
		what = "ack"
	}
	return what + " " + out[0].Reason
}

func ok(body string) *provider.Response {
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(body)}
}
