package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// errNotBegun says that no attempt was made, since the work had been stopped.
var errNotBegun = errors.New("the work was stopped before the attempt")

// attempt sends the request once to the current step's target, bounded by every deadline there is.
func (r *run) attempt(ctx context.Context) (*provider.Response, error) {
	end := time.Now().Add(r.attemptTimeout())
	if r.Request.Stream { // its pace is what is bounded
		end = r.Request.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, r.bound(end))
	defer cancel()
	if ctx.Err() != nil {
		return nil, errNotBegun // an attempt that is not begun is not counted
	}
	r.point()
	target := r.target()
	r.advance(func(p *claims.Progress) { p.Attempts++; p.Tries++ })
	r.useSlot()
	if !r.ahead.Load() {
		r.look() // the claim counts it at once, should this worker die
	}
	span := r.beginSpan(target)
	start := time.Now()
	resp, err := r.exchange(ctx, target)
	took := time.Since(start)
	r.endSpan(span, resp, err)
	r.advance(func(p *claims.Progress) { p.Provided += took })
	r.traceAttempt(err, took)
	return resp, err
}

func (r *run) exchange(ctx context.Context, t llmq.Target) (*provider.Response, error) {
	p, req := r.Providers[t.Provider], r.attemptOf(t)
	if r.Request.Stream {
		return r.stream(ctx, p, req)
	}
	return p.Call(ctx, req)
}

// attemptOf is what a target's provider is asked.
func (r *run) attemptOf(t llmq.Target) provider.Request {
	return provider.Request{
		Op: r.Request.Op, ModelID: r.modelID(t), Body: r.Request.Body, Headers: r.Request.Headers,
		DefaultMaxOutput: t.Tokens.DefaultMaxTokens, Tier: t.Tier(r.Request.Lane),
		Tenant: r.Request.Tenant, ID: r.Request.ID, Attempt: r.come().Attempts, HostedTools: t.HostedTools,
	}
}

// explain words an attempt's failure for the caller.
func (r *run) explain(came outcome, err error) *llmq.Error {
	if came == hung {
		return llmq.Errorf(llmq.CodeTimeout, "%s did not answer in time", r.served()).Because(err)
	}
	pe, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return llmq.Errorf(llmq.CodeInternal, "the attempt failed").Because(err)
	}
	said := pe.Message
	if said == "" {
		said = fmt.Sprintf("status %d", pe.Status)
		if pe.Status == 0 {
			said = "no answer"
		}
	}
	why := llmq.Errorf(pe.Code, "%s: %s", r.served(), said).After(pe.RetryAfter).Because(pe)
	if own, ok := errors.AsType[*llmq.Error](pe.Err); ok { // ours, of the body
		why.Field = own.Field
	}
	return why
}

// served names the current step for the caller: a job by its function, for its target stands for all of them.
func (r *run) served() string {
	if r.Request.Op == llmq.OpJob {
		return r.Request.Model.String()
	}
	return r.target().String()
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
