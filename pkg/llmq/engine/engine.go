// Package engine runs one request: it takes the claim and a slot in one round trip,
// makes the attempt inside every deadline, decides what came back, and stores the
// result under the claim's fence. In this release a request gets one attempt per
// take, at its model's first target that speaks its wire.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// Config bounds what the engine does.
type Config struct {
	Worker         string        // name of this process in meta and logs
	AttemptTimeout time.Duration // one attempt; positive
	RTCapacityWait time.Duration // how long an rt request waits here for a slot; 0 asks once, never negative
}

// Deps are the engine's collaborators; all are required.
type Deps struct {
	Valkey    redis.UniversalClient
	Catalogue llmq.Catalogue
	Claims    *claims.Store
	Capacity  *capacity.Gate
	Results   *results.Store
	Providers map[string]provider.Provider // by configured name
	Log       *slog.Logger
}

// Engine runs requests. It is safe for concurrent use and keeps no state of them.
type Engine struct {
	cfg Config
	Deps
}

// New checks its input and lists every fault at once.
func New(cfg Config, d Deps) (*Engine, error) {
	var faults []error
	require := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("engine: %s is required", what))
		}
	}
	require(cfg.Worker != "", "Config.Worker")
	require(cfg.AttemptTimeout > 0, "a positive Config.AttemptTimeout")
	require(cfg.RTCapacityWait >= 0, "a Config.RTCapacityWait of at least 0")
	require(d.Valkey != nil, "Deps.Valkey")
	require(d.Claims != nil, "Deps.Claims")
	require(d.Capacity != nil, "Deps.Capacity")
	require(d.Results != nil, "Deps.Results")
	require(d.Log != nil, "Deps.Log")
	for _, m := range d.Catalogue.Models() {
		for _, t := range m.Targets {
			require(d.Providers[t.Provider] != nil, "provider "+t.Provider+" of target "+t.String())
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Engine{cfg: cfg, Deps: d}, nil
}

// Call is one request to run.
type Call struct {
	Request  llmq.Request
	QueuedAt time.Time // when it was sent to the queue; zero if it was not
	Limit    time.Time // this process can't run past it; zero is no limit
}

// Action says what is to become of the call's message.
type Action int

const (
	// Stored says that the request has ended and its result is stored: acknowledge.
	Stored Action = iota + 1
	// Release says to hand the message back for Verdict.After, then to call Verdict.Defer.
	Release
	// Leave says to touch nothing. Another owner has the request, or nothing could be stored;
	// the message comes back when its lease ends.
	Leave
	// Refuse says that the message must not be run: move it to the dead-letter queue with Verdict.Err.
	Refuse
)

// Verdict is how a run ended.
type Verdict struct {
	Action Action
	After  time.Duration // Release: how long the message is to stay away
	Reason string        // for logs and metrics; from a short list
	Err    *llmq.Error   // Refuse: why
	Defer  func(context.Context)
}

// reasons of a release
const (
	reasonBusy        = "running_elsewhere"
	reasonDeferred    = "deferred"
	reasonNoCapacity  = "no_capacity"
	reasonStoreDown   = "store_unavailable"
	reasonUnknown     = "model_not_configured"
	reasonOutOfTime   = "out_of_time"
	reasonInterrupted = "interrupted"
	reasonLost        = "claim_lost"
)

// leastTime is what a process must have left to take a request on.
const leastTime = time.Second

// capacityWaitQueued is how long a bg or bulk request waits here for a slot before it
// goes back to its queue (FEATURES B3).
const capacityWaitQueued = 15 * time.Second

// Run takes one request as far as it can go now. It returns only after everything it
// started has ended.
func (e *Engine) Run(ctx context.Context, c Call) Verdict {
	r := &run{Engine: e, Call: c, owner: llmq.NewID(), hash: claims.BodyHash(c.Request), log: e.Log.With("request_id", c.Request.ID, "lane", string(c.Request.Lane))}
	r.meta = llmq.Meta{RequestID: c.Request.ID, Model: c.Request.Model.Alias, Lane: c.Request.Lane, Worker: e.cfg.Worker}
	v := r.run(ctx)
	r.log.Debug("call_ended", "action", v.Action, "reason", v.Reason, "attempts", r.meta.Attempts)
	return v
}

func (r *run) run(ctx context.Context) Verdict {
	_, targets, err := r.Catalogue.Resolve(r.Request.Model, r.Request.Op.Wire())
	if err != nil {
		return r.unserved(ctx, llmq.AsError(err))
	}
	r.target = targets[0]
	r.meta.Model, r.meta.Target, r.meta.Provider, r.meta.ModelID = r.target.Model, r.target.Name, r.target.Provider, r.modelID()
	if !r.Limit.IsZero() && time.Until(r.Limit) < leastTime {
		return Verdict{Action: Release, Reason: reasonOutOfTime} // unclaimed: a fresh process may have the time
	}
	if !time.Now().Before(r.Request.Deadline) {
		return r.end(ctx, llmq.Errorf(llmq.CodeExpired, "the deadline passed while the request was queued"))
	}
	if out, over := r.begin(ctx, true); over {
		return out
	}
	if r.claim.Takeovers >= mostTakeovers {
		return r.crashed(ctx)
	}
	keeper := r.keep(ctx)
	defer keeper.stop()
	if _, held := r.heldSlot(); !held {
		if end := r.waitForSlot(keeper.ctx); end != nil { //nolint:contextcheck // what was begun is ended though the call is over
			keeper.stop()
			return r.settleWait(ctx, end, keeper)
		}
	}
	if !time.Now().Before(r.Request.Deadline) {
		keeper.stop()
		return r.finish(ctx, llmq.Result{Err: llmq.Errorf(llmq.CodeExpired, "the deadline passed before a provider was called")}, capacity.Abandoned)
	}
	reply, failure := r.attempt(keeper.ctx) //nolint:contextcheck // what was begun is ended though the call is over
	keeper.stop()
	return r.decide(ctx, keeper, reply, failure)
}

// unserved handles a request that this worker's configuration can't serve. A wrong
// wire is wrong everywhere. An unknown model may be known to a newer worker, so the
// message goes back for a random while, until there is no time left (FEATURES B17).
func (r *run) unserved(ctx context.Context, why *llmq.Error) Verdict {
	if !errors.Is(why, llmq.CodeModelNotFound) {
		return r.end(ctx, why)
	}
	const lastTry = 30 * time.Second
	if time.Until(r.Request.Deadline) > lastTry {
		return Verdict{Action: Release, After: jitter(time.Second, 5*time.Second), Reason: reasonUnknown}
	}
	return r.end(ctx, llmq.Errorf(llmq.CodeModelNotConfigured, "no worker knows the model %q", llmq.Clip(r.Request.Model.String(), 80)).At("model"))
}

// end stores an error without an attempt. The claim is taken first, so that it can't
// overwrite what another worker is about to store.
func (r *run) end(ctx context.Context, why *llmq.Error) Verdict {
	if out, over := r.begin(ctx, false); over {
		return out
	}
	return r.finish(ctx, llmq.Result{Err: why}, capacity.Abandoned)
}

// mostTakeovers is how many workers may die over one request: what kills them, too much
// memory say, would kill the next as well, with all that it runs beside it.
const mostTakeovers = 5

// crashed ends a request whose workers never came to an end: its caller is told, and
// the message is kept for whoever looks into it.
func (r *run) crashed(ctx context.Context) Verdict {
	why := llmq.Errorf(llmq.CodeWorkerCrash, "%d workers ended while they ran the request", r.claim.Takeovers)
	if v := r.finish(ctx, llmq.Result{Err: why}, capacity.Abandoned); v.Action != Stored {
		return v
	}
	return refuse(why)
}

func (r *run) modelID() string {
	if r.target.ModelID != "" {
		return r.target.ModelID
	}
	return r.Request.Model.Alias // a local catch-all passes the caller's name on
}

func jitter(low, high time.Duration) time.Duration {
	return low + rand.N(high-low) //nolint:gosec // spreads retries; nothing is secret
}

// run is one request on its way through the engine.
type run struct {
	*Engine
	Call
	owner  string
	hash   string // of the body
	log    *slog.Logger
	target llmq.Target
	meta   llmq.Meta
	claim  claims.Claim

	mu       sync.Mutex // guards what the keeper reads while the run goes on
	slot     capacity.Slot
	admitted bool // slot is held
}

func (r *run) holdSlot(s capacity.Slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slot, r.admitted = s, true
}

func (r *run) heldSlot() (capacity.Slot, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slot, r.admitted
}

// dropSlot is heldSlot for the one who returns it.
func (r *run) dropSlot() (capacity.Slot, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.admitted
	r.admitted = false
	return r.slot, held
}
