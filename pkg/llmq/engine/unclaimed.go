package engine

import (
	"context"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
)

// RunUnclaimed runs a request for which the state store can give neither a claim nor a slot (FEATURES D11). Its caller waits right
// here, and nobody else can know its id: so nothing can run it twice. Each step of its chain whose target may be called
// unseen gets one attempt, and nothing is slept for. It reports false where there is no such step.
func (e *Engine) RunUnclaimed(ctx context.Context, q llmq.Request, may func(llmq.Target) bool) (llmq.Result, bool) {
	r := e.newRun(ctx, Call{Request: q, Direct: true})
	chain, err := r.began.Fallback.Chain(r.began.Catalogue, fallback.Ask{Model: q.Model, Op: q.Op, Policy: q.Fallback}, r.mayUse)
	if err != nil {
		return r.unclaimed(llmq.Result{Err: llmq.AsError(err)}), true
	}
	r.traceStarted()
	r.chain = slices.DeleteFunc(chain, func(s fallback.Step) bool { return s.RequireHeadroom || !may(s.Target) })
	if len(r.chain) == 0 {
		return llmq.Result{}, false
	}
	for {
		resp, err := r.attempt(ctx)
		if err == nil {
			return r.unclaimed(llmq.Result{Reply: &llmq.Reply{Status: resp.Status, ContentType: resp.ContentType, Body: resp.Body}}), true
		}
		came := outcomeOf(err)
		r.remember(came, r.explain(came, err))
		next, more := r.nextStep()
		switch {
		case rules[came].then == theEnd, ctx.Err() != nil, !r.window().InTime(0):
			return r.unclaimed(llmq.Result{Err: r.failure}), true
		case !more:
			return r.unclaimed(llmq.Result{Err: r.exhausted()}), true
		}
		r.enter(next, true)
	}
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
