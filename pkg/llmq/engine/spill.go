package engine

import (
	"context"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// A reply that the state store does not take is paid for all the same. It is put in the body store with the fence it was
// paid for under, and the message goes back; whoever takes the claim over looks there before it pays (DS37). The claim
// is left to lapse, so that the next take is a takeover, and an ordinary call asks the body store nothing. A store that comes
// back empty knows of no takeover; there the message tells that the request was seen before.
//
// An error is not kept so. To find it out again costs a try at most, and may come out better.

// spill puts a reply aside and hands its message back. ctx may be at its end.
func (r *run) spill(ctx context.Context, stored []byte, spent capacity.Outcome) Verdict {
	err := r.Results.Spill(context.WithoutCancel(ctx), r.Request, results.Spilled{Stored: stored, Fence: r.claim.Fence})
	if err != nil {
		// Two stores are down. What is still in memory may be told by a later run; nothing promises it.
		r.log().Error("reply not stored", "error", err)
		r.logSpent(ReasonStoreUnavailable, spent)
		return Verdict{Action: Leave, Reason: ReasonStoreUnavailable}
	}
	r.log().Info("reply_spilled", "fence", r.claim.Fence, "bytes", len(stored))
	return backWithoutStore()
}

// recoverReply ends the request with a reply that an earlier owner paid for and could not store. It reports false where there
// is none: then, and where the body store does not say, the request is run.
func (r *run) recoverReply(ctx context.Context) (Verdict, bool) {
	found := r.spilled(ctx)
	if found == nil {
		return Verdict{}, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	v, err := r.storeResult(ctx, found.Stored, nil, cutOff())
	if err != nil { // it lies where it was, for the next owner
		r.unstored(found.Stored, llmq.Result{}, cutOff(), err)
		return backWithoutStore(), true
	}
	if v.Action == Stored {
		if v.Reason != reasonCancelled {
			v.Reason = reasonRecovered
		}
		v = r.recovered(ctx, v)
	}
	return v, true
}

// spilled is what was put aside of the request, or nil. Its fence decides nothing: one that is not below the claim's is of a store
// that was emptied since, and the reply is the same request's all the same.
func (r *run) spilled(ctx context.Context) *results.Spilled {
	if r.claim.Takeovers == 0 && !r.forgotten() {
		return nil
	}
	found, err := r.Results.Spilled(ctx, r.Request, r.hash)
	if err != nil {
		r.log().Warn("spilled reply not read", "error", err)
	}
	return found
}

// forgotten reports whether the store may have been emptied since the request was taken last: its claim tells of no attempt, and
// of fewer takes than its message was received before. A call that only waited for a slot has a take for each, and one that
// comes for the first time never counts as forgotten.
func (r *run) forgotten() bool {
	takes := r.claim.Fence
	if r.owns {
		takes-- // its own
	}
	return r.claim.Progress.Attempts == 0 && takes < int64(r.Receives)-1
}

// recovered notes that the reply of an earlier owner is stored, and drops it where it was put aside.
func (r *run) recovered(ctx context.Context, v Verdict) Verdict {
	if v.Reason == reasonRecovered {
		r.log().Info("reply_recovered", "fence", r.claim.Fence, "takeovers", r.claim.Takeovers, "forgotten", r.claim.Takeovers == 0)
	}
	if err := r.Results.DropSpill(ctx, r.Request); err != nil {
		r.log().Warn("spilled reply not deleted", "error", err) // the bucket's rule deletes it
	}
	return v
}

// lateReply is the stored form of a reply that an earlier owner paid for and could not store, of a request whose deadline has
// passed meanwhile; nil where there is none. Who asks by the id gets what was paid for.
func (r *run) lateReply(ctx context.Context) []byte {
	if r.owns { // it was looked for before
		return nil
	}
	if found := r.spilled(ctx); found != nil {
		return found.Stored
	}
	return nil
}
