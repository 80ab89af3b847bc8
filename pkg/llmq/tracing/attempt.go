package tracing

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Attempt is one call of a provider.
type Attempt struct {
	Target   llmq.Target
	ModelID  string // the provider's own
	Number   int    // of the call's attempts, from 1 on
	Fallback bool   // the target is not the call's first
	Direct   bool   // no message stands for the call
}

// Attempt begins the span of an attempt. Nothing of it goes to the provider: it is a third party, and a caller's headers stay here
// (SECURITY-DESIGN IN4).
func (t *Tracer) Attempt(r llmq.Request, a Attempt) Span {
	if t == nil {
		return Span{}
	}
	if r.Op == llmq.OpJob { // a function of the worker's own: no model, and nobody's server
		return t.begin(r.Trace, "job "+a.ModelID, trace.WithAttributes(ownRequestID.String(r.ID), ownTenant.String(r.Tenant), ownLane.String(string(r.Lane)),
			ownModel.String(r.Model.String()), ownTarget.String(a.Target.String()), ownAttempt.Int(a.Number)))
	}
	p, op := t.providers[a.Target.Provider], operation(r.Op)
	attrs := append(make([]attribute.KeyValue, 0, 14),
		genAIOperation.String(op), genAIProvider.String(p.System), genAIRequestModel.String(a.ModelID),
		ownRequestID.String(r.ID), ownTenant.String(r.Tenant), ownLane.String(string(r.Lane)), ownModel.String(r.Model.String()),
		ownTarget.String(a.Target.String()), ownAttempt.Int(a.Number), ownFallback.Bool(a.Fallback), ownDirect.Bool(a.Direct), ownStream.Bool(r.Stream))
	if p.Address != "" {
		attrs = append(attrs, serverAddress.String(p.Address))
	}
	if p.Port != 0 {
		attrs = append(attrs, serverPort.Int(p.Port))
	}
	return t.begin(r.Trace, op+" "+a.ModelID, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

// operation is the convention's word for an op, or Bedrock's where that says nothing of what a body asks for.
func operation(op llmq.Op) string {
	switch op {
	case llmq.OpEmbeddings:
		return "embeddings"
	case llmq.OpInvoke, llmq.OpInvokeStream:
		return "invoke_model"
	default:
		return "chat"
	}
}

// Answer is what an attempt came to.
type Answer struct {
	Status        int    // the provider's, of HTTP; 0 where there was no answer
	Input, Output int    // tokens, as the provider tells them; 0 is not told
	Reply         []byte // nothing is read of it but which model served, where its wire tells that
	Failure       string // what kind of failure, from a bounded list; "" is none
}

// Attempted ends the attempt's span.
func (s Span) Attempted(a Answer) {
	if s.span == nil {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 5)
	if a.Status != 0 {
		attrs = append(attrs, httpStatus.Int(a.Status))
	}
	if a.Input != 0 {
		attrs = append(attrs, genAIInput.Int(a.Input))
	}
	if a.Output != 0 {
		attrs = append(attrs, genAIOutput.Int(a.Output))
	}
	if s.recorded() {
		if model := served(a.Reply); model != "" {
			attrs = append(attrs, genAIModel.String(model))
		}
	}
	s.end(a.Failure, attrs...)
}

// served is the model that a reply on OpenAI's wire says has served, or the first event of its stream; "" is not told. A provider could say
// anything there, so that what does not look like a model's name is not told on.
func served(reply []byte) string {
	for line := range bytes.Lines(reply) {
		line = bytes.TrimSpace(line)
		if event, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			line = bytes.TrimSpace(event)
		} else if len(line) == 0 || line[0] != '{' {
			continue // "event: …" of Responses, or a comment
		} else {
			line = reply
		}
		model := gjson.GetBytes(line, "model")
		if !model.Exists() {
			model = gjson.GetBytes(line, "response.model")
		}
		if model.Type == gjson.String && isName(model.Str) {
			return model.Str
		}
		return ""
	}
	return ""
}

func isName(s string) bool {
	const mostBytes = 128
	return s != "" && len(s) <= mostBytes && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+-") == ""
}
