package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// deletions are those among what was done.
func deletions(did []string) []string {
	return slices.DeleteFunc(did, func(s string) bool { return !strings.Contains(s, "delete") })
}

// The function's reply deletes: nothing is asked for that a batch which ends before a tick could do without.
func TestKeeper_ShortBatchAsksForNoDeletion(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = sleeps(map[string]int{"r-1": 1, "r-2": 9})
		w.Handle(t.Context(), messages(2))
		if did := w.done(); len(did) != 2 {
			t.Errorf("did %q, want the two first leases alone", did)
		}
	})
}

// DS40: an entry that fails for now is tried at the next tick, one that fails for good is not. Neither makes
// the message one that comes back.
func TestKeeper_DeletionThatFailsIsTriedAgainWhereThatHelps(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.delete = func(_ context.Context, _ queue.Name, receipts []string) []error {
			errs := make([]error, len(receipts))
			for i, r := range receipts {
				switch {
				case r == "h1" && time.Since(w.start) < 15*time.Second:
					errs[i] = llmq.Errorf(llmq.CodeQueueUnavailable, "slow down")
				case r == "h2":
					errs[i] = llmq.Errorf(llmq.CodeInternal, "no such message")
				}
			}
			return errs
		}
		w.run = sleeps(map[string]int{"r-1": 1, "r-2": 1, "r-3": 1, "r-4": 35})
		out := w.Handle(t.Context(), messages(4))
		for i, o := range out {
			if o.Action != worker.Ack {
				t.Errorf("message %d: %+v", i+1, o)
			}
		}
		want := []string{
			"10s can't delete h1 of llm-chat-a-rt (1 of 3)", "10s can't delete h2 of llm-chat-a-rt (2 of 3)", "10s delete h3 of llm-chat-a-rt (3 of 3)",
			"20s delete h1 of llm-chat-a-rt (1 of 1)",
		}
		if diff := cmp.Diff(want, deletions(w.done())); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
	})
}

// A queue that hangs on a deletion holds up neither a release nor the end of the batch, and no renewal.
func TestKeeper_HangingDeletionHoldsNothingUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		hanging := 0
		w.delete = func(ctx context.Context, _ queue.Name, receipts []string) []error {
			hanging++
			defer func() { hanging-- }()
			<-ctx.Done()
			return slices.Repeat([]error{llmq.Errorf(llmq.CodeQueueUnavailable, "hangs")}, len(receipts))
		}
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			switch c.Request.ID {
			case "r-2":
				time.Sleep(11 * time.Second)
				return engine.Verdict{Action: engine.Release, After: time.Minute}
			case "r-3":
				time.Sleep(22 * time.Second)
			}
			return engine.Verdict{Action: engine.Stored}
		}
		out := w.Handle(t.Context(), messages(3))
		if took := time.Since(w.start); took != 22*time.Second || hanging != 0 {
			t.Errorf("returned after %v with %d deletions under way", took, hanging)
		}
		if out[0].Action != worker.Ack || out[1].Action != worker.Keep || out[2].Action != worker.Ack {
			t.Errorf("outcomes %+v", out)
		}
		hidden := slices.DeleteFunc(w.done(), func(s string) bool { return strings.Contains(s, "delete") || strings.HasPrefix(s, "0s") })
		want := []string{
			"10s hide h2 of llm-chat-a-rt for 55s (1 of 2)", "10s hide h3 of llm-chat-a-rt for 55s (2 of 2)",
			"11s hide h2 of llm-chat-a-rt for 60s (1 of 1)", "20s hide h3 of llm-chat-a-rt for 55s (1 of 1)",
		}
		if diff := cmp.Diff(want, hidden); diff != "" {
			t.Errorf("hid (-want +got):\n%s", diff)
		}
	})
}

// What was handed back is never deleted, whatever its neighbours do; a dead letter is.
func TestKeeper_DeletesWhatWasDeadLetteredAndNothingThatComesBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			switch c.Request.ID {
			case "r-1":
				return engine.Verdict{Action: engine.Release, After: time.Minute}
			case "r-2":
				return engine.Verdict{Action: engine.Leave}
			case "r-3":
				panic("boom")
			}
			time.Sleep(25 * time.Second)
			return engine.Verdict{Action: engine.Stored}
		}
		w.Handle(t.Context(), append(messages(4), message("rotten", "no")))
		if diff := cmp.Diff([]string{"10s delete hrotten of llm-chat-a-rt (1 of 1)"}, deletions(w.done())); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
	})
}
