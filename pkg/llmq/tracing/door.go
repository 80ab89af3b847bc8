package tracing

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Door begins the span of a request to the door that r was read from: since began, at a route with its variables' names. It
// continues r's trace. User and session must be hashes by now, which is all that a door keeps of them (FEATURES E14).
func (t *Tracer) Door(method, route string, began time.Time, r llmq.Request) Span {
	if t == nil {
		return Span{}
	}
	attrs := append(make([]attribute.KeyValue, 0, 10),
		httpMethod.String(method), httpRoute.String(route), urlScheme.String("https"),
		ownRequestID.String(r.ID), ownTenant.String(r.Tenant), ownLane.String(string(r.Lane)), ownModel.String(r.Model.String()), ownStream.Bool(r.Stream))
	if r.User != "" {
		attrs = append(attrs, userHash.String(r.User))
	}
	if r.Session != "" {
		attrs = append(attrs, sessionID.String(r.Session))
	}
	return t.begin(r.Trace, method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began), trace.WithAttributes(attrs...))
}

// Answered ends the door's span. The status is the one that went out, the code of a failure that of its error, "" without one. As
// the convention for servers has it, only a status from 500 on makes the span a failed one; a stream that broke has
// a status of 200, and is one too.
func (s Span) Answered(status int, failure llmq.Code) {
	if s.span == nil {
		return
	}
	if failure != "" && status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		s.span.SetAttributes(errorType.String(string(failure)))
		failure = ""
	}
	s.end(string(failure), httpStatus.Int(status))
}
