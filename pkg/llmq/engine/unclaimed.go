package engine

import (
	"context"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
)

// Admit lets an attempt begin that nobody counts for all, or refuses it. Of one that was let begin, end is called with how it ended.
type Admit func(a capacity.Ask) (end func(capacity.Outcome), may bool)

// RunUnclaimed runs a request for which the state store can give neither a claim nor a slot (FEATURES C9, D11). Its caller waits right
// here, and nobody else can know its id: so nothing can run it twice. Each step of its chain whose attempt may begin
// gets one, and nothing is slept for. It reports false where no attempt might.
func (e *Engine) RunUnclaimed(ctx context.Context, q llmq.Request, admit Admit) (llmq.Result, bool) {
	r := e.newRun(ctx, Call{Request: q, Direct: true})
	chain, err := r.began.Fallback.Chain(r.began.Catalogue, fallback.Ask{Model: q.Model, Op: q.Op, Policy: q.Fallback}, r.mayUse)
	if err != nil {
		return r.unclaimed(llmq.Result{Err: llmq.AsError(err)}), true
	}
	r.chain = slices.DeleteFunc(chain, func(s fallback.Step) bool { return s.RequireHeadroom })
	for more := len(r.chain) > 0; more; {
		if end, may := admit(r.ask().capacity()); may {
			if r.come().Attempts == 0 {
				r.traceStarted()
			}
			if res, over := r.once(ctx, end); over {
				return r.unclaimed(res), true
			}
		}
		var next int
		if next, more = r.nextStep(); more {
			r.enter(next, true)
		}
	}
	if r.failure == nil {
		return llmq.Result{}, false
	}
	return r.unclaimed(llmq.Result{Err: r.exhausted()}), true
}

// once makes an attempt at the current step. It reports true where that ends the request.
func (r *run) once(ctx context.Context, end func(capacity.Outcome)) (res llmq.Result, over bool) {
	told := cutOff()
	defer func() { end(told) }() // a panic passes through
	resp, err := r.attempt(ctx)
	if err == nil {
		told = replied(r.target(), resp.Usage)
		return llmq.Result{Reply: &llmq.Reply{Status: resp.Status, ContentType: resp.ContentType, Body: resp.Body}}, true
	}
	came := outcomeOf(err)
	told = failed(came, err)
	r.remember(came, r.explain(came, err))
	return llmq.Result{Err: r.failure}, rules[came].then == theEnd || ctx.Err() != nil || !r.window().InTime(0)
}

// unclaimed tells how the request was served.
func (r *run) unclaimed(res llmq.Result) llmq.Result {
	r.result = &res
	r.traceEnd(Verdict{Action: Stored})
	r.countFallback()
	res.RID, res.Tenant, res.BodyHash = r.Request.RID(), r.Request.Tenant, r.hash
	if res.Err != nil {
		res.Err.Meta = r.meta
	} else {
		res.Reply.Meta = r.meta
	}
	return res
}
