package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// fakeProvider answers by its function and counts.
type fakeProvider struct {
	call  func(ctx context.Context, req provider.Request) (*provider.Response, error)
	calls atomic.Int32
}

func (p *fakeProvider) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	p.calls.Add(1)
	return p.call(ctx, req)
}

func answers(body string, after time.Duration) func(context.Context, provider.Request) (*provider.Response, error) {
	return func(ctx context.Context, _ provider.Request) (*provider.Response, error) {
		select {
		case <-time.After(after):
			return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(body)}, nil
		case <-ctx.Done():
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Err: ctx.Err()}
		}
	}
}

func fails(e provider.Error) func(context.Context, provider.Request) (*provider.Response, error) {
	return func(context.Context, provider.Request) (*provider.Response, error) { return nil, &e }
}

// fakeBodies keeps bodies in memory, or fails.
type fakeBodies struct {
	err error

	mu     sync.Mutex // guards all below
	stored map[string][]byte
	looks  int // fetches and deletes
}

func (b *fakeBodies) Put(_ context.Context, key string, body []byte) (llmq.Ref, error) {
	if b.err != nil {
		return llmq.Ref{}, b.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stored == nil {
		b.stored = map[string][]byte{}
	}
	b.stored[key] = body
	return llmq.Ref{Key: key, SHA256: strings.Repeat("0", 64), Bytes: int64(len(body))}, nil
}

func (b *fakeBodies) Get(_ context.Context, ref llmq.Ref) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stored[ref.Key], b.err
}

func (b *fakeBodies) Fetch(_ context.Context, key string) ([]byte, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	body, there := b.stored[key]
	return body, there, b.err
}

func (b *fakeBodies) Delete(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	delete(b.stored, key)
	return b.err
}

// rig is an engine on a store, with all that a test looks at.
type rig struct {
	t        testing.TB
	client   redis.UniversalClient
	trips    *luatest.Trips
	mini     *miniredis.Miniredis
	space    keys.Space
	claims   *claims.Store
	stops    *claims.Stops
	capacity *capacity.Gate
	results  *results.Store
	bodies   *fakeBodies
	provider *fakeProvider
	wires    map[string]provider.Provider // providers beside that one, by name
	models   []llmq.Model
	rules    fallback.Rules
	follows  func(context.Context) engine.Rules // nil: what the engine was made with holds
	policy   retry.Policy
	attempt  time.Duration // how long one may take
	most     int           // failures that make poison
	engine   *engine.Engine
	log      *logged
	handler  slog.Handler // of the log; nil writes all of it to log, as text
	metrics  *telemetry.Recorder
}

func target() llmq.Target {
	return llmq.Target{Model: "m", Name: "t", Provider: "p", ModelID: "gpt-x", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 1}
}

func newRig(t testing.TB, c redis.UniversalClient, call func(context.Context, provider.Request) (*provider.Response, error)) *rig {
	t.Helper()
	r := &rig{t: t, client: c, trips: &luatest.Trips{}, space: luatest.Space(), bodies: &fakeBodies{}, provider: &fakeProvider{call: call}, log: &logged{}, policy: retry.Default(), attempt: time.Minute}
	r.models = []llmq.Model{{Alias: "m", Lanes: llmq.Lanes(), Targets: []llmq.Target{target()}}}
	c.AddHook(r.trips)
	r.claims, r.capacity, r.results = claims.New(r.space), capacity.New(r.space), results.New(c, r.space, r.bodies, 1000)
	batch(r, r.capacity.Preset)
	r.trips.Seen()
	r.stops = r.newStops()
	r.engine = r.newEngine("w1", 30*time.Second)
	return r
}

func (r *rig) newStops() *claims.Stops {
	r.t.Helper()
	s := claims.NewStops(r.client, r.space)
	r.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.t.Errorf("close stops: %v", err)
		}
	})
	return s
}

// chainOf replaces the catalogue by models of the given targets, all at the one provider.
func (r *rig) chainOf(rules fallback.Rules, targets ...llmq.Target) {
	r.t.Helper()
	r.models, r.rules = nil, rules
	for _, t := range targets {
		i := slices.IndexFunc(r.models, func(m llmq.Model) bool { return m.Alias == t.Model })
		if i < 0 {
			r.models, i = append(r.models, llmq.Model{Alias: t.Model, Lanes: llmq.Lanes()}), len(r.models)
		}
		r.models[i].Targets = append(r.models[i].Targets, t)
	}
	r.engine = r.newEngine("w1", 30*time.Second)
}

// once makes every attempt the only one.
func (r *rig) once() {
	r.policy.Attempts, r.policy.ThrottleAttempts = 1, 1
	r.engine = r.newEngine("w1", 30*time.Second)
}

func (r *rig) newEngine(worker string, rtWait time.Duration) *engine.Engine {
	r.t.Helper()
	providers := maps.Clone(r.wires)
	if providers == nil {
		providers = map[string]provider.Provider{}
	}
	providers["p"] = r.provider
	handler := r.handler
	if handler == nil {
		handler = slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	e, err := engine.New(engine.Config{Worker: worker, AttemptTimeout: r.attempt, FirstContent: time.Minute, Stall: 20 * time.Second, RTCapacityWait: rtWait, Retry: r.policy, MaxReceives: r.most, Fallback: r.rules}, engine.Deps{
		Valkey: r.client, Catalogue: llmq.NewCatalogue(r.models), Claims: r.claims, Stops: r.stops, Capacity: r.capacity, Results: r.results,
		Providers: providers, Rules: r.follows,
		Log: slog.New(handler), Metrics: r.metrics,
	})
	if err != nil {
		r.t.Fatalf("new engine: %v", err)
	}
	return e
}

// bubble runs a test of an engine on miniredis, in a bubble.
func bubble(t *testing.T, call func(context.Context, provider.Request) (*provider.Response, error), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		r := newRig(t, luatest.Pipe(t, m), call)
		r.mini = m
		test(t, r)
	})
}

func request() llmq.Request {
	return llmq.Request{
		ID: "req-1", Tenant: "team", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "m"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain,
		Deadline: time.UnixMilli(time.Now().Add(90 * time.Second).UnixMilli()), Body: []byte(`{"model":"m","secret":"the prompt"}`),
	}
}

// stored is the request's result, or nil.
func (r *rig) stored(req llmq.Request) *llmq.Result {
	r.t.Helper()
	b, err := r.client.Get(r.t.Context(), r.space.Call(req.Tenant, req.RID()).Result).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		r.t.Fatalf("read the result: %v", err)
	}
	res, err := r.results.Decode(r.t.Context(), req, b)
	if err != nil {
		r.t.Fatalf("decode the result: %v", err)
	}
	return &res
}

func (r *rig) wantStored(req llmq.Request, code llmq.Code) *llmq.Error {
	r.t.Helper()
	res := r.stored(req)
	if res == nil || res.Err == nil || res.Err.Code != code {
		r.t.Fatalf("stored %+v, want the error %s", res, code)
	}
	return res.Err
}

// askFor is another's admission.
func askFor(t llmq.Target, id string) capacity.Ask {
	return capacity.Ask{Target: t, Lane: llmq.LaneRT, CallID: id}
}

func (r *rig) wantSlots(want capacity.State) {
	r.t.Helper()
	got := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, target()) })
	if diff := cmp.Diff(want, capacity.State{InUse: got.InUse, Ended: got.Ended}); diff != "" {
		r.t.Errorf("slots (-want +got):\n%s", diff)
	}
}

func batch[T any](r *rig, add func(b *luascript.Batch) luascript.Pending[T]) T {
	r.t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(r.t.Context(), r.client); err != nil {
		r.t.Fatalf("run: %v", err)
	}
	got, err := pending()
	if err != nil {
		r.t.Fatalf("answer: %v", err)
	}
	return got
}

// take takes the claim as another worker would.
func (r *rig) take(req llmq.Request, owner string) claims.Take {
	r.t.Helper()
	return batch(r, func(b *luascript.Batch) luascript.Pending[claims.Take] {
		return r.claims.Take(b, req, claims.BodyHash(req), owner)
	})
}

// occupy holds the target's only slot and returns what gives it back.
func (r *rig) occupy() func() {
	r.t.Helper()
	a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
		return r.capacity.Admit(b, askFor(target(), "other"))
	})
	if !a.Granted {
		r.t.Fatalf("no slot to occupy")
	}
	return func() {
		batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Settled] {
			return r.capacity.Abandon(b, a.Slot.Ask())
		})
	}
}

func wantVerdict(t testing.TB, got engine.Verdict, action engine.Action, reason string) {
	t.Helper()
	if got.Action != action || got.Reason != reason {
		t.Errorf("verdict %v %q (after %v), want %v %q", got.Action, got.Reason, got.After, action, reason)
	}
}

func free() capacity.State { return capacity.State{Ended: map[capacity.Ending]int{}} }

func ended(e capacity.Ending) capacity.State {
	return capacity.State{Ended: map[capacity.Ending]int{e: 1}}
}

// logged is what several engines log.
type logged struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all of it.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
