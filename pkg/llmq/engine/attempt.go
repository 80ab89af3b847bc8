package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// noSlot is how a wait for a slot ended in vain: with an error to be stored, or else a
// release.
type noSlot struct {
	failure *llmq.Error
	release Verdict
}

// longestPause is the longest between two tries for a slot: who has waited long must not ask
// much less often than newcomers do, or these get what comes free.
const longestPause = 2 * capacity.RetryFull

// waitForSlot asks again and again for a slot while the claim is kept. It returns nil once there is one.
func (r *run) waitForSlot(ctx context.Context) *noSlot {
	wait := capacityWaitQueued
	if r.Request.Lane == llmq.LaneRT {
		wait = r.cfg.RTCapacityWait
	}
	until := r.bound(time.Now().Add(wait))
	pause := capacity.RetryFull
	for {
		next := time.Now().Add(jitter(pause/2, pause))
		if next.After(until) {
			return r.outOfWait()
		}
		if !sleepUntil(ctx, next) {
			return &noSlot{release: Verdict{Action: Release, Reason: reasonInterrupted}}
		}
		var b luascript.Batch
		admits := r.Capacity.Admit(&b, r.target, r.owner)
		err := b.Run(ctx, r.Valkey)
		if err == nil {
			var a capacity.Admission
			if a, err = admits(); err == nil && a.Granted {
				r.holdSlot(a.Slot)
				return nil
			}
		}
		if err != nil {
			r.log.Warn("state store failed", "doing", "admit", "error", err)
		}
		pause = min(2*pause, longestPause)
	}
}

// outOfWait says what becomes of a request that found no slot in time.
func (r *run) outOfWait() *noSlot {
	left := time.Until(r.Request.Deadline)
	switch {
	case left <= time.Second:
		return &noSlot{failure: llmq.Errorf(llmq.CodeExpired, "the deadline passed while the request waited for a slot")}
	case !r.Limit.IsZero() && time.Until(r.Limit) <= time.Second:
		return &noSlot{release: Verdict{Action: Release, Reason: reasonOutOfTime}} // cut by this process's end, not the wait's
	case r.Request.Lane == llmq.LaneRT:
		return &noSlot{failure: llmq.Errorf(llmq.CodeNoCapacity, "no slot came free at %s within %s", r.target, r.cfg.RTCapacityWait).After(time.Second)}
	default:
		// Back by the deadline at the latest, so that its passing is told in time.
		return &noSlot{release: Verdict{Action: Release, After: min(left, jitter(5*time.Second, 15*time.Second)), Reason: reasonNoCapacity}}
	}
}

// settleWait ends a run that got no slot.
func (r *run) settleWait(ctx context.Context, end *noSlot, k *keeper) Verdict {
	if k.lost() != nil {
		r.log.Warn("gave up", "error", k.lost())
		return Verdict{Action: Leave, Reason: reasonLost}
	}
	if end.failure != nil {
		return r.finish(ctx, llmq.Result{Err: end.failure}, capacity.Abandoned)
	}
	v := end.release
	v.After = max(v.After, shortestRelease)
	v.Defer = r.deferClaim(v.After)
	return v
}

// bound is the nearest of t, the call's deadline and the process's limit.
func (r *run) bound(t time.Time) time.Time {
	if r.Request.Deadline.Before(t) {
		t = r.Request.Deadline
	}
	if !r.Limit.IsZero() && r.Limit.Before(t) {
		t = r.Limit
	}
	return t
}

// attempt sends the request once, bounded by every deadline there is.
func (r *run) attempt(ctx context.Context) (*provider.Response, error) {
	ctx, cancel := context.WithDeadline(ctx, r.bound(time.Now().Add(r.cfg.AttemptTimeout)))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err // stopped meanwhile: an attempt that is not begun is not counted
	}
	r.meta.Attempts++
	start := time.Now()
	resp, err := r.Providers[r.target.Provider].Call(ctx, provider.Request{Op: r.Request.Op, ModelID: r.modelID(), Body: r.Request.Body})
	r.meta.Provided += time.Since(start)
	return resp, err
}

// decide turns what the attempt gave into the end of the run.
func (r *run) decide(ctx context.Context, k *keeper, resp *provider.Response, err error) Verdict {
	if err == nil {
		return r.finish(ctx, llmq.Result{Reply: &llmq.Reply{Status: resp.Status, ContentType: resp.ContentType, Body: resp.Body}}, capacity.OK)
	}
	if k.lost() != nil {
		// Ours no more: the new owner's result will stand. The slot lapses with the socket closed.
		r.log.Warn("attempt cancelled", "error", k.lost())
		r.abandonSlot(context.WithoutCancel(ctx))
		return Verdict{Action: Leave, Reason: reasonLost}
	}
	now := time.Now()
	late := !now.Before(r.Request.Deadline)
	stopped := ctx.Err() != nil || (!r.Limit.IsZero() && !now.Before(r.Limit))
	if stopped && !late && r.meta.Attempts < mostCut {
		return r.interrupted(ctx)
	}
	ending, failure := capacity.Failed, llmq.Errorf(llmq.CodeInternal, "the attempt failed").Because(err)
	if pe, ok := errors.AsType[*provider.Error](err); ok {
		if pe.Class == provider.Throttle {
			ending = capacity.Throttled
		}
		failure = r.explain(pe)
	}
	if late || stopped || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, llmq.CodeTimeout) {
		failure = llmq.Errorf(llmq.CodeTimeout, "%s did not answer in time", r.target).Because(err)
	}
	return r.finish(ctx, llmq.Result{Err: failure}, ending)
}

// mostCut is how many attempts of a call may be cut off by the end of the process that
// makes them. Each is paid for, and what did not fit twice will hardly fit a third time.
const mostCut = 2

// shortestRelease is how long a message stays away at least whose claim is given back after
// it: one that came back at once would find the claim held, and wait for its lease.
const shortestRelease = time.Second

// interrupted hands an attempt back that this process has no time left for.
func (r *run) interrupted(ctx context.Context) Verdict {
	r.abandonSlot(context.WithoutCancel(ctx))
	return Verdict{Action: Release, After: shortestRelease, Reason: reasonOutOfTime, Defer: r.deferClaim(shortestRelease)}
}

// explain words a provider's failure for the caller.
func (r *run) explain(pe *provider.Error) *llmq.Error {
	said := pe.Message
	if said == "" {
		said = fmt.Sprintf("status %d", pe.Status)
		if pe.Status == 0 {
			said = "no answer"
		}
	}
	return llmq.Errorf(pe.Code, "%s: %s", r.target, said).After(pe.RetryAfter).Because(pe)
}

// sleepUntil reports false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
