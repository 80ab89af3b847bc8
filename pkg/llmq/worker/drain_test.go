package worker_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// drainBubble is bubble with a drain of 20 s and room for one body of 10 MiB.
func drainBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{start: time.Now()}
		cfg := config()
		cfg.Drain, cfg.BodyBytes = 20*time.Second, 64*mib
		for l, lane := range cfg.Timeouts {
			lane.Default = 70 * time.Second
			cfg.Timeouts[l] = lane
		}
		made, err := worker.New(cfg, worker.Deps{Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w}, Log: slog.New(slog.NewJSONHandler(&w.log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.Worker = made
		test(t, w)
	})
}

// runsFor is an engine whose calls take a while, and are handed back when they are cut.
func runsFor(d time.Duration) func(context.Context, engine.Call) engine.Verdict {
	return func(ctx context.Context, _ engine.Call) engine.Verdict {
		select {
		case <-time.After(d):
			return engine.Verdict{Action: engine.Stored, Reason: "ok"}
		case <-ctx.Done():
			return engine.Verdict{Action: engine.Release, Reason: "draining", After: time.Second}
		}
	}
}

// ends are the outcomes of a batch and when it returned, as "seconds", "id reason", ….
func (w *world) ends(outs []worker.Outcome) []string {
	ends := []string{time.Since(w.start).String()}
	for _, o := range outs {
		ends = append(ends, o.MessageID+" "+o.Reason)
	}
	return ends
}

// E11, DS48: what runs comes to its end, what waits for memory is back in its queue at once.
func TestDrain_WhatRunsEndsAndWhatWaitsForMemoryIsReleased(t *testing.T) {
	t.Parallel()
	drainBubble(t, func(t *testing.T, w *world) {
		w.get = func(context.Context, llmq.Ref) ([]byte, error) { return []byte(`{"messages":[]}`), nil }
		w.run = runsFor(15 * time.Second)
		time.AfterFunc(2*time.Second, w.Drain)
		outs := w.Handle(t.Context(), offloaded(10*mib, 10*mib))
		if outs[0].Reason == "ok" { // either may have entered first
			slices.Reverse(outs)
		}
		waited, ran := outs[0], outs[1]
		if took := time.Since(w.start); took != 15*time.Second || ran.Reason != "ok" || waited.Reason != "draining" {
			t.Errorf("%+v after %v", outs, took)
		}
		if did := strings.Join(w.done(), "\n"); !strings.Contains(did, "2s hide h"+waited.MessageID+" of llm-chat-a-rt for 0s") {
			t.Errorf("did:\n%s", did)
		}
	})
}

// E11: what still runs at the drain's end is cut, and Handle returns.
func TestDrain_WhatRunsForTooLongIsCut(t *testing.T) {
	t.Parallel()
	drainBubble(t, func(t *testing.T, w *world) {
		w.run = runsFor(40 * time.Second)
		time.AfterFunc(2*time.Second, func() { w.Drain(); w.Drain() })
		got := w.ends(w.Handle(t.Context(), messages(2)))
		if diff := cmp.Diff([]string{"22s", "1 draining", "2 draining"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// E11: a batch that comes after the drain is handed back whole: its bodies are not even fetched.
func TestDrain_NothingBeginsAfterIt(t *testing.T) {
	t.Parallel()
	drainBubble(t, func(t *testing.T, w *world) {
		w.Drain()
		got := w.ends(w.Handle(t.Context(), append(messages(1), offloaded(1)...)))
		if diff := cmp.Diff([]string{"0s", "1 draining", "a draining"}, got); diff != "" {
			t.Error(diff)
		}
		if len(w.calls) != 0 {
			t.Errorf("%d calls", len(w.calls))
		}
	})
}

// E11: whoever waits for a body store that hangs, and whoever waits to run by himself, waits no longer.
func TestDrain_OtherWaitsEnd(t *testing.T) {
	t.Parallel()
	drainBubble(t, func(t *testing.T, w *world) {
		w.get = func(ctx context.Context, _ llmq.Ref) ([]byte, error) {
			<-ctx.Done()
			return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "gone").Because(ctx.Err())
		}
		w.run = func(ctx context.Context, c engine.Call) engine.Verdict {
			if c.Request.ID != "r-1" {
				return runsFor(10*time.Second)(ctx, c)
			}
			time.Sleep(time.Second)
			if c.Alone(ctx, 1) {
				t.Error("it is alone beside another")
			}
			w.note("waits no longer")
			return engine.Verdict{Action: engine.Release, Reason: "must_run_alone", After: time.Second}
		}
		time.AfterFunc(5*time.Second, w.Drain)
		got := w.ends(w.Handle(t.Context(), append(messages(2), offloaded(1)...)))
		if diff := cmp.Diff([]string{"10s", "1 must_run_alone", "2 ok", "a draining"}, got); diff != "" {
			t.Error(diff)
		}
		if did := strings.Join(w.done(), "\n"); !strings.Contains(did, "5s waits no longer") || !strings.Contains(did, "5s hide ha of llm-chat-a-rt for 0s") {
			t.Errorf("did:\n%s", did)
		}
	})
}

// E11: the engine is told to start nothing more.
func TestDrain_StopsTheEngine(t *testing.T) {
	t.Parallel()
	drainBubble(t, func(t *testing.T, w *world) {
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			<-c.Stop
			return engine.Verdict{Action: engine.Release, Reason: "draining", After: 3 * time.Second}
		}
		time.AfterFunc(2*time.Second, w.Drain)
		got := w.ends(w.Handle(t.Context(), messages(1)))
		if diff := cmp.Diff([]string{"2s", "1 draining"}, got); diff != "" {
			t.Error(diff)
		}
	})
}
