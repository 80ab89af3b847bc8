package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// B13, DS19: a newer message waits an hour for newer workers, and is dropped never.
func TestHandle_NewerMessageWaitsForNewerWorkers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		age  time.Duration
		want worker.Action
	}{{0, worker.Keep}, {59 * time.Minute, worker.Keep}, {time.Hour - time.Nanosecond, worker.Keep}, {time.Hour, worker.Ack}, {24 * time.Hour, worker.Ack}} {
		t.Run(tt.age.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := message("m", `{"v":2,"what":{"this":"release","can't":"know"}}`)
				m.SentAt, m.ReceiveCount = w.start.Add(-tt.age), 21
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: tt.want, Reason: "newer_envelope"}}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				want := []string{"0s hide hm of llm-chat-a-rt for 55s (1 of 1)", "0s hide hm of llm-chat-a-rt for 30s (1 of 1)"}
				if tt.want == worker.Ack {
					want[1] = "0s send to llm-chat-a-rt-dlq"
					if w.sent[0].Attributes["llmq_reason"] != "newer_envelope" {
						t.Errorf("attributes %v", w.sent[0].Attributes)
					}
				}
				if diff := cmp.Diff(want, w.done()); diff != "" {
					t.Errorf("did (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// B17: at first it comes back soon and by chance, for the next worker that is given it may be a newer one.
func TestHandle_NewerMessageComesBackSoonAtFirst(t *testing.T) {
	t.Parallel()
	for _, receives := range []int{1, 20} {
		bubble(t, func(t *testing.T, w *world) {
			m := message("m", envelope("r"))
			m.Queue, m.ReceiveCount = "llm-new-rt", receives
			var after time.Duration
			w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error { after = leases[0].For; return nil }
			w.Handle(t.Context(), []queue.Message{m})
			if after < time.Second || after > 5*time.Second {
				t.Errorf("receive %d: handed back for %s", receives, after)
			}
		})
	}
}

// A version that is newer still must be valid JSON, or nothing is known about it.
func TestHandle_NewerMessageWithAFieldTwiceIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		out := w.Handle(t.Context(), []queue.Message{message("m", `{"v":2,"v":1}`)})
		if out[0].Action != worker.Ack || out[0].Reason != "bad_envelope" {
			t.Errorf("outcome %+v", out[0])
		}
	})
}
