package engine

import (
	"context"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
)

// nextStep is the step after the current one that is not over yet, in a ring: one that was passed by for
// want of a slot may still serve.
func (r *run) nextStep() (int, bool) {
	p := r.come()
	for i := 1; i < len(r.chain); i++ {
		n := (p.Step + i) % len(r.chain)
		if p.Spent>>n&1 == 0 {
			return n, true
		}
	}
	return 0, false
}

// enter makes n the current step. The one that is left is over where it is spent, or has been
// tried: no step gets its tries twice.
func (r *run) enter(n int, spent bool) {
	r.advance(func(p *claims.Progress) {
		if spent || p.Tries > 0 {
			p.Spent |= 1 << p.Step
		}
		p.Step, p.Tries, p.Throttled = n, 0, 0
	})
	r.traceStep()
}

// goOn leaves the current step for the next one, with a slot of it asked for in the round trip that returns
// the old one's, or ends the request with its failure where there is no step or no time.
func (r *run) goOn(ctx context.Context, o capacity.Outcome) *ending {
	next, more := r.nextStep()
	if !more || !r.window().InTime(0) {
		return &ending{result: llmq.Result{Err: r.exhausted()}, slot: o}
	}
	r.enter(next, true)
	switch {
	case r.stopped():
		return drained(0, o)
	case !r.window().Here(0):
		return &ending{release: &Verdict{After: shortestRelease, Reason: reasonOutOfTime}, slot: o}
	}
	r.turn(ctx, o, r.admitNow)
	return nil
}

// pass leaves a step that can never serve the request, without an attempt.
func (r *run) pass(why *llmq.Error) *ending {
	r.point()
	r.remember(targetFatal, why)
	next, more := r.nextStep()
	if !more {
		return &ending{result: llmq.Result{Err: r.exhausted()}, slot: cutOff()}
	}
	r.enter(next, true)
	return nil
}

// exhausted is the failure that a chain ends with. It names the steps that the key barred, for with them the
// call might have ended otherwise.
func (r *run) exhausted() *llmq.Error {
	if len(r.barred) == 0 {
		return r.failure
	}
	e := *r.failure
	e.Message = strings.TrimSuffix(e.Message, ".") + "; skipped, for the key may not use it: " + strings.Join(r.barred, ", ")
	return &e
}
