package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// E9: whoever takes a call over from a run that died goes on with its trace: both deliveries lie below the span that sent the message, each
// with its number, wherever the message carried its trace.
func TestTrace_ATakeoverGoesOnWithIt(t *testing.T) {
	t.Parallel()
	const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const traceparent = "00-" + traceID + "-" + parent + "-01"
	inEnvelope := on("bad", llmq.LaneBG)
	inEnvelope.Body = []byte(strings.Replace(string(inEnvelope.Body), `"v":1`, `"v":1,"traceparent":"`+traceparent+`"`, 1))
	inHeader := on("bad", llmq.LaneBG)
	inHeader.Trace = traceparent
	for name, m := range map[string]queue.Message{"in its envelope": inEnvelope, "beside it": inHeader} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			died := false
			call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
				if !died {
					died = true
					panic("boom")
				}
				return replies(time.Second)(ctx, req)
			}
			wholeBubble(t, 5, call, func(t *testing.T, p *plant) {
				var spans tracetest.SpanRecorder
				p.traces = tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(&spans)).Tracer(tracing.Scope), map[string]tracing.Provider{"p": {System: "openai"}})
				m.SentAt = time.Now()
				p.worker("w1").Handle(t.Context(), []queue.Message{m})
				time.Sleep(worker.Lease) // virtual: the message is back, the claim's lease has lapsed before
				m.ReceiveCount = 2
				if diff := cmp.Diff([]string{"bad ack ok"}, actions(p.worker("w2").Handle(t.Context(), []queue.Message{m}))); diff != "" {
					t.Errorf("when it is back (-want +got):\n%s", diff)
				}
				var got []string
				names := map[trace.SpanID]string{{}: "nothing"}
				ended := spans.Ended()
				for i, s := range ended {
					names[s.SpanContext().SpanID()] = fmt.Sprint("span ", i)
				}
				for _, s := range ended {
					sc, below := s.SpanContext(), s.Parent()
					if below.SpanID().String() == parent {
						names[below.SpanID()] = "the sender"
					}
					if sc.TraceID().String() != traceID {
						t.Errorf("%s is in trace %s", s.Name(), sc.TraceID())
					}
					line := s.Name() + " below " + names[below.SpanID()]
					for _, kv := range s.Attributes() {
						switch kv.Key {
						case "llmq.receive_count", "llmq.takeovers", "llmq.attempt", "llmq.outcome", "llmq.worker", "error.type":
							line += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
						}
					}
					got = append(got, line)
				}
				want := []string{
					"process llm-chat-a below the sender llmq.receive_count=1 llmq.outcome=panicked",
					"chat vendor/chat-a below span 2 llmq.attempt=2",
					"process llm-chat-a below the sender llmq.receive_count=2 llmq.takeovers=1 llmq.worker=w2 llmq.outcome=ok",
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("spans (-want +got):\n%s", diff)
				}
			})
		})
	}
}
