package engine

import (
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// A request is poison when its workers die of it, or when it fails however often it is tried. Both are counted by the
// claim, apart from each other and from releases, which count for nothing. Poison is dead-lettered: first its message goes
// to the dead-letter queue, then its caller is told. The other way round a worker that died in between would leave an
// end, and no message to try again.

const (
	// mostTakeovers is how many workers may die over one request: what kills them, too much
	// memory say, would kill the next as well.
	mostTakeovers = 5
	// buryTimeout bounds the send to the dead-letter queue. It and what follows are within worker.Margin.
	buryTimeout = 3 * time.Second
)

// poison ends a request that must not be tried once more. It reports false for any other.
func (r *run) poison(ctx context.Context) (Verdict, bool) {
	switch {
	case r.claim.Takeovers >= mostTakeovers:
		return r.bury(ctx, llmq.Errorf(llmq.CodeWorkerCrash, "%d workers ended while they ran the request", r.claim.Takeovers), cutOff()), true
	case r.poisonous(): // its message could not be dead-lettered in its last run
		code := llmq.CodeProviderError
		if r.Request.Op == llmq.OpJob {
			code = llmq.CodeJobFailed
		}
		return r.bury(ctx, llmq.Errorf(code, "%d attempts failed, the last one as %s", r.come().Failed, outcome(r.come().Last)), cutOff()), true
	}
	return Verdict{}, false
}

// poisonous reports whether the request has failed too often.
func (r *run) poisonous() bool {
	return r.cfg.MaxReceives > 0 && r.come().Failed >= r.cfg.MaxReceives
}

// bury puts the message into the dead-letter queue and then ends the request. Where the queue does not take it, the message comes
// back for another try, as long as there is time for one.
func (r *run) bury(ctx context.Context, why *llmq.Error, spent capacity.Outcome) Verdict {
	if r.Bury == nil {
		return r.finish(ctx, llmq.Result{Err: why}, spent)
	}
	ctx = context.WithoutCancel(ctx)
	r.settleSlot(ctx, spent) // nobody else is to wait for that
	sending, cancel := context.WithTimeout(ctx, buryTimeout)
	defer cancel()
	err := r.Bury(sending, Letter{Why: why, Attempts: r.come().Attempts, Class: outcome(r.come().Last).String()})
	if err != nil {
		r.log().Error("not dead-lettered", "reason", string(why.Code), "error", err)
		if after := jitter(5*time.Second, 15*time.Second); r.window().InTime(after) {
			return Verdict{Action: Release, After: after, Reason: reasonUnburied, Defer: r.deferClaim(after)}
		}
	}
	r.buried = err == nil
	v := r.finish(ctx, llmq.Result{Err: why}, spent)
	if v.Action == Stored && v.Reason != reasonCancelled {
		v.Reason = string(why.Code)
	}
	v.KeepBody = r.buried
	return v
}

// lose ends a request whose body is gone under the hash that its id stands for, since nobody can take it any more. Where the store
// knows of none, nobody waits for it, and its message is only refused.
func (r *run) lose(ctx context.Context) Verdict {
	var b luascript.Batch
	stands := r.Claims.Stands(&b, r.Request)
	err := b.Run(ctx, r.Valkey)
	if err == nil {
		r.hash, err = stands()
	}
	switch {
	case capacity.IsMisfit(err):
		return r.misfit(ctx, err)
	case err != nil:
		return r.storeDown("lost body", err)
	case r.hash == "":
		return refuse(r.Lost)
	}
	return r.endBuried(ctx, r.Lost)
}

// endBuried takes a request to end it without an attempt, as one whose message is kept in the dead-letter queue.
func (r *run) endBuried(ctx context.Context, why *llmq.Error) Verdict {
	if out, over := r.begin(ctx, false); over {
		return out
	}
	if r.claim.Cancelled {
		return r.finish(ctx, llmq.Result{Err: cancelled()}, cutOff())
	}
	if out, over := r.recoverReply(ctx); over {
		return out
	}
	return r.bury(ctx, why, cutOff())
}

// seclude gives the request back until nothing else runs in this process. What has killed a worker may kill the next one, and
// each claim that lapses with it is a takeover more: so neither does it run beside others, nor does it hold its
// claim while it waits for one that may kill. It reports true when the run is over, with what to do.
func (r *run) seclude(ctx context.Context) (Verdict, bool) {
	var b luascript.Batch
	h := r.dropSlot()
	given, left := r.give(&b, h, cutOff()), r.leave(&b)
	r.Claims.Defer(&b, r.claim, 0, r.come()) // whatever the answer, the next take tells who has it
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.oweSlots(h, cutOff())
		r.oweDefer(time.Now())
		return r.storeDown("seclusion", err), true
	}
	given()
	left()
	r.asked++ // what is asked for later is another admission, with a wait of its own
	r.owns, r.answer, r.givesUp = false, nil, time.Time{}
	if r.Alone == nil {
		return Verdict{Action: Release, Reason: reasonNotAlone}, true
	}
	waiting, cancel := context.WithDeadline(ctx, r.bound(r.Request.Deadline))
	defer cancel()
	switch {
	case r.Alone(waiting, r.claim.Takeovers):
		return Verdict{}, false
	case !time.Now().Before(r.Request.Deadline):
		return r.overdue(ctx), true
	}
	return Verdict{Action: Release, After: jitter(shortestRelease, 5*time.Second), Reason: reasonNotAlone}, true // spread over processes
}
