package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

const (
	// finishTimeout bounds the tries to store a result, spillTimeout what follows where they failed. Together
	// they are within what an invocation keeps back of its time for them (worker.Margin).
	finishTimeout = 4 * time.Second
	spillTimeout  = 3 * time.Second
	// finishPause is the first pause between two tries; each further one is longer, up to finishMostPause.
	finishPause     = 200 * time.Millisecond
	finishMostPause = time.Second
)

// finish stores the result, wakes its waiters and returns the slot, in one round trip.
// It outlives the call's own context, since a deadline that passed must be told too.
func (r *run) finish(ctx context.Context, res llmq.Result, spent capacity.Outcome) Verdict {
	ctx = context.WithoutCancel(ctx)
	storing, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	res.RID, res.Tenant, res.BodyHash = r.Request.RID(), r.Request.Tenant, r.hash
	if res.Err != nil {
		res.Err.Meta = r.meta
		r.logFailure(ctx, res.Err)
	} else {
		res.Reply.Meta = r.meta
	}
	r.result = &res
	stored, inside, err := r.Results.Encode(storing, res, r.claim.Kept)
	if inside != nil {
		r.log().Error("body store failed; the reply lies in the state store", "bytes", len(stored), "error", inside)
	}
	if err != nil {
		r.log().Error("result not stored", "error", err)
		r.settleSlot(ctx, spent)
		return Verdict{Action: Leave, Reason: ReasonStoreUnavailable}
	}
	v, err := r.storeResult(storing, stored, res.Err, spent)
	if err == nil {
		return v
	}
	r.unstored(stored, res, spent, err)
	if res.Reply == nil {
		return v
	}
	spilling, cancel := context.WithTimeout(ctx, spillTimeout)
	defer cancel()
	return r.spill(spilling, stored, spent)
}

// storeResult stores what is encoded, in as many tries as there is time for. failure is what it tells of, or nil for a reply. The
// error is the last one of a store that can't be reached.
func (r *run) storeResult(ctx context.Context, stored []byte, failure *llmq.Error, spent capacity.Outcome) (Verdict, error) {
	isCancel := failure != nil && failure.Code == llmq.CodeCancelled
	for pause := finishPause; ; pause = min(2*pause, finishMostPause) {
		hold, err := r.store(ctx, stored, isCancel, spent)
		switch {
		case err == nil && hold == claims.Kept:
			if isCancel {
				return Verdict{Action: Stored, Reason: reasonCancelled}, nil
			}
			r.countFallback()
			return Verdict{Action: Stored, Reason: string(spent.Ending)}, nil
		case err == nil && hold == claims.Cancelled && !isCancel:
			r.logSpent(reasonCancelled, spent)
			return r.finish(ctx, llmq.Result{Err: cancelled()}, spent), nil // the slot has gone back
		case err == nil:
			r.result = nil
			r.log().Warn("result dropped: another owner has the claim")
			if !isCancel {
				r.logSpent(reasonLost, spent)
			}
			return Verdict{Action: Leave, Reason: reasonLost}, nil
		case !sleepUntil(ctx, time.Now().Add(pause)):
			return Verdict{Action: Leave, Reason: ReasonStoreUnavailable}, err
		}
	}
}

// unstored notes what the store was not told: this process says it once it hears the store again.
func (r *run) unstored(stored []byte, res llmq.Result, spent capacity.Outcome, err error) {
	r.storeFailed("finish", err)
	r.oweResult(stored, res.Err != nil && res.Err.Code == llmq.CodeCancelled)
	r.oweSlots(r.dropSlot(), spent)
}

// store is one try. A slot whose return was not seen is kept for the next, since a repeat changes nothing.
func (r *run) store(ctx context.Context, stored []byte, isCancel bool, spent capacity.Outcome) (claims.Hold, error) {
	var b luascript.Batch
	finished := r.endClaim(&b, stored, isCancel)
	given, left := r.give(&b, r.heldSlot(), spent), r.leave(&b)
	if err := b.Run(ctx, r.Valkey); err != nil {
		return claims.Lost, err
	}
	given()
	left()
	r.dropSlot()
	return finished()
}

// endClaim adds the end of the claim to a batch: a dead one where the message lies in the dead-letter queue.
func (r *run) endClaim(b *luascript.Batch, stored []byte, isCancel bool) luascript.Pending[claims.Hold] {
	if r.buried && !isCancel {
		return r.Claims.Bury(b, r.claim, stored)
	}
	return r.Claims.Finish(b, r.claim, stored, isCancel)
}

// countFallback counts a call that has ended at another target than its first.
func (r *run) countFallback() {
	if r.meta.Fallback && r.meta.Attempts > 0 {
		r.Metrics.Count(telemetry.Fallback, telemetry.Labels{Model: r.Request.Model.Alias, Step: r.meta.Model + "@" + r.meta.Target}, 1)
	}
}

// logSpent says what was paid for a result that nobody gets: it is recorded nowhere else. An attempt that was
// cut off may cost all that was reserved.
func (r *run) logSpent(why string, o capacity.Outcome) {
	h := r.paid
	if h == nil || o.Tokens == 0 {
		return
	}
	attrs := []any{"reason", why, "provider", h.ask.target.Provider, "target", h.ask.target.String(), "reserved_tokens", h.ask.tokens(), "attempts", r.meta.Attempts}
	if o.Tokens != capacity.Unknown {
		attrs = append(attrs, "charged_tokens", o.Tokens)
	}
	if r.usage != nil {
		attrs = append(attrs, "input_tokens", r.usage.Input+r.usage.CacheWrite, "output_tokens", r.usage.Output)
	}
	r.log().Warn("reply_dropped", attrs...)
}

// logFailure says why a call failed, without what the provider said: it may quote the prompt.
func (r *run) logFailure(ctx context.Context, failure *llmq.Error) {
	attrs := []slog.Attr{slog.String("code", string(failure.Code)), slog.String("target", r.meta.Model+"@"+r.meta.Target), slog.Int("attempts", r.meta.Attempts)}
	if failure.Err != nil {
		attrs = append(attrs, causes(failure.Err)...)
	}
	r.log().LogAttrs(ctx, slog.LevelInfo, "call_failed", attrs...)
}
