package eventsource

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// What an idle mapping costs: AWS bills empty receives.
func TestRun_IdleMappingPollsSeldom(t *testing.T) {
	t.Parallel()
	tests := []struct {
		concurrency, workers int
		polls                int64 // in an hour
	}{
		{0, 2, 2*180 + 3*3}, // three leave after a minute
		{2, 2, 2 * 180},
		{50, 5, 5 * 180}, // AWS keeps five where MaximumConcurrency is set
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.mapping.MaximumConcurrency = tt.concurrency
			s, stop := b.start(t)
			time.Sleep(time.Hour + time.Second) // bubble time
			if st := s.Stats(); st.Workers != tt.workers || st.Polls != tt.polls || st.EmptyPolls != st.Polls {
				t.Errorf("concurrency %d: got %+v, want %d workers, %d polls", tt.concurrency, st, tt.workers, tt.polls)
			}
			stop()
		})
	}
}

func TestRun_GrowsToMaximumConcurrencyAndShrinks(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{2, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.mapping.MaximumConcurrency = limit
			var now, peak atomic.Int64
			b.invoke = func(ctx context.Context, _ string, _ []byte) (lambda.Result, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
					continue
				}
				sleep(ctx, 10*time.Second)
				return lambda.Result{}, nil
			}
			for i := range 100 {
				b.arrive <- texts(fmt.Sprint("m", i))
			}
			s, stop := b.start(t)
			time.Sleep(5 * time.Second)
			if got := s.Stats().Workers; got != limit {
				t.Errorf("limit %d: %d workers under load", limit, got)
			}
			time.Sleep(time.Hour)
			stop()
			if peak.Load() != int64(limit) || len(b.handles()) != 100 {
				t.Errorf("limit %d: peak %d, %d deleted", limit, peak.Load(), len(b.handles()))
			}
			if got := s.Stats(); got.Workers != 0 {
				t.Errorf("limit %d: %d workers after the end", limit, got.Workers)
			}
		})
	}
}

func TestRun_GrowthIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.invoke = func(ctx context.Context, _ string, _ []byte) (lambda.Result, error) {
			sleep(ctx, time.Hour)
			return lambda.Result{}, nil
		}
		b.tuning.DrainTimeout = 0
		for i := range 1000 {
			b.arrive <- texts(fmt.Sprint("m", i))
		}
		s, stop := b.start(t)
		time.Sleep(10*time.Second + time.Millisecond)
		// 5 at once, and 5 a second from the first on; one is always the next to come.
		if got := s.Stats().Polled; got < 5+50 || got > 5+52 {
			t.Errorf("%d batches running after 10s, want about 55", got)
		}
		stop()
	})
}

// AWS's own bound, where the mapping sets none.
func TestRun_NeverMoreThan1250AtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.invoke = func(ctx context.Context, _ string, _ []byte) (lambda.Result, error) {
			sleep(ctx, time.Hour)
			return lambda.Result{}, nil
		}
		b.tuning.DrainTimeout = 0
		for i := range 2000 {
			b.arrive <- texts(fmt.Sprint("m", i))
		}
		s, stop := b.start(t)
		time.Sleep(10 * time.Minute) // 1,250 take a little over four, at 300 a minute
		if got := s.Stats(); got.Concurrency != 1250 || got.PeakConcurrency != 1250 {
			t.Errorf("%d at once, at most %d", got.Concurrency, got.PeakConcurrency)
		}
		stop()
	})
}
