package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	given  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	marker = "MARKED-SECRET"
)

func request() llmq.Request {
	return llmq.Request{
		ID: "r-1", Tenant: "team", KeyID: "k", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Trace: given,
		User: "hash-of-user", Session: "hash-of-session", Body: []byte(`{"messages":"` + marker + `"}`), Headers: map[string]string{"X": marker},
	}
}

func attempt() Attempt {
	return Attempt{Target: llmq.Target{Model: "chat-a", Name: "eu", Provider: "p"}, ModelID: "vendor/chat-1", Number: 2, Fallback: true}
}

// E9: off costs nothing, and what was given goes on.
func TestNilTracer_CostsNothing(t *testing.T) { //nolint:paralleltest // allocations are counted, of the whole process
	var off *Tracer
	r, d, a, now := request(), Delivery{Queue: "q", MessageID: "m", Receives: 1}, attempt(), time.Now()
	ctx := context.Background()
	for name, call := range map[string]func(){
		"door":    func() { off.Door("POST", "/v1/chat/completions", now, r).Answered(200, "") },
		"send":    func() { off.Send("q", r).Sent(10, "") },
		"process": func() { s := off.Process(d, r); s.Ran(llmq.Meta{}); s.Processed("ok", true, "") },
		"attempt": func() { off.Attempt(r, a).Attempted(Answer{Status: 200, Reply: r.Body}) },
		"context": func() { _ = FromContext(ctx) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if got := off.Send("q", r).Trace(given); got != given {
		t.Errorf("%q is carried on, want what was given", got)
	}
}

// recorded is what a tracer has recorded.
func recorded(t *testing.T, make func(*Tracer)) []sdk.ReadOnlySpan {
	t.Helper()
	var spans tracetest.SpanRecorder
	tp := sdk.NewTracerProvider(sdk.WithSpanProcessor(&spans))
	make(New(tp.Tracer(Scope), map[string]Provider{"p": {System: "openai", Address: "llm.example", Port: 8443}}))
	return spans.Ended()
}

func attrs(s sdk.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, kv := range s.Attributes() {
		all[string(kv.Key)] = kv.Value.AsInterface()
	}
	return all
}

// E9: the names are those of OpenTelemetry's conventions, and no value is a text of the caller's or the provider's.
func TestSpans_HaveTheConventionsNames(t *testing.T) {
	t.Parallel()
	r := request()
	spans := recorded(t, func(tr *Tracer) {
		tr.Door("POST", "/v1/chat/completions", time.Now().Add(-time.Minute), r).Answered(200, "")
		tr.Send("llm-chat-a-rt", r).Sent(321, llmq.CodeQueueUnavailable)
		p := tr.Process(Delivery{Queue: "llm-chat-a-rt", MessageID: "m-1", Receives: 3, SentAt: time.Now().Add(-2 * time.Second)}, r)
		p.Ran(llmq.Meta{Model: "chat-a", Target: "eu", Attempts: 2, Takeovers: 1, Fallback: true, Worker: "w-1"})
		p.Processed("ok", true, "")
		tr.Attempt(r, attempt()).Attempted(Answer{Status: 200, Input: 10, Output: 3, Reply: []byte(`{"id":"x","model":"chat-1-2026","choices":"` + marker + `"}`)})
		tr.Attempt(r, attempt()).Attempted(Answer{Status: 429, Failure: "rate_limit_exceeded"})
	})
	call := map[string]any{"llmq.request_id": "r-1", "llmq.tenant": "team", "llmq.lane": "rt", "llmq.model": "chat-a"}
	with := func(more map[string]any) map[string]any {
		all := map[string]any{}
		for _, m := range []map[string]any{call, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	tried := with(map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "vendor/chat-1", "server.address": "llm.example", "server.port": int64(8443),
		"llmq.target": "chat-a@eu", "llmq.attempt": int64(2), "llmq.fallback": true, "llmq.direct": false, "llmq.stream": false,
	})
	for i, want := range []struct {
		name   string
		kind   trace.SpanKind
		status codes.Code
		attrs  map[string]any
	}{
		{"POST /v1/chat/completions", trace.SpanKindServer, codes.Unset, with(map[string]any{
			"http.request.method": "POST", "http.route": "/v1/chat/completions", "url.scheme": "https", "http.response.status_code": int64(200),
			"user.hash": "hash-of-user", "session.id": "hash-of-session", "llmq.stream": false,
		})},
		{"send llm-chat-a-rt", trace.SpanKindProducer, codes.Error, with(map[string]any{
			"messaging.system": "aws_sqs", "messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.destination.name": "llm-chat-a-rt",
			"messaging.message.envelope.size": int64(321), "error.type": "queue_unavailable",
		})},
		{"process llm-chat-a-rt", trace.SpanKindConsumer, codes.Unset, with(map[string]any{
			"messaging.system": "aws_sqs", "messaging.operation.name": "process", "messaging.operation.type": "process", "messaging.destination.name": "llm-chat-a-rt",
			"messaging.message.id": "m-1", "llmq.receive_count": int64(3), "llmq.attempts": int64(2), "llmq.takeovers": int64(1), "llmq.fallback": true,
			"llmq.worker": "w-1", "llmq.target": "chat-a@eu", "llmq.outcome": "ok", "llmq.acked": true,
		})},
		{"chat vendor/chat-1", trace.SpanKindClient, codes.Unset, func() map[string]any {
			m := map[string]any{"http.response.status_code": int64(200), "gen_ai.usage.input_tokens": int64(10), "gen_ai.usage.output_tokens": int64(3), "gen_ai.response.model": "chat-1-2026"}
			for k, v := range tried {
				m[k] = v
			}
			return m
		}()},
		{"chat vendor/chat-1", trace.SpanKindClient, codes.Error, func() map[string]any {
			m := map[string]any{"http.response.status_code": int64(429), "error.type": "rate_limit_exceeded"}
			for k, v := range tried {
				m[k] = v
			}
			return m
		}()},
	} {
		s := spans[i]
		got := attrs(s)
		if wait, ok := got["llmq.queue_wait_ms"].(int64); want.kind == trace.SpanKindConsumer && (!ok || wait < 2000) {
			t.Errorf("queue wait is %v", got["llmq.queue_wait_ms"])
		}
		delete(got, "llmq.queue_wait_ms")
		if s.Name() != want.name || s.SpanKind() != want.kind || s.Status().Code != want.status || s.Status().Description != "" {
			t.Errorf("span %d: %s, %s, %+v; want %+v", i, s.Name(), s.SpanKind(), s.Status(), want)
		}
		if diff := cmp.Diff(want.attrs, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.Name(), diff)
		}
		if s.Parent().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || s.Parent().SpanID().String() != "b7ad6b7169203331" || !s.Parent().IsRemote() {
			t.Errorf("%s continues %+v", s.Name(), s.Parent())
		}
		if strings.Contains(fmt.Sprint(got), marker) {
			t.Errorf("%s tells what nobody may know", s.Name())
		}
	}
	if began := spans[0].StartTime(); time.Since(began) < time.Minute {
		t.Errorf("the door's span begins at %s, which is when it was made", began)
	}
}

// E9: a run of a job is a span of its own, of no model and nobody's server; its failure is a kind, never the function's words.
func TestAttempt_OfAJobTellsItsFunction(t *testing.T) {
	t.Parallel()
	r := request()
	r.Op, r.Lane, r.Model = llmq.OpJob, llmq.LaneBulk, llmq.ModelRef{Alias: "text", Target: "words"}
	a := Attempt{Target: llmq.Target{Model: "text", Name: "jobs", Provider: "jobs"}, ModelID: "words", Number: 2}
	spans := recorded(t, func(tr *Tracer) {
		tr.Attempt(r, a).Attempted(Answer{Reply: r.Body})
		tr.Attempt(r, a).Attempted(Answer{Failure: "retryable"})
	})
	for i, failure := range []string{"", "retryable"} {
		s := spans[i]
		want := map[string]any{
			"llmq.request_id": "r-1", "llmq.tenant": "team", "llmq.lane": "bulk", "llmq.model": "text@words", "llmq.target": "text@jobs", "llmq.attempt": int64(2),
		}
		status := codes.Unset
		if failure != "" {
			want["error.type"], status = failure, codes.Error
		}
		if s.Name() != "job words" || s.SpanKind() != trace.SpanKindInternal || s.Status().Code != status || s.Status().Description != "" {
			t.Errorf("%s, %s, %+v", s.Name(), s.SpanKind(), s.Status())
		}
		if diff := cmp.Diff(want, attrs(s)); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		if s.Parent().SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("it is below %s", s.Parent().SpanID())
		}
	}
}

func TestDoor_FailsFrom500On(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		code   llmq.Code
		want   codes.Code
	}{
		{200, "", codes.Unset},
		{404, llmq.CodeModelNotFound, codes.Unset},
		{503, llmq.CodeNoCapacity, codes.Error},
		{200, llmq.CodeStreamBroken, codes.Error}, // of a stream that had begun
	} {
		s := recorded(t, func(tr *Tracer) { tr.Door("POST", "/x", time.Now(), request()).Answered(tt.status, tt.code) })[0]
		if told, _ := attrs(s)["error.type"].(string); s.Status().Code != tt.want || told != string(tt.code) {
			t.Errorf("%d %s: %v, error.type %q", tt.status, tt.code, s.Status().Code, told)
		}
	}
}

// E9: a traceparent that is none begins a trace; it is never an error.
func TestSpan_BelowNothingIsARoot(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "tr", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		r := request()
		r.Trace = bad
		var carried string
		s := recorded(t, func(tr *Tracer) {
			span := tr.Send("q", r)
			carried = span.Trace(r.Trace)
			span.Sent(1, "")
		})[0]
		if s.Parent().IsValid() {
			t.Errorf("%q: the parent is %+v", bad, s.Parent())
		}
		if want := "00-" + s.SpanContext().TraceID().String() + "-" + s.SpanContext().SpanID().String() + "-01"; carried != want {
			t.Errorf("%q: %s is carried on, want %s", bad, carried, want)
		}
	}
}

func TestFromContext_IsTheProgramsOwnPlace(t *testing.T) {
	t.Parallel()
	if got := FromContext(t.Context()); got != "" {
		t.Errorf("nothing is %q", got)
	}
	from, _ := llmq.ParseTrace(given)
	if got := FromContext(trace.ContextWithSpanContext(t.Context(), contextOf(from))); got != given {
		t.Errorf("got %q, want %q", got, given)
	}
}

func TestServed_IsAModelsNameAlone(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		`{"model":"gpt-4o-mini-2024"}`:                                                     "gpt-4o-mini-2024",
		"{\n  \"id\": \"x\",\n  \"model\": \"a/b:c@d\"\n}":                                 "",
		"{\n  \"id\": \"x\",\n  \"model\": \"a/b:c\"\n}":                                   "a/b:c",
		": hi\n\ndata: {\"model\":\"m-1\",\"choices\":[]}\n\n":                             "m-1",
		"event: response.created\ndata: {\"type\":\"x\",\"response\":{\"model\":\"m\"}}\n": "m",
		`{"model":"what the user has said"}`:                                               "",
		`{"model":"` + strings.Repeat("m", 129) + `"}`:                                     "",
		`{"model":7}`: "",
		`{}`:          "",
		"\x00\x01\n":  "",
		"":            "",
	} {
		if got := served([]byte(reply)); got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}

func TestOperation_OfEveryOp(t *testing.T) {
	t.Parallel()
	for op, want := range map[llmq.Op]string{
		llmq.OpChat: "chat", llmq.OpResponses: "chat", llmq.OpConverse: "chat", llmq.OpConverseStream: "chat",
		llmq.OpEmbeddings: "embeddings", llmq.OpInvoke: "invoke_model", llmq.OpInvokeStream: "invoke_model",
	} {
		if got := operation(op); got != want {
			t.Errorf("%s: %s, want %s", op, got, want)
		}
	}
}
