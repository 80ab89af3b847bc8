package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// The tests of this file run workers with the real engine and a real store.

// fakeProvider answers by its function; it counts calls by body, and those in flight.
type fakeProvider struct {
	call func(ctx context.Context, req provider.Request) (*provider.Response, error)

	mu             sync.Mutex // guards all below
	calls          map[string]int
	inFlight, peak int
}

func (p *fakeProvider) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	p.mu.Lock()
	p.calls[string(req.Body)]++
	p.inFlight++
	p.peak = max(p.peak, p.inFlight)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.inFlight--
		p.mu.Unlock()
	}()
	return p.call(ctx, req)
}

func (p *fakeProvider) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.calls {
		n += c
	}
	return n
}

// replies is a provider that takes its time.
func replies(after time.Duration) func(context.Context, provider.Request) (*provider.Response, error) {
	return func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		select {
		case <-time.After(after):
			return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"to":` + string(req.Body) + `}`)}, nil
		case <-ctx.Done():
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Err: ctx.Err()}
		}
	}
}

// plant is a store, a provider, and what makes workers on them.
type plant struct {
	t        testing.TB
	valkey   redis.UniversalClient
	trips    *luatest.Trips
	space    keys.Space
	results  *results.Store
	provider *fakeProvider
	stops    *claims.Stops
	retry    retry.Policy
	most     int        // slots of chat-a
	rates    llmq.Rates // of chat-a
	traces   *tracing.Tracer
}

func newPlant(t testing.TB, c redis.UniversalClient, most int, call func(context.Context, provider.Request) (*provider.Response, error)) *plant {
	t.Helper()
	p := &plant{t: t, valkey: c, trips: &luatest.Trips{}, space: luatest.Space(), most: most, provider: &fakeProvider{call: call, calls: map[string]int{}}}
	c.AddHook(p.trips)
	p.results = results.New(c, p.space, nil, 1<<20)
	p.retry = retry.Default()
	p.stops = claims.NewStops(c, p.space)
	t.Cleanup(func() {
		if err := p.stops.Close(); err != nil {
			t.Errorf("close stops: %v", err)
		}
	})
	if err := c.Set(t.Context(), p.space.Epoch(), 1, 0).Err(); err != nil {
		t.Fatalf("preset the store: %v", err)
	}
	p.trips.Seen()
	return p
}

// worker makes another worker, with what it did to its queue.
func (p *plant) worker(name string) *world {
	p.t.Helper()
	models := catalogue().Models()
	for i := range models {
		models[i].Targets = slices.Clone(models[i].Targets)
		models[i].Targets[0].MaxConcurrency = p.most
		models[i].Targets[0].Limits.Rates = p.rates
	}
	w := &world{start: time.Now()}
	log := slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := engine.New(engine.Config{Worker: name, AttemptTimeout: 60 * time.Second, RTCapacityWait: 30 * time.Second, Retry: p.retry}, engine.Deps{
		Valkey: p.valkey, Catalogue: llmq.NewCatalogue(models), Claims: claims.New(p.space), Stops: p.stops, Capacity: capacity.New(p.space), Results: p.results,
		Providers: map[string]provider.Provider{"p": p.provider}, Log: log, Traces: p.traces,
	})
	if err != nil {
		p.t.Fatalf("new engine: %v", err)
	}
	cfg := config()
	cfg.Catalogue = llmq.NewCatalogue(models)
	for l := range cfg.Timeouts {
		cfg.Timeouts[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	w.Worker, err = worker.New(cfg, worker.Deps{Queue: fakeQueue{w}, Engine: e, Bodies: bodies{w}, Keys: allowance{w}, Log: log, Traces: p.traces})
	if err != nil {
		p.t.Fatalf("new worker: %v", err)
	}
	return w
}

// stored is the result of a request of tenant t, or nil.
func (p *plant) stored(id string) *llmq.Result {
	p.t.Helper()
	r := llmq.Request{ID: id, Tenant: "t"}
	b, err := p.valkey.Get(p.t.Context(), p.space.Call("t", r.RID()).Result).Bytes()
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

func (p *plant) wantError(id string, code llmq.Code) {
	p.t.Helper()
	if res := p.stored(id); res == nil || res.Err == nil || res.Err.Code != code {
		p.t.Errorf("%s: stored %+v, want the error %s", id, res, code)
	}
}

// on is a message of a request, with a body of its own, on chat-a's queue of a lane.
func on(id string, lane llmq.Lane) queue.Message {
	m := message(id, `{"v":1,"id":"`+id+`","op":"chat","model":"chat-a","tenant":"t","params":{"nr":"`+id+`"}}`)
	m.Queue = names.Model("chat-a", lane)
	return m
}

// wholeBubble runs a test of workers on virtual time.
func wholeBubble(t *testing.T, most int, call func(context.Context, provider.Request) (*provider.Response, error), test func(t *testing.T, p *plant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newPlant(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), most, call))
	})
}

func actions(out []worker.Outcome) []string {
	var got []string
	for _, o := range out {
		what := "keep"
		if o.Action == worker.Ack {
			what = "ack"
		}
		got = append(got, o.MessageID+" "+what+" "+o.Reason)
	}
	return got
}

// holder holds the only slot.
type holder struct {
	p    *plant
	once sync.Once
}

func newHolder(t testing.TB, p *plant) *holder {
	t.Helper()
	key := p.space.Target(llmq.Target{Model: "chat-a", Name: "main"}).RT
	if err := p.valkey.ZAdd(t.Context(), key, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "holder"}).Err(); err != nil {
		t.Fatalf("hold the slot: %v", err)
	}
	return &holder{p: p}
}

func (h *holder) release() {
	h.once.Do(func() {
		key := h.p.space.Target(llmq.Target{Model: "chat-a", Name: "main"}).RT
		if err := h.p.valkey.ZRem(h.p.t.Context(), key, "holder").Err(); err != nil {
			h.p.t.Errorf("release the slot: %v", err)
		}
	})
}
