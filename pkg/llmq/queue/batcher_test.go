package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

const (
	bulk   = queue.Name("llm-chat-a-bulk")
	window = 20 * time.Millisecond
)

// carrier notes the requests it gets.
type carrier struct {
	queue.Queue
	takes time.Duration // of a request
	fails string        // the body that is refused

	mu       sync.Mutex
	requests [][]string // the bodies of each
	at       []time.Duration
	began    time.Time
}

func (c *carrier) Send(ctx context.Context, q queue.Name, m queue.Outgoing) error {
	return c.SendAll(ctx, q, []queue.Outgoing{m})[0]
}

func (c *carrier) SendAll(_ context.Context, _ queue.Name, ms []queue.Outgoing) []error {
	var bodies []string
	errs := make([]error, len(ms))
	for i, m := range ms {
		bodies = append(bodies, string(m.Body[:min(len(m.Body), 10)]))
		if string(m.Body) == c.fails {
			errs[i] = llmq.Errorf(llmq.CodeInternal, "refused")
		}
	}
	c.mu.Lock()
	c.requests, c.at = append(c.requests, bodies), append(c.at, time.Since(c.began))
	c.mu.Unlock()
	time.Sleep(c.takes)
	return errs
}

func message(body string) queue.Outgoing { return queue.Outgoing{Body: []byte(body)} }

// B8: what is sent within the window shares a request, and each caller learns of its own message.
func TestBatcher_SendsShareARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &carrier{began: time.Now(), fails: "m3"}
		b := queue.Batched(c, window, 1<<20)
		defer b.Close()
		var wg sync.WaitGroup
		for i := range 7 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				err := b.Send(t.Context(), bulk, message(fmt.Sprint("m", i)))
				if refused := errors.Is(err, llmq.CodeInternal); refused != (i == 3) || (err != nil) != refused {
					t.Errorf("message %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if len(c.requests) != 1 || len(c.requests[0]) != 7 || c.at[0] != window {
			t.Errorf("requests %v at %v, want one of 7 at %s", c.requests, c.at, window)
		}
	})
}

// B8: a full batch goes at once, by count and by bytes; queues don't share.
func TestBatcher_AFullBatchGoesAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what  string
		sizes []int
		want  []int // messages by request, those that went at once
	}{
		{"by count", slices.Repeat([]int{10}, 12), []int{10}},
		{"by bytes", []int{600 << 10, 300 << 10, 600 << 10}, []int{2}},
		{"one that is too large alone", []int{10, 2 << 20}, []int{1}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &carrier{began: time.Now()}
				b := queue.Batched(c, window, 1<<20)
				var wg sync.WaitGroup
				for _, size := range tc.sizes {
					wg.Go(func() { _ = b.Send(t.Context(), bulk, queue.Outgoing{Body: make([]byte, size)}) })
					synctest.Wait()
				}
				c.mu.Lock()
				var got []int
				for _, r := range c.requests {
					got = append(got, len(r))
				}
				c.mu.Unlock()
				if !slices.Equal(got, tc.want) {
					t.Errorf("at once went %v, want %v", got, tc.want)
				}
				b.Close()
				wg.Wait()
			})
		})
	}
}

// B8: a caller that leaves in time has sent nothing; one that leaves later knows nothing; neither
// takes the others' messages with it.
func TestBatcher_WhoLeavesTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &carrier{began: time.Now(), takes: time.Second}
		b := queue.Batched(c, window, 1<<20)
		defer b.Close()
		early, cancel := context.WithTimeout(t.Context(), window/2)
		defer cancel()
		late, cancel := context.WithTimeout(t.Context(), 5*window)
		defer cancel()
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{early, late, t.Context()} {
			wg.Go(func() { errs[i] = b.Send(ctx, bulk, message(fmt.Sprint("m", i))) })
		}
		wg.Wait()
		if !errors.Is(errs[0], queue.ErrNotSent) || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("who left early got %v", errs[0])
		}
		if !errors.Is(errs[1], llmq.CodeQueueUnavailable) || errors.Is(errs[1], queue.ErrNotSent) {
			t.Errorf("who left late got %v", errs[1])
		}
		if errs[2] != nil {
			t.Errorf("who stayed got %v", errs[2])
		}
		if len(c.requests) != 1 || len(c.requests[0]) != 2 {
			t.Errorf("requests %v, want one of two", c.requests)
		}
	})
}

func TestBatcher_CloseSendsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &carrier{began: time.Now()}
		b := queue.Batched(c, time.Hour, 1<<20)
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { err = b.Send(t.Context(), bulk, message("m")) })
		synctest.Wait()
		b.Close()
		wg.Wait()
		if err != nil || len(c.requests) != 1 || c.at[0] != 0 {
			t.Errorf("%v, requests %v at %v", err, c.requests, c.at)
		}
		if err := b.Send(t.Context(), bulk, message("n")); err != nil || len(c.requests) != 2 {
			t.Errorf("after the close: %v, requests %v", err, c.requests)
		}
	})
}

// Whatever comes when and whoever leaves: each message that its caller was told of is sent once, one whose caller
// left in time is never, and no request is above the limits.
func TestBatcher_EachMessageOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		waits := rapid.SliceOfN(rapid.IntRange(0, 60), 1, 40).Draw(rt, "sent after ms")
		leaves := rapid.SliceOfN(rapid.IntRange(1, 80), len(waits), len(waits)).Draw(rt, "left after ms")
		synctest.Test(t, func(*testing.T) {
			c := &carrier{began: time.Now(), takes: 10 * time.Millisecond}
			b := queue.Batched(c, window, 1<<20)
			errs := make([]error, len(waits))
			var wg sync.WaitGroup
			for i := range waits {
				wg.Go(func() {
					time.Sleep(time.Duration(waits[i]) * time.Millisecond)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(leaves[i])*time.Millisecond)
					defer cancel()
					errs[i] = b.Send(ctx, bulk, message(fmt.Sprint(i)))
				})
			}
			wg.Wait()
			b.Close()
			times := map[string]int{}
			for _, r := range c.requests {
				if len(r) > 10 {
					rt.Errorf("a request of %d messages", len(r))
				}
				for _, body := range r {
					times[body]++
				}
			}
			for i, err := range errs {
				switch got := times[fmt.Sprint(i)]; {
				case err == nil && got != 1, errors.Is(err, queue.ErrNotSent) && got != 0, got > 1:
					rt.Errorf("message %d: %v, sent %d times", i, err, got)
				}
			}
		})
	})
}
