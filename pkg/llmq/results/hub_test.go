package results

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func TestHub_WokenWaiterGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		ids := []string{"a", "b", "c"}
		var ws []*Waiter
		for _, id := range ids {
			ws = append(ws, h.subscribe(t, id))
		}
		for _, id := range slices.Backward(ids) {
			h.finish(t, id)
		}
		for i, w := range ws {
			wantResult(t, w, ids[i], SweepEvery/2) // by the wake, not by the sweep
			w.Close()
		}
	})
}

func TestHub_TwoWaitersOfOneRequestAreBothServed(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		first, second := h.subscribe(t, "a"), h.subscribe(t, "a")
		third := h.subscribe(t, "a")
		third.Close() // the others stay subscribed
		h.finish(t, "a")
		wantResult(t, first, "a", SweepEvery/2)
		wantResult(t, second, "a", SweepEvery/2)
		first.Close()
		second.Close()
		second.Close() // again: nothing
	})
}

func TestHub_ManySubscribeAndLeaveAtOnce(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for round := range 5 {
					id := fmt.Sprintf("%d-%d", i/2, round) // two of each id at the same time
					w, err := h.Subscribe(t.Context(), request(id))
					if err != nil {
						t.Errorf("subscribe: %v", err)
						return
					}
					h.finish(t, id)
					wantResult(t, w, id, 2*SweepEvery)
					w.Close()
				}
			})
		}
		all.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.session != nil || len(h.waiting) != 0 || h.due != nil {
			t.Errorf("something is left: session %v, %d channels, %d due", h.session, len(h.waiting), len(h.due))
		}
	})
}

// bubble runs a test of a hub on miniredis in a bubble; dial, when set, replaces the way
// to it.
func bubble(t *testing.T, test func(t *testing.T, m *miniredis.Miniredis, h hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		test(t, m, newHub(t, luatest.Pipe(t, m)))
	})
}

func TestHub_SweepFindsWhatAWakeDidNotTell(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		w, noisy := h.subscribe(t, "a"), h.subscribe(t, "b")
		defer w.Close()
		defer noisy.Close()
		h.put(t, "a")
		start := time.Now()
		go func() { // others' wakes all the while must not keep the sweep away
			for range 5 {
				time.Sleep(time.Second)
				h.wake(t, "b")
			}
		}()
		wantResult(t, w, "a", 3*SweepEvery)
		if took := time.Since(start); took > SweepEvery+time.Second {
			t.Errorf("found after %v, want at most %v", took, SweepEvery+time.Second)
		}
		time.Sleep(SweepEvery)
	})
}

func TestHub_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		w := h.subscribe(t, "a")
		defer w.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := w.Result(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v; want the context's end", got, err)
		}
		h.finish(t, "a")
		synctest.Wait()
		if got, err := w.Result(ctx); err != nil || string(got) != "result of a" {
			t.Errorf("a result that is there = %q, %v; want it even when the context has ended", got, err)
		}
	})
}

func TestHub_FailedReadIsMadeAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		var fails atomic.Int32
		fails.Store(3)
		h.client.AddHook(&luatest.Trips{After: func(_ context.Context, cmds []redis.Cmder) error {
			if cmds[0].Name() == "get" && fails.Add(-1) >= 0 {
				return errors.New("connection reset")
			}
			return nil
		}})
		w := h.subscribe(t, "a")
		defer w.Close()
		h.finish(t, "a")
		wantResult(t, w, "a", SweepEvery/2)
	})
}

// Not in a bubble: the library holds its mutex while it dials.
func TestHub_SubscribeFailsInTimeWhenTheStoreIsDown(t *testing.T) {
	t.Parallel()
	hole, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	c := redis.NewClient(&redis.Options{
		Addr: hole.Addr().String(), DisableIdentity: true, ContextTimeoutEnabled: true,
		ReadTimeout: 200 * time.Millisecond, DialTimeout: 200 * time.Millisecond, MaxRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close(); _ = hole.Close() })
	h := newHub(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if w, err := h.Subscribe(ctx, request("a")); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("subscribe = %v, %v; want queue_unavailable", w, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil {
		t.Error("a session is left")
	}
}
