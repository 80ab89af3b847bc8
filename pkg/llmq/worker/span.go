package worker

import (
	"cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// traceOf is where a message's trace goes on: its envelope says it, else what its queue carried. What is none is ignored, whoever
// wrote it.
func traceOf(env llmq.Envelope, m *delivery) string {
	if t, ok := llmq.ParseTrace(env.Trace); ok {
		return t.String()
	}
	return m.Trace
}

// beginSpan begins the span of a message's handling, below which r goes on. What it returns ends the span.
func (w *Worker) beginSpan(m *delivery, r *llmq.Request) func(Outcome) {
	if w.Traces == nil {
		return untraced
	}
	span := w.Traces.Process(tracing.Delivery{Queue: string(m.Queue), MessageID: m.ID, Receives: m.ReceiveCount, SentAt: m.SentAt}, *r)
	r.Trace = span.Trace(r.Trace)
	return func(out Outcome) {
		var failure llmq.Code
		if m.ended != nil {
			span.Ran(m.ended.Meta())
			if m.ended.Err != nil {
				failure = m.ended.Err.Code
			}
		}
		span.Processed(cmp.Or(out.Reason, "panicked"), out.Action == Ack, failure)
	}
}

func untraced(Outcome) {}
