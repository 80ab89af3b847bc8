package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// rig is a client with a stand-in for all workers: what is sent is run by serve.
type rig struct {
	*client.Client
	t      testing.TB
	valkey redis.UniversalClient
	trips  *luatest.Trips
	mini   *miniredis.Miniredis
	space  keys.Space
	claims *claims.Store
	log    *bytes.Buffer
	logger *slog.Logger // into log

	serve     func(r llmq.Request) *llmq.Result // nil: nobody works
	sendErr   error                             // of a send; the message is sent all the same
	sendTakes time.Duration                     // of a send, or until its context ends
	sendBound time.Duration                     // after which a send is given up; 0 is never
	batches   []int                             // messages of each request to the queue
	putErr    error                             // of a body
	putHang   bool                              // a body is not stored before its context ends
	arrives   bool                              // a send that fails by time has reached the queue all the same
	metrics   *telemetry.Recorder               // of a client that runs calls here
	routing   routing.Rules                     // that such a client follows
	provide   func(ctx context.Context, req provider.Request) (*provider.Response, error)
	engineErr error        // there is none
	engines   atomic.Int32 // made
	tried     atomic.Int32 // sends, whatever came of them
	mixed     atomic.Int32 // results that were another's
	provided  atomic.Int32 // calls of the provider by way of the client's own engine

	working sync.WaitGroup
	mu      sync.Mutex // guards all below
	sent    []sent
	put     map[string][]byte
	runs    int
}

type sent struct {
	queue queue.Name
	queue.Outgoing
}

// SendAll implements queue.BatchSender.
func (r *rig) SendAll(ctx context.Context, q queue.Name, ms []queue.Outgoing) []error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		errs[i] = r.Send(ctx, q, m)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, len(ms))
	return errs
}

// Send implements queue.Queue.
func (r *rig) Send(ctx context.Context, q queue.Name, m queue.Outgoing) error {
	r.tried.Add(1)
	if r.sendBound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.sendBound)
		defer cancel()
	}
	if r.sendTakes > 0 {
		select {
		case <-time.After(r.sendTakes):
		case <-ctx.Done():
			if r.arrives {
				r.working.Go(func() { r.work(m.Body) })
			}
			return llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached").Because(errors.Join(queue.ErrUnanswered, ctx.Err()))
		}
	}
	if errors.Is(r.sendErr, queue.ErrRefused) {
		return r.sendErr
	}
	r.mu.Lock()
	r.sent = append(r.sent, sent{q, m})
	r.mu.Unlock()
	if r.serve != nil {
		r.working.Go(func() { time.Sleep(m.Delay); r.work(m.Body) })
	}
	return r.sendErr
}

// Extend implements queue.Queue.
func (r *rig) Extend(_ context.Context, _ queue.Name, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

// Depth implements queue.Queue.
func (r *rig) Depth(context.Context, queue.Name) (queue.Depth, error) { return queue.Depth{}, nil }

// Put implements the client's bodies and those of results.
func (r *rig) Put(ctx context.Context, key string, body []byte) (llmq.Ref, error) {
	if r.putHang {
		<-ctx.Done()
		return llmq.Ref{}, llmq.Errorf(llmq.CodeQueueUnavailable, "the body store can't be reached").Because(ctx.Err())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put[key] = body
	return llmq.Ref{Key: key, SHA256: strings.Repeat("0a", 32), Bytes: int64(len(body))}, r.putErr
}

// Get implements the bodies of results.
func (r *rig) Get(_ context.Context, ref llmq.Ref) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.put[ref.Key], nil
}

// work is a worker: it takes the claim, runs, and stores under its fence.
func (r *rig) work(body []byte) {
	env, err := llmq.DecodeEnvelope(body)
	if err != nil {
		r.t.Errorf("what was sent is no envelope: %v", err)
		return
	}
	ref, err := llmq.ParseModelRef(env.Model)
	if err != nil {
		r.t.Errorf("model of the envelope: %v", err)
		return
	}
	req := llmq.Request{ID: env.ID, Tenant: env.Tenant, Op: env.Op, Model: ref, Lane: env.Lane, Deadline: env.Deadline, Body: env.Params}
	if env.Ref != nil {
		req.Body, _ = r.Get(r.t.Context(), *env.Ref)
	}
	var takes luascript.Pending[claims.Take]
	if r.insist(func(b *luascript.Batch) { takes = r.claims.Take(b, req, claims.BodyHash(req), llmq.NewID()) }) != nil {
		return // the store is down for good
	}
	take, err := takes()
	if err != nil || take.State != claims.Taken {
		return
	}
	r.mu.Lock()
	r.runs++
	r.mu.Unlock()
	res := r.serve(req)
	if res == nil {
		return
	}
	res.RID, res.Tenant, res.BodyHash = req.RID(), req.Tenant, claims.BodyHash(req)
	stored, err := llmq.EncodeResult(*res, nil)
	if err != nil {
		r.t.Errorf("encode the result: %v", err)
		return
	}
	if err := r.insist(func(b *luascript.Batch) { r.claims.Finish(b, take.Claim, stored, false) }); err != nil {
		r.t.Errorf("finish: %v", err)
	}
}

// insist runs a batch until the store takes it, as a message that comes back would have it, or gives up after a minute.
func (r *rig) insist(add func(*luascript.Batch)) (err error) {
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Second) {
		var b luascript.Batch
		add(&b)
		if err = b.Run(r.t.Context(), r.valkey); err == nil || r.t.Context().Err() != nil {
			return err
		}
	}
	return err
}

// counts are the sends and the runs so far.
func (r *rig) counts() (sends, runs int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent), r.runs
}

func (r *rig) want(sends, runs int) {
	r.t.Helper()
	if s, n := r.counts(); s != sends || n != runs {
		r.t.Errorf("%d sends and %d runs, want %d and %d", s, n, sends, runs)
	}
}

// replies makes workers that take their time.
func replies(after time.Duration) func(llmq.Request) *llmq.Result {
	return func(r llmq.Request) *llmq.Result {
		time.Sleep(after)
		return &llmq.Result{Reply: &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(`{"for":"` + r.ID + `"}`), Meta: llmq.Meta{RequestID: r.ID, Attempts: 1, Worker: "w"}}}
	}
}

func catalogue() llmq.Catalogue {
	wires := []llmq.Wire{llmq.WireOpenAI}
	return llmq.NewCatalogue([]llmq.Model{
		{Alias: "m", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []llmq.Target{{Model: "m", Name: "t", Provider: "p", ModelID: "gpt-x", Wires: wires, MaxConcurrency: 1}}},
		{Alias: "large", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "large", Name: "t", Provider: "p", ModelID: "gpt-xl", Wires: wires, MaxConcurrency: 1}}},
		{Alias: "free", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "free", Name: "t", Provider: "p", ModelID: "gpt-f", Wires: wires}}},
	})
}

// bubble runs a test of a client on miniredis, in a bubble.
func bubble(t *testing.T, serve func(llmq.Request) *llmq.Result, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		r := newRig(t, luatest.Pipe(t, m), serve)
		r.mini = m
		test(t, r)
		r.working.Wait()
	})
}

func newRig(t testing.TB, c redis.UniversalClient, serve func(llmq.Request) *llmq.Result) *rig {
	t.Helper()
	return newRigWith(t, c, client.Config{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000}, serve)
}

func newRigWith(t testing.TB, c redis.UniversalClient, cfg client.Config, serve func(llmq.Request) *llmq.Result) *rig {
	t.Helper()
	return newRigIn(t, c, luatest.Space(), cfg, serve)
}

func newRigIn(t testing.TB, c redis.UniversalClient, space keys.Space, cfg client.Config, serve func(llmq.Request) *llmq.Result) *rig {
	t.Helper()
	r := &rig{t: t, valkey: c, trips: &luatest.Trips{}, space: space, log: &bytes.Buffer{}, serve: serve, put: map[string][]byte{}}
	r.logger = slog.New(slog.NewTextHandler(r.log, nil))
	c.AddHook(r.trips)
	r.claims = claims.New(r.space)
	store := results.New(c, r.space, r, 1000)
	store.Mixed = func(llmq.Request) { r.mixed.Add(1) }
	hub := results.NewHub(store)
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Errorf("close hub: %v", err)
		}
	})
	background := queue.Batched(r, 20*time.Millisecond, 1<<20)
	t.Cleanup(background.Close)
	deps := client.Deps{
		Valkey: c, Queue: r, Background: background, Claims: r.claims, Results: store, Hub: hub, Bodies: r, Log: r.logger,
	}
	if cfg.SilentSends > 0 {
		r.metrics = telemetry.NewRecorder()
		deps.Direct, deps.Space, deps.Metrics, deps.Capacity = r.engine(store), r.space, r.metrics, capacity.New(r.space)
		deps.Rules = func(context.Context) client.Rules { return client.Rules{Catalogue: cfg.Catalogue, Routing: r.routing} }
	}
	cl, err := client.New(cfg, deps)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	r.Client = cl
	return r
}

func request() llmq.Request {
	return llmq.Request{
		ID: "req-1", Tenant: "team", KeyID: "k", Allowed: llmq.ModelSet{"m", "large", "free"}, Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "m"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain,
		Deadline: time.UnixMilli(time.Now().Add(90 * time.Second).UnixMilli()), Body: []byte("{ \"model\":\"m\",\n\"x\":\"<y>\" }"), User: "u", Session: "s", Trace: "tr",
	}
}

func (r *rig) wantReply(req llmq.Request) *llmq.Reply {
	r.t.Helper()
	reply, err := r.Do(r.t.Context(), req)
	if err != nil || string(reply.Body) != `{"for":"`+req.ID+`"}` {
		r.t.Fatalf("do = %+v, %v; want its reply", reply, err)
	}
	return reply
}

func (r *rig) wantError(ctx context.Context, req llmq.Request, code llmq.Code) {
	r.t.Helper()
	_ = r.failure(ctx, req, code)
}

// failure is wantError for those who look closer.
func (r *rig) failure(ctx context.Context, req llmq.Request, code llmq.Code) *llmq.Error {
	r.t.Helper()
	reply, err := r.Do(ctx, req)
	e, ok := errors.AsType[*llmq.Error](err)
	if !ok || e.Code != code || reply != nil {
		r.t.Fatalf("do = %+v, %v; want %s", reply, err, code)
	}
	if e.Meta.RequestID != req.ID || e.Meta.Lane != req.Lane {
		r.t.Errorf("the error's meta is %+v", e.Meta)
	}
	return e
}
