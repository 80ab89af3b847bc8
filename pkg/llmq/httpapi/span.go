package httpapi

import (
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// beginSpan begins the span of a request from which a call was read; it counts from the request's begin. The call goes on below it. A door
// that serves its own process has no span of its own: the program's is the caller's.
func (h *Handler) beginSpan(x *exchange, r llmq.Request) llmq.Request {
	if isSomebody(h.program) {
		if own := tracing.FromContext(x.r.Context()); own != "" {
			r.Trace = own // its flag counts, as a stranger's does not
		}
		return r
	}
	x.span = h.traces.Door(x.r.Method, x.matched.Path, x.start, r)
	r.Trace = x.span.Trace(r.Trace)
	return r
}

// endSpan ends it.
func (x *exchange) endSpan() {
	var failure llmq.Code
	if x.err != nil {
		failure = x.err.Code
	}
	x.span.Answered(x.status, failure)
}
