package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// capacityWaitQueued is how long a bg or bulk request waits here for a slot before it
	// goes back to its queue (FEATURES B3).
	capacityWaitQueued = 15 * time.Second
	// stepWait is how long an rt request waits for a slot of one step before it looks at the
	// next one (FEATURES C8).
	stepWait = 2 * time.Second
	// longestPause is the longest between two tries for a slot: who has waited long must not ask
	// much less often than newcomers do, or these get what comes free.
	longestPause = 2 * retryFull
	// retryFull is the first pause.
	retryFull = 100 * time.Millisecond
	// leastTold is the soonest that a caller is told to come again (FEATURES C14).
	leastTold = 50 * time.Millisecond
)

// wait is one wait for a slot.
type wait struct {
	until   time.Time         // nothing is asked after it
	stepEnd time.Time         // when an rt request looks elsewhere
	pause   time.Duration     // before the next try
	hops    int               // steps passed by since the last pause
	dark    bool              // the state store did not answer at least once
	looked  time.Time         // when it was last asked, or the wait began
	lost    time.Duration     // of an rt request's wait: for how long the store did not answer
	least   time.Duration     // the soonest that any step may be asked again with success; 0 is unknown
	anew    map[int]time.Time // by step: when one that came anew would start there, by its latest answer
}

// acquire waits for a slot while the claim is kept. It returns nil once there is one. An rt request walks
// its chain for it. Any other waits for its own step: what a fallback's target can take belongs to
// that one's callers, and only failures lead there (FEATURES C8).
func (r *run) acquire(ctx context.Context) *ending {
	began := time.Now()
	w := wait{until: r.bound(began.Add(capacityWaitQueued)), pause: retryFull, looked: began, anew: map[int]time.Time{}}
	defer func() { r.waited += time.Since(began) - w.lost }()
	switch {
	case r.Direct:
		w.until = began
	case r.Request.Lane == llmq.LaneRT:
		w.until = r.bound(began.Add(max(0, r.capacityWait()-r.waited)))
	}
	w.stepEnd = earlier(began.Add(stepWait), w.until)
	a := r.answer
	r.answer = nil
	for {
		switch {
		case r.stopped():
			return drained(0, cutOff())
		case ctx.Err() != nil:
			return &ending{release: &Verdict{Reason: reasonInterrupted}, slot: cutOff()}
		}
		if a == nil {
			r.limits = r.Rules(ctx).Catalogue // who waits must follow a cap that is cut meanwhile
			if a = r.try(ctx); a == nil {
				return nil
			}
		}
		if a.never != nil {
			if end := r.pass(a.never); end != nil {
				return end
			}
			a, w.stepEnd = nil, earlier(time.Now().Add(stepWait), w.until)
			continue
		}
		r.traceNoSlot(a, r.waited+time.Since(began))
		r.outlast(&w, a)
		w.hear(a, r.come().Step)
		over, hopped := r.hop(&w, a)
		if over && !r.Direct {
			return r.nowhere(a)
		}
		if !hopped {
			next := time.Now().Add(w.next(a))
			if next.After(w.until) {
				return r.outOfWait(&w, a)
			}
			r.traceWait(next)
			r.sleep(ctx, next)
			w.hops = 0
		}
		a = nil
	}
}

// outlast lengthens an rt request's wait by what passed without an answer of the store: only a store that answers says that there is no
// slot. The request's deadline and the process's end bound it as ever.
func (r *run) outlast(w *wait, a *admission) {
	now := time.Now()
	silent := now.Sub(w.looked)
	w.looked, w.dark = now, w.dark || a.unheard
	if !a.unheard || r.Direct || r.Request.Lane != llmq.LaneRT {
		return
	}
	w.lost += silent
	w.until, w.stepEnd = r.bound(w.until.Add(silent)), r.bound(w.stepEnd.Add(silent))
	r.givesUp = r.bound(r.givesUp.Add(silent))
}

// hear notes what an answer of a step says of when to come again. A queued request that may have its tokens sooner
// is not sent away for as long as the answer says.
func (w *wait) hear(a *admission, step int) {
	if a.retry > 0 && !a.sooner && (w.least == 0 || a.retry < w.least) {
		w.least = a.retry
	}
	if a.wait > 0 {
		w.anew[step] = time.Now().Add(a.wait)
	}
}

// told is what the caller of an rt request is told of when to come again: when its tokens are sure to be there, and its turn
// would have come. 0 is unknown.
func (w *wait) told() time.Duration {
	if len(w.anew) == 0 {
		return 0
	}
	first := slices.MinFunc(slices.Collect(maps.Values(w.anew)), time.Time.Compare)
	return max(time.Until(first), leastTold)
}

// soonest is when asking again may help.
func (a *admission) soonest() time.Duration {
	if a.sooner {
		return min(a.retry, longestPause)
	}
	return a.retry
}

// next is the pause before the next try: as the gate wishes, where it knows.
func (w *wait) next(a *admission) time.Duration {
	pause := w.pause
	w.pause = min(2*w.pause, longestPause)
	if a.soonest() > longestPause {
		return a.retry + jitter(0, longestPause)
	}
	return jitter(pause/2, pause)
}

// hop goes on to another step where the current one has nothing for the request. over says that
// there is none, and that waiting is of no use.
func (r *run) hop(w *wait, a *admission) (over, hopped bool) {
	if a.unheard || r.AtOnce {
		return false, false // nothing is known of any step, or wanted of another
	}
	now, step, rt := time.Now(), r.step(), r.Request.Lane == llmq.LaneRT
	late := rt && !now.Add(a.soonest()).Before(w.stepEnd)
	if !step.RequireHeadroom && a.short != targetClosed && !late {
		return false, false
	}
	next, more := r.nextStep()
	if !more {
		return step.RequireHeadroom, false
	}
	if w.hops >= len(r.chain)-1 {
		return false, false // all of them were asked just now
	}
	w.hops++
	r.enter(next, step.RequireHeadroom && !rt)
	w.stepEnd = earlier(now.Add(stepWait), w.until)
	return false, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// try asks for a slot of the current step. It returns nil when there is one. A store that does not answer
// has nothing to give, for now.
func (r *run) try(ctx context.Context) *admission {
	var b luascript.Batch
	asked := r.ask()
	admits := r.gate.admit(&b, asked)
	err := b.Run(ctx, r.Valkey)
	if err == nil {
		var a admission
		if a, err = admits(); err == nil {
			return r.admit(asked, a)
		}
	}
	r.unadmitted(ctx, asked, err)
	return &admission{unheard: true}
}

// unadmitted says why there was no answer to an ask. A key that somebody has put there holds up every call of its target until it is
// deleted, which is for people to do: it is named.
func (r *run) unadmitted(ctx context.Context, a ask, err error) {
	r.storeFailed("admit", err)
	var b luascript.Batch
	looked := r.gate.misfits(&b, a.target, err)
	if looked == nil || b.Run(ctx, r.Valkey) != nil {
		return
	}
	misfits, _ := looked()
	for _, m := range misfits {
		r.log().Error("a key of the state store is of the wrong type: delete it, it is made anew", "key", m.Key, "is", m.Is, "want", m.Want, "target", a.target.String())
	}
}

// nowhere ends a request whose only step left has no headroom.
func (r *run) nowhere(a *admission) *ending {
	failure := r.failure
	if failure == nil {
		failure = r.short(a.wait, a.short)
	}
	return &ending{result: llmq.Result{Err: failure}, slot: cutOff()}
}

// short words the lack of a slot or of budget, and that a target is left alone. after is when the caller may come again with
// success (FEATURES C8); 0 is unknown.
func (r *run) short(after time.Duration, why shortage) *llmq.Error {
	if after == 0 {
		after = time.Second
	}
	switch why {
	case shortOfRate:
		return llmq.Errorf(llmq.CodeRateLimited, "the budget of calls or tokens of %s is used up", r.target()).After(after)
	case targetClosed:
		return llmq.Errorf(llmq.CodeNoCapacity, "%s has failed again and again and is left alone; it is tried again in %s", r.target(), max(after.Round(time.Second), time.Second)).After(after)
	default:
		return llmq.Errorf(llmq.CodeNoCapacity, "no slot came free at %s in the time that a live call waits", r.target()).After(after)
	}
}

// outOfWait says what becomes of a request that found no slot in time.
func (r *run) outOfWait(w *wait, a *admission) *ending {
	left := time.Until(r.Request.Deadline)
	release := func(after time.Duration, reason string) *ending {
		return &ending{release: &Verdict{After: after, Reason: reason}, slot: cutOff()}
	}
	switch {
	case left <= time.Second:
		e := r.late()
		return &e
	case !r.Limit.IsZero() && time.Until(r.Limit) <= time.Second:
		return release(0, reasonOutOfTime) // cut by this process's end, not the wait's
	case a.unheard, w.dark && r.Request.Lane != llmq.LaneRT: // nobody knows whether a slot was free
		return release(jitter(2*time.Second, 8*time.Second), ReasonStoreUnavailable)
	case r.AtOnce:
		return release(0, reasonNoCapacity) // whoever gets it waits for a slot, and counts as waiting
	case r.Direct:
		return release(w.least, reasonNoCapacity)
	case r.Request.Lane == llmq.LaneRT:
		failure := r.short(w.told(), a.short)
		if a.short == targetClosed && r.failure != nil {
			failure = r.failure // what its own attempt got tells more
		}
		return &ending{result: llmq.Result{Err: failure}, slot: cutOff()}
	default:
		// Back by the deadline at the latest, so that its passing is told in time.
		return release(min(left, max(w.least, jitter(5*time.Second, 15*time.Second))), reasonNoCapacity)
	}
}

// late ends a request whose deadline passes before another attempt. Only one that was never
// tried has expired: of any other there is more to tell.
func (r *run) late() ending {
	switch {
	case r.come().Attempts == 0:
		return ending{expire: true, slot: cutOff()}
	case r.failure != nil:
		return ending{result: llmq.Result{Err: r.failure}, slot: cutOff()}
	}
	return ending{
		result: llmq.Result{Err: llmq.Errorf(llmq.CodeTimeout, "no time was left to try %s again", r.target())},
		slot:   cutOff(),
	}
}
