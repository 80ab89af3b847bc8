package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

// run is one request on its way through the engine.
type run struct {
	*Engine
	Call
	owner   string
	hash    string // of the body
	traced  bool   // what happens is logged, each step: see trace.go
	begun   time.Time
	began   Rules          // that held when it began
	limits  llmq.Catalogue // that hold now, as last heard
	chain   []fallback.Step
	barred  []string // targets that the chain lacks because the request's key may not use them
	meta    llmq.Meta
	claim   claims.Claim
	owns    bool          // the claim was taken
	buried  bool          // the message lies in the dead-letter queue
	failure *llmq.Error   // what the caller is told when no step is left; nil before the first
	result  *llmq.Result  // what the request has come to; nil before that, and where it is another owner's to tell
	asked   int           // admissions granted so far
	answer  *admission    // the last one's answer, where no slot came and nobody has looked at it yet
	waited  time.Duration // for a slot, in all
	givesUp time.Time     // when an rt request waits no longer for a slot; zero before it asked
	nudge   chan struct{} // capacity 1: the keeper is to renew now

	// ahead says that the claim counts an attempt that has not begun: the one that the take, or the end of the one before, leads to (DS12).
	ahead atomic.Bool

	renewing chan struct{} // capacity 1: a token for whoever renews the slot or drops it

	loads map[int]provider.Load // by step, once it was looked at
	tape  *tape                 // of the last attempt, of a stream; nil before that
	paid  *held                 // the slot of the attempt that ended the work; nil where none did
	usage *provider.Usage       // of the reply, where one came and says so

	mu       sync.Mutex // guards what the keeper reads while the run goes on
	slot     *held      // nil while there is none
	open     []ask      // asked for and not granted: an rt request waits there, or the answer was lost
	progress claims.Progress
}

func (e *Engine) newRun(ctx context.Context, c Call) *run {
	rules := e.Rules(ctx)
	return &run{
		Engine: e, Call: c, began: rules, limits: rules.Catalogue, owner: e.Stops.Owner(), hash: claims.BodyHash(c.Request), nudge: make(chan struct{}, 1), renewing: make(chan struct{}, 1),
		loads:  map[int]provider.Load{},
		traced: e.Log.Enabled(ctx, slog.LevelDebug), begun: time.Now(),
		meta: llmq.Meta{RequestID: c.Request.ID, Model: c.Request.Model.Alias, Lane: c.Request.Lane, Worker: e.cfg.Worker, Direct: c.Direct},
	}
}

// leastTime is what must be left to take a request on, or to begin an attempt.
const leastTime = time.Second

func (r *run) run(ctx context.Context) Verdict {
	switch {
	case r.Lost != nil:
		return r.lose(ctx)
	case r.Refused != nil:
		return r.end(ctx, r.Refused)
	}
	chain, err := r.began.Fallback.Chain(r.began.Catalogue, fallback.Ask{Model: r.Request.Model, Op: r.Request.Op, Policy: r.Request.Fallback}, r.mayUse)
	if err != nil {
		return r.unserved(ctx, llmq.AsError(err))
	}
	r.chain = chain
	if r.lacks(r.Request, chain[0].Target) {
		return r.unserved(ctx, llmq.Errorf(llmq.CodeUnknownJob, "no worker of the queue has the function that %q names", llmq.Clip(r.Request.Model.String(), 80)).At("model"))
	}
	r.point()
	if !r.Limit.IsZero() && time.Until(r.Limit) < leastTime {
		return Verdict{Action: Release, Reason: reasonOutOfTime} // unclaimed: a fresh process may have the time
	}
	if r.stopped() {
		return Verdict{Action: Release, Reason: reasonDraining} // unclaimed, as above
	}
	if !time.Now().Before(r.Request.Deadline) {
		return r.overdue(ctx)
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	watch := r.Stops.Watch(r.owner, func() { cancel(errCancelled) }, r.look) //nolint:contextcheck // one subscription serves all runs
	defer watch.Close()                                                      //nolint:contextcheck // its end must be told though the call is over
	if out, over := r.start(ctx); over {
		return out
	}
	watch.Begun()
	keeper := r.keep(ctx, cancel)
	defer keeper.stop()
	end := r.walk(work)
	if h := r.heldSlot(); h != nil && h.begun {
		r.paid = h
	}
	keeper.stop()
	watch.Leave() //nolint:contextcheck // as above
	return r.conclude(ctx, work, end)
}

// start takes the request, and ends it where it must not be run. It reports true when the run is over, with what to do.
func (r *run) start(ctx context.Context) (Verdict, bool) {
	for alone := r.Alone == nil && !r.Direct; ; alone = true {
		if out, over := r.begin(ctx, true); over {
			return out, true
		}
		if r.claim.Cancelled {
			return r.finish(ctx, llmq.Result{Err: cancelled()}, cutOff()), true
		}
		if out, over := r.recoverReply(ctx); over {
			return out, true
		}
		if out, over := r.endBroken(ctx); over {
			return out, true
		}
		if out, over := r.poison(ctx); over {
			return out, true
		}
		if alone || r.claim.Takeovers == 0 {
			return Verdict{}, false
		}
		if out, over := r.seclude(ctx); over {
			return out, true
		}
	}
}

// mayUse asks for the key's allowance, and notes what it bars (SECURITY-DESIGN KT4).
func (r *run) mayUse(t llmq.Target) bool {
	may := r.Request.MayUse(t)
	if !may {
		r.barred = append(r.barred, t.String())
	}
	return may
}

// overdue ends a request whose deadline has passed by this process's clock. The claim is
// asked for first: it knows the attempts that were made, and the store's clock decides.
func (r *run) overdue(ctx context.Context) Verdict {
	if out, over := r.begin(ctx, false); over {
		return out
	}
	if r.claim.Cancelled {
		return r.finish(ctx, llmq.Result{Err: cancelled()}, cutOff())
	}
	return r.conclude(ctx, ctx, r.late())
}

// walk takes the request from try to try and from step to step, to its end or until it
// must leave.
func (r *run) walk(ctx context.Context) ending {
	for {
		if r.heldSlot() == nil {
			if end := r.acquire(ctx); end != nil {
				return *end
			}
		}
		r.traceSlot()
		if !time.Now().Before(r.Request.Deadline) {
			return r.late()
		}
		if r.stopped() {
			return *drained(0, cutOff())
		}
		resp, err := r.attempt(ctx)
		if err == nil {
			r.usage = resp.Usage
			reply := &llmq.Reply{Status: resp.Status, ContentType: resp.ContentType, Body: resp.Body, Stream: r.Request.Stream}
			return ending{result: llmq.Result{Reply: reply}, slot: replied(r.target(), resp.Usage)}
		}
		if end := r.decide(ctx, err); end != nil {
			return *end
		}
	}
}

// stopped reports whether nothing more is to be started.
func (r *run) stopped() bool {
	select {
	case <-r.Stop:
		return true
	default:
		return false
	}
}

// drained hands a request back that the process's stop has met between two attempts. It stays away for as long as it
// would have waited here.
func drained(after time.Duration, o capacity.Outcome) *ending {
	return &ending{release: &Verdict{After: after, Reason: reasonDraining}, slot: o}
}

// sleep waits until t, or until the work or the process is stopped.
func (r *run) sleep(ctx context.Context, t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.Stop:
	case <-timer.C:
	}
}

// look makes the keeper ask the store at once. It never blocks.
func (r *run) look() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// unserved handles a request that this worker can't serve. A wrong wire is wrong everywhere. An unknown model may be known to
// a newer worker, and a function to another one, so the message goes back for a random while, until there is no time left
// (FEATURES B17). A job is kept then, for a worker that is still to be deployed.
func (r *run) unserved(ctx context.Context, why *llmq.Error) Verdict {
	switch isJob := why.Code == llmq.CodeUnknownJob; {
	case !isJob && why.Code != llmq.CodeModelNotFound:
		return r.end(ctx, why)
	case time.Until(r.Request.Deadline) > lastLook:
		return passOn(r.Request, r.Receives)
	case isJob:
		return r.endBuried(ctx, why)
	}
	return r.end(ctx, llmq.Errorf(llmq.CodeModelNotConfigured, "no worker knows the model %q", llmq.Clip(r.Request.Model.String(), 80)).At("model"))
}

// lastLook is how long before its deadline a request is told that nobody can serve it.
const lastLook = 30 * time.Second

const (
	// The first looks of workers that lack what a request is for are soon, since the one that has it may be among a few.
	passSoon  = 5 * time.Second
	passLooks = 6
	// passMost is the longest wait. Over the longest deadline, 12 h, such waits are some 600 receives, of the 1000 after which SQS
	// itself takes a message away.
	passMost = 2 * time.Minute
)

// passOn hands a request to another worker. The wait is random, or the one that lacks it would have it back each time, and doubles
// after the first looks: each costs a receive. It does not reach past the last look.
func passOn(q llmq.Request, receives int) Verdict {
	most := passSoon
	for range min(max(0, receives-passLooks), 5) { // five times is past passMost
		most = min(2*most, passMost)
	}
	after := min(jitter(most/5, most), time.Until(q.Deadline.Add(-lastLook))+jitter(0, passSoon))
	v := Verdict{Action: Release, After: after, Reason: reasonUnknown}
	if q.Op == llmq.OpJob {
		v.Reason = reasonUnknownJob
	}
	return v
}

// Pass reports whether a request is for another worker, with what to do: it is a job whose function this one lacks. It
// asks nobody, so that a large payload is not fetched in vain. [Engine.Run] would say the same, and says what
// is to become of one whose time is nearly over. receives is how often its message was received.
func (e *Engine) Pass(q llmq.Request, receives int) (Verdict, bool) {
	if q.Op != llmq.OpJob || time.Until(q.Deadline) <= lastLook {
		return Verdict{}, false
	}
	_, targets, err := e.Catalogue.Resolve(q.Model, q.Op.Wire())
	if err != nil || !e.lacks(q, targets[0]) {
		return Verdict{}, false
	}
	return passOn(q, receives), true
}

// lacks reports whether this process has not what a job is for.
func (e *Engine) lacks(q llmq.Request, t llmq.Target) bool {
	some, selective := e.Providers[t.Provider].(provider.Selective)
	return q.Op == llmq.OpJob && selective && !some.Has(t.ModelID)
}

// end stores an error without an attempt. The claim is taken first, so that it can't
// overwrite what another worker is about to store.
func (r *run) end(ctx context.Context, why *llmq.Error) Verdict {
	if out, over := r.begin(ctx, false); over {
		return out
	}
	switch {
	case r.claim.Cancelled:
		why = cancelled()
	case why.Code == llmq.CodeExpired && (r.claim.Takeovers > 0 || r.come().Attempts > 0):
		why = r.unanswered() // by this process's clock the deadline has passed; what was tried may have been paid for (DS15)
	}
	return r.finish(ctx, llmq.Result{Err: why}, cutOff())
}

func cancelled() *llmq.Error {
	return llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")
}

// step is the current one.
func (r *run) step() fallback.Step { return r.chain[r.come().Step] }

func (r *run) target() llmq.Target { return r.step().Target }

// come is how far the request has come.
func (r *run) come() claims.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}

// advance changes how far it has come, and what the meta says of that.
func (r *run) advance(change func(p *claims.Progress)) claims.Progress {
	r.mu.Lock()
	change(&r.progress)
	p := r.progress
	r.mu.Unlock()
	r.meta.Attempts, r.meta.Provided = p.Attempts, p.Provided
	return p
}

// point makes the meta name the current step.
func (r *run) point() {
	p := r.come()
	t := r.chain[p.Step].Target
	r.meta.Model, r.meta.Target, r.meta.Provider, r.meta.ModelID, r.meta.Fallback = t.Model, t.Name, t.Provider, r.modelID(t), p.Step > 0
}

// resume takes the request up where its last owner left it. A chain that has become shorter meanwhile
// is begun again, within the same count of attempts.
func (r *run) resume() {
	r.advance(func(p *claims.Progress) {
		*p = r.claim.Progress
		if p.Step >= len(r.chain) || p.Spent>>p.Step&1 == 1 {
			p.Step, p.Spent, p.Tries, p.Throttled = 0, 0, 0, 0
		}
	})
	r.meta.Takeovers = r.claim.Takeovers
	r.point()
}

func (r *run) modelID(t llmq.Target) string {
	if t.ModelID != "" {
		return t.ModelID
	}
	return r.Request.Model.Alias // a local catch-all passes the caller's name on
}

// window is the time that there is from now on.
func (r *run) window() retry.Window {
	return retry.Window{Now: time.Now(), Deadline: r.Request.Deadline, Limit: r.Limit, Least: leastTime}
}

// bound is the nearest of t, the call's deadline and the process's limit.
func (r *run) bound(t time.Time) time.Time { return r.window().Bound(t) }

func jitter(low, high time.Duration) time.Duration {
	return low + rand.N(high-low) //nolint:gosec // spreads retries; nothing is secret
}
