package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// crowd runs calls of ten seconds and notes how many run at once, and how many bodies were fetched by then.
type crowd struct {
	mu                     sync.Mutex // guards all below
	running, peak, fetched int
	began                  map[string]time.Duration
}

func (c *crowd) join(w *world) {
	c.began = map[string]time.Duration{}
	w.get = func(context.Context, llmq.Ref) ([]byte, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fetched++
		return []byte(`{"messages":[]}`), nil
	}
	w.run = func(_ context.Context, call engine.Call) engine.Verdict {
		c.mu.Lock()
		c.running++
		c.peak = max(c.peak, c.running)
		c.began[call.Request.ID] = time.Since(w.start)
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
		return engine.Verdict{Action: engine.Stored, Reason: "ok"}
	}
}

const mib = 1 << 20

// DS43: bodies are bounded by their bytes before they are fetched, whatever a batch holds.
func TestRoom_BoundsWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		size  int64
		bytes []int // of each message's offloaded body
		peak  int
		took  time.Duration
	}{
		{"no bound", 0, []int{20 * mib, 20 * mib, 20 * mib}, 3, 10 * time.Second},
		{"all fit", 128 * mib, []int{100, 100, 100, 100}, 4, 10 * time.Second},
		{"three fit", 128 * mib, []int{10 * mib, 10 * mib, 10 * mib, 10 * mib}, 3, 20 * time.Second},
		{"one larger than the room runs alone", 64 * mib, []int{20 * mib, 20 * mib}, 1, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			roomBubble(t, tt.size, func(t *testing.T, w *world) {
				var c crowd
				c.join(w)
				for _, o := range w.Handle(t.Context(), offloaded(tt.bytes...)) {
					if o.Action != worker.Ack {
						t.Errorf("outcome %+v", o)
					}
				}
				if took := time.Since(w.start); took != tt.took || c.peak != tt.peak {
					t.Errorf("%d at once and %v in all, want %d and %v", c.peak, took, tt.peak, tt.took)
				}
			})
		})
	}
}

// offloaded are messages a, b, … whose bodies have so many bytes.
func offloaded(bytes ...int) []queue.Message {
	var batch []queue.Message
	for i, n := range bytes {
		batch = append(batch, pointing(string(rune('a'+i)), n))
	}
	return batch
}

// roomBubble is bubble with a bound, and with deadlines after 70 s.
func roomBubble(t *testing.T, size int64, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{start: time.Now()}
		cfg := config()
		cfg.BodyBytes = size
		for l, lane := range cfg.Timeouts {
			lane.Default = 70 * time.Second
			cfg.Timeouts[l] = lane
		}
		made, err := worker.New(cfg, worker.Deps{Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w}, Log: slog.New(slog.NewJSONHandler(&w.log, nil))})
		if err != nil {
			t.Fatalf("new worker: %v", err)
		}
		w.Worker = made
		test(t, w)
	})
}

// Who comes first runs first, however large; who gives up makes way for the smaller ones behind.
func TestRoom_NobodyIsPassedBy(t *testing.T) {
	t.Parallel()
	roomBubble(t, 100*mib, func(t *testing.T, w *world) {
		var c crowd
		c.join(w)
		var wg sync.WaitGroup
		for _, m := range offloaded(10*mib, 20*mib, 1000) {
			wg.Go(func() { w.Handle(t.Context(), []queue.Message{m}) })
			synctest.Wait()
		}
		wg.Wait()
		want := map[string]time.Duration{"a": 0, "b": 10 * time.Second, "c": 10 * time.Second}
		if diff := cmp.Diff(want, c.began); diff != "" {
			t.Errorf("began (-want +got):\n%s", diff)
		}
	})
}

// D3, DS14: nothing waits for room past its deadline, the process's limit or the end of its context; what waited in vain
// is handed back unclaimed, and its body was never fetched.
func TestRoom_WaitIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		ends      time.Duration // of the invocation's context; 0 is none
		cancelled bool
		want      time.Duration
	}{
		{"by the deadline", 0, false, 70 * time.Second},
		{"by the process's end", 40 * time.Second, false, 40*time.Second - worker.Margin},
		{"by its context's end", 0, true, 15 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			roomBubble(t, 64*mib, func(t *testing.T, w *world) {
				var c crowd
				c.join(w)
				w.run = func(context.Context, engine.Call) engine.Verdict {
					time.Sleep(100 * time.Second)
					return engine.Verdict{Action: engine.Stored}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if tt.ends > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), tt.ends)
				}
				defer cancel()
				if tt.cancelled {
					defer time.AfterFunc(tt.want, cancel).Stop()
				}
				out := make(chan []worker.Outcome, 1)
				go func() { out <- w.Handle(ctx, offloaded(20*mib, 20*mib)) }()
				time.Sleep(tt.want - time.Second)
				synctest.Wait()
				waiting := c.fetched
				time.Sleep(2 * time.Second)
				synctest.Wait()
				released := slices.DeleteFunc(w.done(), func(s string) bool { return !strings.Contains(s, " for 0s ") })
				got := <-out
				kept := slices.IndexFunc(got, func(o worker.Outcome) bool { return o.Action == worker.Keep })
				if kept < 0 || got[kept].Reason != "no_memory" || got[1-kept].Action != worker.Ack {
					t.Fatalf("outcomes %+v, want one run and one released", got)
				}
				want := []string{fmt.Sprintf("%gs hide h%s of llm-chat-a-rt for 0s (1 of 1)", tt.want.Seconds(), got[kept].MessageID)}
				if diff := cmp.Diff(want, released); diff != "" || waiting != 1 || c.fetched != 1 {
					t.Errorf("%d bodies fetched, released (-want +got):\n%s", c.fetched, diff)
				}
			})
		})
	}
}

// One whose deadline passed waits all the same: its end is to be told, for which its body is needed.
func TestRoom_OverdueMessageWaitsToBeTold(t *testing.T) {
	t.Parallel()
	roomBubble(t, 64*mib, func(t *testing.T, w *world) {
		var c crowd
		c.join(w)
		batch := offloaded(20*mib, 20*mib)
		for i := range batch {
			batch[i].SentAt = time.Now().Add(-time.Hour)
		}
		w.Handle(t.Context(), batch)
		if took := time.Since(w.start); took != 20*time.Second || len(c.began) != 2 {
			t.Errorf("%d ran in %v", len(c.began), took)
		}
	})
}
