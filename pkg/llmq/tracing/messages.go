package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Send begins the span of a request's message on its way to a queue, which the message is to carry on.
func (t *Tracer) Send(queue string, r llmq.Request) Span {
	if t == nil {
		return Span{}
	}
	return t.begin(r.Trace, "send "+queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(message("send", queue, r)...))
}

// Sent ends it. The failure is the code of the send's error, "" without one.
func (s Span) Sent(bytes int, failure llmq.Code) {
	if s.span != nil {
		s.end(string(failure), messagingSize.Int(bytes))
	}
}

// Delivery is one receive of a message.
type Delivery struct {
	Queue     string
	MessageID string
	Receives  int       // this one included
	SentAt    time.Time // when it was first sent
}

// Process begins the span of a message's handling. It continues the trace of the request in it: each receive is a span of its own below
// that of the send, and so is that of a worker that takes over from one that died.
func (t *Tracer) Process(d Delivery, r llmq.Request) Span {
	if t == nil {
		return Span{}
	}
	return t.begin(r.Trace, "process "+d.Queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(append(message("process", d.Queue, r),
		messagingMessageID.String(d.MessageID), ownReceives.Int(d.Receives), ownWait.Int64(max(0, time.Since(d.SentAt).Milliseconds())))...))
}

// Ran tells of how far the call has come.
func (s Span) Ran(m llmq.Meta) {
	if !s.recorded() {
		return
	}
	s.span.SetAttributes(ownAttempts.Int(m.Attempts), ownTakeovers.Int(m.Takeovers), ownFallback.Bool(m.Fallback), ownWorker.String(m.Worker))
	if m.Target != "" {
		s.span.SetAttributes(ownTarget.String(m.Model + "@" + m.Target))
	}
}

// Processed ends it. The outcome comes from a short list; failure is the code that the call has ended with, "" where it has none.
func (s Span) Processed(outcome string, acked bool, failure llmq.Code) {
	if s.span != nil {
		s.end(string(failure), ownOutcome.String(outcome), ownAcked.Bool(acked))
	}
}

// message is what both ends of a queue tell. It has room for what is added.
func message(does, queue string, r llmq.Request) []attribute.KeyValue {
	return append(make([]attribute.KeyValue, 0, 11),
		messagingSystem.String("aws_sqs"), messagingOperation.String(does), messagingType.String(does), messagingDestination.String(queue),
		ownRequestID.String(r.ID), ownTenant.String(r.Tenant), ownLane.String(string(r.Lane)), ownModel.String(r.Model.String()))
}
