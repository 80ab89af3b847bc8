package engine

import (
	"errors"
	"strconv"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// beginSpan begins the span of the attempt that was just counted.
func (r *run) beginSpan(t llmq.Target) tracing.Span {
	if r.Traces == nil {
		return tracing.Span{}
	}
	return r.Traces.Attempt(r.Request, tracing.Attempt{Target: t, ModelID: r.modelID(t), Number: r.meta.Attempts, Fallback: r.meta.Fallback, Direct: r.Direct})
}

// endSpan ends it.
func (r *run) endSpan(span tracing.Span, resp *provider.Response, err error) {
	if r.Traces == nil {
		return
	}
	a := tracing.Answer{Failure: failureType(err)}
	if pe, ok := errors.AsType[*provider.Error](err); ok {
		a.Status = pe.Status
	}
	if err == nil {
		a.Status = resp.Status
		if u := resp.Usage; u != nil {
			a.Input, a.Output = u.Input+u.CacheWrite, u.Output
		}
		if r.Request.Op.Wire() == llmq.WireOpenAI {
			a.Reply = resp.Body
		}
	}
	span.Attempted(a)
}

// failureType is what kind of failure an attempt came to, without a word that is the provider's own: its error's name where that is a known
// one, else its status, else our name for what came.
func failureType(err error) string {
	if err == nil {
		return ""
	}
	if pe, ok := errors.AsType[*provider.Error](err); ok {
		if kind := provider.KnownKind(pe.Kind); kind != "" {
			return kind
		}
		if pe.Status != 0 {
			return strconv.Itoa(pe.Status)
		}
	}
	return outcomeOf(err).String()
}
