// Package tracing makes one trace of a call, from the door through its queue to the provider (FEATURES E9): the spans of
// OpenTelemetry, under the names of its conventions for generative AI, messaging and HTTP.
//
// A span is told nothing but what the typed functions here take: ids, names out of the configuration, counts and codes, never
// a prompt, a reply, a key, or a message that may quote one (SECURITY-DESIGN DP4). This package makes spans by OpenTelemetry's
// interfaces alone; what keeps and exports them is the process's affair, package internal/otlp.
//
// A trace goes from process to process, and within a process from part to part, as a W3C traceparent, [llmq.Request.Trace]. So it is
// carried just the same where nothing is traced.
package tracing

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Scope is the name under which the spans are made.
const Scope = "github.com/llm-queue/llmq"

// Tracer begins spans. It is safe for concurrent use. A nil one is off: its spans are zero, and it costs a comparison.
type Tracer struct {
	spans     trace.Tracer
	providers map[string]Provider
}

// Provider is what is told of a configured provider.
type Provider struct {
	System  string // what OpenTelemetry calls it: "openai", "aws.bedrock", or the name of a dialect of one's own
	Address string // host of its endpoint; "" is not told
	Port    int    // 0 is not told
}

// New makes a tracer. The providers are told of by the names that the configuration gives them; the map is not changed afterwards.
func New(spans trace.Tracer, providers map[string]Provider) *Tracer {
	return &Tracer{spans: spans, providers: providers}
}

// Span is one that has begun. One goroutine uses it. The zero value is of a tracer that is off.
type Span struct{ span trace.Span }

// Trace is what is to be carried on: the span's own place in its trace, or where there is no span what was given.
func (s Span) Trace(given string) string {
	if s.span == nil {
		return given
	}
	return of(s.span.SpanContext())
}

// recorded reports whether anybody will read what the span is told.
func (s Span) recorded() bool { return s.span != nil && s.span.IsRecording() }

// end ends the span, as failed where it has an error's type.
func (s Span) end(failure string, attrs ...attribute.KeyValue) {
	if failure != "" {
		attrs = append(attrs, errorType.String(failure))
		s.span.SetStatus(codes.Error, "") // a description would be somebody's words
	}
	s.span.SetAttributes(attrs...)
	s.span.End()
}

// FromContext is the place in a trace that a Go program's own OpenTelemetry has put into ctx; "" is none.
func FromContext(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ""
	}
	return of(sc)
}

func of(sc trace.SpanContext) string {
	return llmq.Trace{ID: sc.TraceID().String(), Parent: sc.SpanID().String(), Sampled: sc.IsSampled()}.String()
}

// begin begins a span below the traceparent, or a trace of its own where that is none.
func (t *Tracer) begin(parent, name string, opts ...trace.SpanStartOption) Span {
	ctx := context.Background() // the trace is in the parent, and an end has no bound of a span's
	if from, ok := llmq.ParseTrace(parent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, contextOf(from))
	}
	_, span := t.spans.Start(ctx, name, opts...)
	return Span{span}
}

func contextOf(from llmq.Trace) trace.SpanContext {
	cfg := trace.SpanContextConfig{Remote: true}
	_, _ = hex.Decode(cfg.TraceID[:], []byte(from.ID)) // it was parsed
	_, _ = hex.Decode(cfg.SpanID[:], []byte(from.Parent))
	if from.Sampled {
		cfg.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(cfg)
}
