package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// copied is a message that its batch holds twice, with another between.
func copied() []queue.Message {
	one, two := message("m1", envelope("r-1")), message("m1", envelope("r-1"))
	one.Receipt, two.Receipt = "h1", "h2"
	return []queue.Message{one, message("m9", envelope("r-9")), two}
}

// DS41, H10 a: SQS may put one message into a batch twice. It is run once, and what becomes of it becomes of every
// copy: its leases, its release and its deletion.
func TestHandle_CopiesInOneBatchAreOneMessage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		verdict engine.Verdict
		want    worker.Outcome
		did     []string // with the copies, after the first leases
	}{
		{
			"acknowledged",
			engine.Verdict{Action: engine.Stored, Reason: "ok"},
			worker.Outcome{MessageID: "m1", Action: worker.Ack, Reason: "ok"},
			[]string{"10s delete h1 of llm-chat-a-rt (1 of 2)", "10s delete h2 of llm-chat-a-rt (2 of 2)"},
		},
		{
			"handed back",
			engine.Verdict{Action: engine.Release, After: 7 * time.Second, Reason: "no_capacity"},
			worker.Outcome{MessageID: "m1", Action: worker.Keep, Reason: "no_capacity"},
			[]string{"1s hide h1 of llm-chat-a-rt for 7s (1 of 2)", "1s hide h2 of llm-chat-a-rt for 7s (2 of 2)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				runs := 0
				w.run = func(_ context.Context, c engine.Call) engine.Verdict {
					if c.Request.ID == "r-9" {
						time.Sleep(11 * time.Second)
						return engine.Verdict{Action: engine.Stored, Reason: "ok"}
					}
					runs++
					time.Sleep(time.Second)
					return tt.verdict
				}
				out := w.Handle(t.Context(), copied())
				want := []worker.Outcome{tt.want, {MessageID: "m9", Action: worker.Ack, Reason: "ok"}, tt.want}
				if diff := cmp.Diff(want, out); diff != "" || runs != 1 {
					t.Errorf("%d runs, outcomes (-want +got):\n%s", runs, diff)
				}
				leases := []string{"0s hide h1 of llm-chat-a-rt for 55s (1 of 3)", "0s hide h2 of llm-chat-a-rt for 55s (2 of 3)", "0s hide hm9 of llm-chat-a-rt for 55s (3 of 3)"}
				wantDid := append(append(leases, tt.did...), "10s hide hm9 of llm-chat-a-rt for 55s (1 of 1)")
				got := w.done()
				slices.Sort(wantDid)
				slices.Sort(got)
				if diff := cmp.Diff(wantDid, got); diff != "" {
					t.Errorf("did (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// One copy that can't be deleted keeps the message: both are tried again.
func TestHandle_CopiesAreDeletedTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		failed := false
		w.delete = func(_ context.Context, _ queue.Name, receipts []string) []error {
			errs := make([]error, len(receipts))
			if i := slices.Index(receipts, "h2"); !failed && i >= 0 {
				failed, errs[i] = true, llmq.Errorf(llmq.CodeQueueUnavailable, "throttled")
			}
			return errs
		}
		w.run = sleeps(map[string]int{"r-1": 1, "r-9": 25})
		w.Handle(t.Context(), copied())
		want := []string{
			"10s delete h1 of llm-chat-a-rt (1 of 2)", "10s can't delete h2 of llm-chat-a-rt (2 of 2)",
			"20s delete h1 of llm-chat-a-rt (1 of 2)", "20s delete h2 of llm-chat-a-rt (2 of 2)",
		}
		if diff := cmp.Diff(want, deletions(w.done())); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
	})
}

// What shares no more than an id is not one message: nothing may be acknowledged that was not handled.
func TestHandle_OnlyTrueCopiesAreOneMessage(t *testing.T) {
	t.Parallel()
	for name, differs := range map[string]func(m *queue.Message){
		"another body":  func(m *queue.Message) { m.Body = []byte(envelope("r-2")) },
		"another queue": func(m *queue.Message) { m.Queue = "llm-chat-a" },
		"no id":         func(m *queue.Message) { m.ID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				batch := []queue.Message{message("m1", envelope("r-1")), message("m1", envelope("r-1"))}
				differs(&batch[1])
				if name == "no id" {
					batch[0].ID = ""
				}
				if w.Handle(t.Context(), batch); len(w.calls) != 2 {
					t.Errorf("%d calls, want 2", len(w.calls))
				}
			})
		})
	}
}
