package engine

import (
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// begin takes the claim and, where wanted, asks for a slot of the first step, in one round
// trip. It reports true when the run is over, with what to do.
func (r *run) begin(ctx context.Context, wantSlot bool) (Verdict, bool) {
	began := time.Now()
	var b luascript.Batch
	takes := r.Claims.Take(&b, r.Request, r.hash, r.owner)
	var admits luascript.Pending[admission]
	var asked ask
	if wantSlot {
		asked = r.ask()
		admits = r.gate.admit(&b, asked)
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		v := r.storeDown("begin", err)
		if take, takeErr := takes(); takeErr == nil { // only the slot's node failed
			v = r.giveBack(ctx, take, v)
		} else {
			r.oweBegin()
		}
		return v, true
	}
	paid := r.payDebts(ctx, began)
	take, err := takes()
	if err != nil {
		if wantSlot {
			if a, unadmitted := admits(); unadmitted == nil {
				r.admit(asked, a)
			}
			r.abandonSlot(ctx)
		}
		if capacity.IsMisfit(err) {
			return r.misfit(ctx, err), true
		}
		return r.storeDown("take", err), true
	}
	if wantSlot {
		a, err := admits()
		if err != nil {
			r.unadmitted(ctx, asked, err)
			return r.giveBack(ctx, take, backWithoutStore()), true
		}
		r.answer = r.admit(asked, a)
	}
	r.claim = take.Claim
	switch take.State {
	case claims.Taken:
		r.taken(ctx, wantSlot)
		return Verdict{}, false
	case claims.Stored:
		r.abandonSlot(ctx)
		return Verdict{Action: Stored, Reason: "already_stored"}, true
	case claims.Buried:
		r.abandonSlot(ctx)
		return Verdict{Action: Stored, Reason: reasonBuried, KeepBody: true}, true
	case claims.Outdated:
		r.abandonSlot(ctx)
		return outdated(), true
	case claims.Busy:
		r.abandonSlot(ctx)
		if paid { // it may have been a claim of nobody's
			r.answer = nil
			return r.begin(ctx, wantSlot)
		}
		return Verdict{Action: Release, After: take.Wait, Reason: ReasonBusy}, true
	case claims.Expired:
		r.abandonSlot(ctx)
		if r.chain != nil {
			r.resume() // the end tells what was tried
		}
		return r.expire(ctx), true
	case claims.Mismatch:
		// The result under this id is the other request's, so nothing is stored.
		r.abandonSlot(ctx)
		return r.mismatch(), true
	default:
		r.abandonSlot(ctx)
		return Verdict{Action: Release, After: take.Wait, Reason: reasonDeferred}, true
	}
}

// taken takes the request up where it was left. A slot of the first step is of no use to
// one that has left it: only the claim knows that, so one more round trip changes it for the right one.
func (r *run) taken(ctx context.Context, wantSlot bool) {
	r.owns = true
	r.ahead.Store(true)
	if !r.QueuedAt.IsZero() {
		r.meta.QueueWait = max(0, time.Since(r.QueuedAt))
	}
	if r.chain == nil {
		r.advance(func(p *claims.Progress) { *p = r.claim.Progress })
		r.meta.Takeovers = r.claim.Takeovers
		r.traceStarted()
		return
	}
	r.resume()
	r.traceStarted()
	if r.come().Step != 0 && wantSlot {
		r.changeSlot(ctx)
	}
}

// changeSlot gives back what was got for the first step and asks for the current one, in one round trip.
func (r *run) changeSlot(ctx context.Context) {
	var b luascript.Batch
	h := r.dropSlot()
	given, left := r.give(&b, h, cutOff()), r.leave(&b)
	r.answer = nil
	done := r.admitNow(&b)
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.storeFailed("change of slot", err)
		r.oweSlot(h, cutOff())
		return // the other is asked for again
	}
	given()
	left()
	done()
}

// outdated lets a message go whose request was sent again from the dead-letter queue since: the later generation's
// message carries it to its end.
func outdated() Verdict { return Verdict{Action: Stored, Reason: reasonOutdated, KeepBody: true} }

// refuse keeps a message from being run.
func refuse(why *llmq.Error) Verdict {
	return Verdict{Action: Refuse, Reason: string(why.Code), Err: why}
}

func (r *run) mismatch() Verdict {
	return refuse(llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id %q was used before for another body, model or operation", r.Request.ID))
}

// storeDown hands the message back when the state store did not answer. What it may have granted is owed, or
// lapses by itself.
func (r *run) storeDown(doing string, err error) Verdict {
	r.storeFailed(doing, err)
	return backWithoutStore()
}

const (
	// misfitLeast is the first pause of a request one of whose keys has a wrong type, misfitMost the longest: only somebody's hand mends
	// that, and each look is a line in the log.
	misfitLeast = 2 * time.Second
	misfitMost  = 5 * time.Minute
	// misfitFor is how long after its deadline such a message is kept. Then nobody waits for its end any more, which can't be stored.
	misfitFor = time.Hour
)

// misfit hands a message back one of whose request's keys has a wrong type: each time for longer, until somebody has deleted it. An hour after
// its deadline it is acknowledged where its end is stored, else it is a dead letter, which is sent again once the key is gone.
func (r *run) misfit(ctx context.Context, err error) Verdict {
	if time.Since(r.Request.Deadline) >= misfitFor && !r.Direct {
		var b luascript.Batch
		done := r.Claims.Done(&b, r.Request)
		if lost := b.Run(ctx, r.Valkey); lost != nil {
			return r.storeDown("misfit", lost)
		}
		if ended, _ := done(); ended { // where the claim is of the wrong type, it tells nothing
			return Verdict{Action: Stored, Reason: "already_stored", KeepBody: true}
		}
		return refuse(llmq.Errorf(llmq.CodeConfiguration, "a key of the request in the state store has a wrong type, and its end could not be stored"))
	}
	r.log().Warn("a key of the request has a wrong type", "error", err, "keys", "llmq:*:{"+string(r.Request.RID())+"}",
		"next_step", "delete the one of clm, sub and res that is not of its type: hash, hash, string")
	after := misfitMost
	if n := max(r.Receives-1, 0); n < 8 {
		after = min(misfitLeast<<n, misfitMost)
	}
	return Verdict{Action: Release, After: after, Reason: reasonMisfit}
}

func backWithoutStore() Verdict {
	return Verdict{Action: Release, After: jitter(2*time.Second, 8*time.Second), Reason: ReasonStoreUnavailable}
}

// giveBack adds the claim's return to a release.
func (r *run) giveBack(ctx context.Context, take claims.Take, v Verdict) Verdict {
	if take.State == claims.Taken {
		r.claim = take.Claim
		r.advance(func(p *claims.Progress) { *p = take.Claim.Progress })
		v.Defer = r.deferClaim(v.After)
	}
	r.abandonSlot(ctx)
	return v
}

// deferClaim makes the function that gives the claim back. The message's visibility
// is changed first: the other way round a duplicate could come back too early and
// find the claim free.
func (r *run) deferClaim(after time.Duration) func(context.Context) {
	free := time.Now().Add(after)
	return func(ctx context.Context) {
		var b luascript.Batch
		deferred := r.Claims.Defer(&b, r.claim, after, r.come())
		if err := b.Run(ctx, r.Valkey); err != nil {
			r.storeFailed("defer", err)
			r.oweDefer(free)
			return
		}
		hold, err := deferred()
		switch {
		case hold == claims.Cancelled: // meanwhile: its waiters need not wait for the message
			r.finish(ctx, llmq.Result{Err: cancelled()}, cutOff())
		case err != nil:
			r.storeFailed("defer", err)
		case hold != claims.Kept:
			r.log().Warn("claim not deferred", "hold", hold)
		}
	}
}
