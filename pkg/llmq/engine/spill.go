package engine

import (
	"context"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// A reply that the state store does not take is paid for all the same. It is put in the body store with the fence it was
// paid for under, and the message goes back; whoever takes the claim over looks there before it pays (DS37). The claim
// is left to lapse, so that the next take is a takeover: no other looks, and an ordinary call asks the body store nothing.
//
// An error is not kept so. To find it out again costs a try at most, and may come out better.

// spill puts a reply aside and hands its message back. ctx may be at its end.
func (r *run) spill(ctx context.Context, stored []byte, spent capacity.Outcome) Verdict {
	err := r.Results.Spill(context.WithoutCancel(ctx), r.Request, results.Spilled{Stored: stored, Fence: r.claim.Fence})
	if err != nil {
		// Two stores are down. What is still in memory may be told by a later run; nothing promises it.
		r.log.Error("reply not stored", "error", err)
		r.logSpent(ReasonStoreUnavailable, spent)
		return Verdict{Action: Leave, Reason: ReasonStoreUnavailable}
	}
	r.log.Info("reply_spilled", "fence", r.claim.Fence, "bytes", len(stored))
	return backWithoutStore()
}

// recoverReply ends the request with a reply that an earlier owner paid for and could not store. It reports false where there
// is none: then, and where the body store does not say, the request is run.
func (r *run) recoverReply(ctx context.Context) (Verdict, bool) {
	if r.claim.Takeovers == 0 {
		return Verdict{}, false
	}
	found, err := r.Results.Spilled(ctx, r.Request, r.hash)
	switch {
	case err != nil:
		r.log.Warn("spilled reply not read", "error", err)
		return Verdict{}, false
	case found == nil:
		return Verdict{}, false
	case found.Fence >= r.claim.Fence:
		// Fences count up, so this one is of a store that was emptied since: nobody knows what came after it.
		r.log.Warn("spilled reply ignored", "fence", found.Fence, "claim", r.claim.Fence)
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

// recovered notes that the reply of an earlier owner is stored, and drops it where it was put aside.
func (r *run) recovered(ctx context.Context, v Verdict) Verdict {
	if v.Reason == reasonRecovered {
		r.log.Info("reply_recovered", "fence", r.claim.Fence, "takeovers", r.claim.Takeovers)
	}
	if err := r.Results.DropSpill(ctx, r.Request); err != nil {
		r.log.Warn("spilled reply not deleted", "error", err) // the bucket's rule deletes it
	}
	return v
}

// lateReply is the stored form of a reply that an earlier owner paid for and could not store, of a request whose deadline has
// passed meanwhile; nil where there is none. Who asks by the id gets what was paid for.
func (r *run) lateReply(ctx context.Context) []byte {
	if r.owns || r.claim.Takeovers == 0 {
		return nil
	}
	found, err := r.Results.Spilled(ctx, r.Request, r.hash)
	if err != nil {
		r.log.Warn("spilled reply not read", "error", err)
		return nil
	}
	if found == nil || found.Fence > r.claim.Fence { // a later fence is of a store that was emptied since
		return nil
	}
	return found.Stored
}
