package engine

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// ending is how the work on a request ended: with a result, a release, or the deadline.
type ending struct {
	result  llmq.Result      // beside a release: where there is no time for one
	slot    capacity.Outcome // of the attempt, where its slot is held
	release *Verdict         // hand it back: After and Reason
	expire  bool             // the deadline passed before any attempt
	poison  bool             // it failed too often: result tells how
}

// shortestRelease is how long a message stays away at least whose claim is given back after
// it: one that came back at once would find the claim held, and wait for its lease.
const shortestRelease = time.Second

// conclude does what the end of the work asks for. It outlives the call's own context.
func (r *run) conclude(ctx, work context.Context, end ending) Verdict {
	switch why := stopOf(work); {
	case errors.Is(why, errCancelled):
		r.logSpent(reasonCancelled, end.slot)
		return r.finish(ctx, llmq.Result{Err: cancelled()}, end.slot)
	case why != nil && end.result.Reply == nil:
		// Ours no more: the new owner's result will stand. The slot goes back, for its socket is closed.
		r.log().Warn("gave up", "error", why)
		r.logSpent(reasonLost, end.slot)
		r.settleSlot(context.WithoutCancel(ctx), end.slot)
		return Verdict{Action: Leave, Reason: reasonLost}
	case end.expire:
		return r.expire(ctx)
	case end.poison:
		return r.bury(ctx, end.result.Err, end.slot)
	case end.release != nil && r.tooLate(end.release.After):
		if end.result.Err == nil {
			end.result = r.late().result
		}
	case end.release != nil:
		r.settleSlot(context.WithoutCancel(ctx), end.slot)
		after := max(end.release.After, shortestRelease)
		if r.AtOnce && end.release.Reason == reasonNoCapacity {
			after = 0 // there is no message yet that could come too early
		}
		return Verdict{Action: Release, After: after, Reason: end.release.Reason, Defer: r.deferClaim(after)}
	}
	return r.finish(ctx, end.result, end.slot)
}

// tooLate reports whether a request that was tried has no time for another try after a release: it ends
// at once. One that never was has its deadline told by the store, which says that nothing was paid.
func (r *run) tooLate(after time.Duration) bool {
	return r.come().Attempts > 0 && !r.window().InTime(max(after, shortestRelease))
}

// expire ends a request by its deadline. Whether that has passed is for the store's
// clock to say; where it is a moment ahead, the moment is waited for by whoever has the claim.
func (r *run) expire(ctx context.Context) Verdict {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	why := r.unanswered()
	why.Meta = r.meta
	stored, err := llmq.EncodeResult(llmq.Result{RID: r.Request.RID(), Tenant: r.Request.Tenant, BodyHash: r.hash, Err: why}, nil)
	if err != nil {
		r.log().Error("result not stored", "error", err)
		return Verdict{Action: Leave, Reason: ReasonStoreUnavailable}
	}
	late := r.lateReply(ctx)
	if late != nil {
		stored = late
	}
	for {
		got, err := r.tryExpire(ctx, stored)
		switch {
		case err != nil:
			return r.storeDown("expire", err)
		case got.State == claims.Ended && late != nil:
			return r.recovered(ctx, Verdict{Action: Stored, Reason: reasonRecovered})
		case got.State == claims.Early && r.owns && got.Wait <= 2*leastTime && sleepUntil(ctx, time.Now().Add(got.Wait)):
			continue
		}
		return r.expired(ctx, got, why)
	}
}

// unanswered words the end of a request whose deadline has passed without one. It has expired only where nothing was paid for it:
// a worker that died over it may have called a provider, and what was tried was (DS15).
func (r *run) unanswered() *llmq.Error {
	switch attempts := max(r.come().Attempts, r.claim.Progress.Attempts); {
	case r.claim.Takeovers > 0:
		return llmq.Errorf(llmq.CodeTimeout, "the deadline passed after a worker had died over the request; its provider may have been called, and no reply was kept")
	case attempts > 0:
		return llmq.Errorf(llmq.CodeTimeout, "the deadline passed before the request could be tried again; %d attempts were made", attempts)
	}
	return llmq.Errorf(llmq.CodeExpired, "the deadline passed before the request was begun; no provider was called")
}

// tryExpire asks once, and returns a slot that is held.
func (r *run) tryExpire(ctx context.Context, stored []byte) (claims.Expiry, error) {
	var b luascript.Batch
	expires := r.Claims.Expire(&b, r.Request, r.hash, r.owner, stored)
	h := r.dropSlot()
	given, left := r.give(&b, h, cutOff()), r.leave(&b)
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.oweSlots(h, cutOff())
		return claims.Expiry{}, err
	}
	given()
	left()
	return expires()
}

// expired says what the answer to an expiry makes of the message.
func (r *run) expired(ctx context.Context, got claims.Expiry, why *llmq.Error) Verdict {
	switch got.State {
	case claims.Ended:
		r.result = &llmq.Result{Err: why}
		r.logFailure(ctx, why)
		return Verdict{Action: Stored, Reason: string(why.Code)}
	case claims.HasEnded:
		return Verdict{Action: Stored, Reason: "already_stored", KeepBody: true} // it may be a dead one
	case claims.Running:
		return Verdict{Action: Release, After: got.Wait, Reason: ReasonBusy}
	case claims.OtherBody:
		return r.mismatch()
	case claims.IsOutdated:
		return outdated()
	case claims.IsCancelled:
		return r.end(ctx, cancelled())
	default: // this process's clock is ahead
		v := Verdict{Action: Release, After: max(got.Wait, shortestRelease), Reason: reasonEarly}
		if r.owns {
			v.Defer = r.deferClaim(v.After)
		}
		return v
	}
}
