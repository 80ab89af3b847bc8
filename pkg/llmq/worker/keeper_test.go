package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// sleeps runs each request for as many seconds as its message's place says.
func sleeps(secs map[string]int) func(context.Context, engine.Call) engine.Verdict {
	return func(_ context.Context, c engine.Call) engine.Verdict {
		time.Sleep(time.Duration(secs[c.Request.ID]) * time.Second)
		return engine.Verdict{Action: engine.Stored}
	}
}

// DS10: the lease replaces the queue's long visibility at once, one batch per queue, and
// is renewed every ten seconds for what is still worked on. What has ended is deleted then.
// B7, the message's lease.
func TestKeeper_RenewsWhatIsWorkedOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = sleeps(map[string]int{"r-1": 5, "r-2": 15, "r-3": 25, "r-4": 12})
		batch := messages(4)
		batch[3].Queue = "llm-chat-a"
		w.Handle(t.Context(), batch)
		time.Sleep(time.Minute)
		want := []string{
			"0s hide h1 of llm-chat-a-rt for 55s (1 of 3)", "0s hide h2 of llm-chat-a-rt for 55s (2 of 3)", "0s hide h3 of llm-chat-a-rt for 55s (3 of 3)",
			"0s hide h4 of llm-chat-a for 55s (1 of 1)",
			"10s hide h2 of llm-chat-a-rt for 55s (1 of 2)", "10s hide h3 of llm-chat-a-rt for 55s (2 of 2)",
			"10s hide h4 of llm-chat-a for 55s (1 of 1)",
			"20s hide h3 of llm-chat-a-rt for 55s (1 of 1)",
			// What has ended need not wait for its neighbours.
			"10s delete h1 of llm-chat-a-rt (1 of 1)", "20s delete h2 of llm-chat-a-rt (1 of 1)", "20s delete h4 of llm-chat-a (1 of 1)",
		}
		got := w.done()
		slices.Sort(want) // queues come in any order
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
	})
}

// A renewal that came after a release would hide the message again.
func TestKeeper_ReleaseWaitsForTheRenewalUnderWay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		runs time.Duration // until its release
		want []string
	}{
		{"the first", 0, []string{"3s hide h1 of llm-chat-a-rt for 55s (1 of 1)", "3s hide h1 of llm-chat-a-rt for 1s (1 of 1)"}},
		{"a later one", 11 * time.Second, []string{"3s hide h1 of llm-chat-a-rt for 55s (1 of 1)", "13s hide h1 of llm-chat-a-rt for 55s (1 of 1)", "13s hide h1 of llm-chat-a-rt for 1s (1 of 1)"}},
		{"none is", 5 * time.Second, []string{"3s hide h1 of llm-chat-a-rt for 55s (1 of 1)", "5s hide h1 of llm-chat-a-rt for 1s (1 of 1)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error {
					if leases[0].For == worker.Lease {
						time.Sleep(3 * time.Second)
					}
					return nil
				}
				w.run = func(context.Context, engine.Call) engine.Verdict {
					time.Sleep(tt.runs)
					return engine.Verdict{Action: engine.Release, After: time.Second}
				}
				w.Handle(t.Context(), messages(1))
				if diff := cmp.Diff(tt.want, w.done()); diff != "" {
					t.Errorf("did (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A message that was released while others run on is not hidden again.
func TestKeeper_ForgetsWhatWasReleased(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			if c.Request.ID == "r-1" {
				return engine.Verdict{Action: engine.Release, After: 20 * time.Second}
			}
			time.Sleep(35 * time.Second)
			return engine.Verdict{Action: engine.Stored}
		}
		w.Handle(t.Context(), messages(2))
		touched := slices.DeleteFunc(w.done(), func(s string) bool { return !strings.Contains(s, " h1 ") })
		want := []string{"0s hide h1 of llm-chat-a-rt for 55s (1 of 2)", "0s hide h1 of llm-chat-a-rt for 20s (1 of 1)"}
		if diff := cmp.Diff(want, touched); diff != "" {
			t.Errorf("did with the released one (-want +got):\n%s", diff)
		}
	})
}

// DS21: nothing is left when Handle returns; it waits for the renewal under way, which is
// bounded.
func TestKeeper_EndsBeforeHandleReturns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		left time.Duration // of the invocation; 0 is no deadline
		want time.Duration
	}{
		{"long before the end", time.Minute, 5 * time.Second},
		{"shortly before the end", 3 * time.Second, 2 * time.Second},
		{"without an end", 0, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				var hanging int
				w.extend = func(ctx context.Context, _ queue.Name, _ []queue.Lease) error {
					hanging++
					<-ctx.Done()
					hanging--
					return ctx.Err()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if tt.left > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), tt.left)
				}
				defer cancel()
				out := w.Handle(ctx, messages(1))
				if took := time.Since(w.start); took != tt.want || hanging != 0 {
					t.Errorf("returned after %v with %d renewals under way, want none after %v", took, hanging, tt.want)
				}
				if out[0].Action != worker.Ack {
					t.Errorf("outcome %+v: a renewal decides nothing", out[0])
				}
			})
		})
	}
}

// The invocation's context ends for the engine, not for the leases of what it still stores.
func TestKeeper_RenewsAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		w.extend = func(ctx context.Context, _ queue.Name, _ []queue.Lease) error { return ctx.Err() }
		w.run = func(context.Context, engine.Call) engine.Verdict {
			cancel()
			time.Sleep(11 * time.Second)
			return engine.Verdict{Action: engine.Stored}
		}
		w.Handle(ctx, messages(1))
		want := []string{"0s hide h1 of llm-chat-a-rt for 55s (1 of 1)", "10s hide h1 of llm-chat-a-rt for 55s (1 of 1)"}
		if diff := cmp.Diff(want, w.done()); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
	})
}

// A renewal that fails is told and tried again; the work goes on, since the claim protects it.
func TestKeeper_FailedRenewalIsTriedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var n int
		w.extend = func(context.Context, queue.Name, []queue.Lease) error {
			if n++; n <= 2 {
				return errors.New("slow down")
			}
			return nil
		}
		w.run = sleeps(map[string]int{"r-1": 25})
		out := w.Handle(t.Context(), messages(1))
		want := []string{"0s can't hide h1 of llm-chat-a-rt for 55s (1 of 1)", "10s can't hide h1 of llm-chat-a-rt for 55s (1 of 1)", "20s hide h1 of llm-chat-a-rt for 55s (1 of 1)"}
		if diff := cmp.Diff(want, w.done()); diff != "" || out[0].Action != worker.Ack {
			t.Errorf("outcome %+v, did (-want +got):\n%s", out[0], diff)
		}
		if log := w.log.String(); strings.Count(log, "slow down") != 2 {
			t.Errorf("the failures were not told:\n%s", log)
		}
	})
}

// Batches at the same time have nothing in common.
func TestHandle_BatchesSideBySide(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = sleeps(map[string]int{"r-1": 12})
		got := make([][]worker.Outcome, 2)
		for i := range got {
			go func() { got[i] = w.Handle(t.Context(), messages(1)) }()
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := []worker.Outcome{{MessageID: "1", Action: worker.Ack}}
		if diff := cmp.Diff([][]worker.Outcome{want, want}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if did := w.done(); len(did) != 4 {
			t.Errorf("did %q, want two leases of each", did)
		}
	})
}
