package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// byKey is an envelope whose request a key made.
func byKey(id string) string {
	return strings.Replace(envelope(id), `"tenant":"t"`, `"tenant":"t","kid":"0123456789"`, 1)
}

// DS47, KT3, KT4, MS2, SEC03, SEC16: before each take the worker looks at the request's key, and hands the engine what it may
// use, or how the request ends. What nobody can tell waits; a key of another tenant is no request of this one.
func TestHandle_LooksAtTheKeyBeforeTheTake(t *testing.T) {
	t.Parallel()
	revoked := llmq.Errorf(llmq.CodeKeyRevoked, "revoked at noon")
	for _, tc := range []struct {
		name   string
		err    error
		after  time.Duration // since it was sent
		want   worker.Outcome
		run    bool
		ends   llmq.Code
		letter string
	}{
		{"it holds", nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, true, "", ""},
		{"revoked", revoked, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, true, llmq.CodeKeyRevoked, ""},
		{"nobody can tell", llmq.Errorf(llmq.CodeQueueUnavailable, "S3"), 0, worker.Outcome{MessageID: "m", Action: worker.Keep, Reason: "queue_unavailable"}, false, "", ""},
		{"nobody could tell in time", llmq.Errorf(llmq.CodeQueueUnavailable, "S3"), 7 * time.Second, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, true, llmq.CodeExpired, ""},
		{"another tenant's", llmq.Errorf(llmq.CodeBadEnvelope, "kid").At("kid"), 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}, false, "", "bad_envelope"},
		{"a fault of ours", errors.New("boom"), 0, worker.Outcome{MessageID: "m", Action: worker.Keep, Reason: "internal_error"}, false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.allowed = func(kid, tenant string) (llmq.ModelSet, error) {
					if kid != "0123456789" || tenant != "t" {
						t.Errorf("asked for key %q of %q", kid, tenant)
					}
					return llmq.ModelSet{"chat-a@main"}, tc.err
				}
				m := message("m", byKey("r"))
				m.SentAt = time.Now().Add(-tc.after)
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{tc.want}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if tc.run != (len(w.calls) == 1) {
					t.Fatalf("%d runs", len(w.calls))
				}
				if tc.run {
					c := w.calls[0]
					if tc.ends == "" && (c.Refused != nil || !cmp.Equal(c.Request.Allowed, llmq.ModelSet{"chat-a@main"})) ||
						tc.ends != "" && (c.Refused == nil || c.Refused.Code != tc.ends) {
						t.Errorf("the engine got %v, %+v", c.Refused, c.Request.Allowed)
					}
				}
				if tc.letter != "" && (len(w.sent) != 1 || w.sent[0].Attributes[queue.AttrReason] != tc.letter) {
					t.Errorf("dead letters: %+v", w.sent)
				}
			})
		})
	}
}

// A producer's message names no key, and nobody is asked about it.
func TestHandle_WithoutAKeyNobodyIsAsked(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.allowed = func(string, string) (llmq.ModelSet, error) {
			t.Error("a key was looked up")
			return nil, nil
		}
		w.Handle(t.Context(), []queue.Message{message("m", envelope("r"))})
		if len(w.calls) != 1 || w.calls[0].Request.Allowed != nil || !w.calls[0].Request.MayUse(llmq.Target{Model: "any"}) {
			t.Errorf("runs: %+v", w.calls)
		}
	})
}
