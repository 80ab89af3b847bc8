package engine_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// F4: 128 calls of 20 ms come at once, and as many are taken up at a time as the limit has slots. Claim, admission and settlement add no
// wait of their own: what a call waits is its place in the queue, over fifty times the service at a limit of one and none at 128, and the
// service never changes. Time is a bubble's, so it is the same on every machine; local/bench/sweep measures it on a real Valkey.
func TestRun_QueuedAgainstServiceAsTheLimitRises(t *testing.T) {
	t.Parallel()
	const tasks, service = 128, 20 * time.Millisecond
	for limit, want := range map[int]float64{1: 63.5, 4: 15.5, 16: 3.5, 64: 0.5, 128: 0} { // (tasks / limit - 1) / 2
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex // guards what follows
			var began time.Time
			var queued, served time.Duration
			call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
				at := time.Now()
				reply, err := answers("{}", service)(ctx, req)
				mu.Lock()
				defer mu.Unlock()
				queued, served = queued+at.Sub(began), served+time.Since(at)
				return reply, err
			}
			bubble(t, call, func(t *testing.T, r *rig) {
				wide := target()
				wide.MaxConcurrency, wide.Limits.Initial = limit, limit
				r.models[0].Targets[0] = wide
				r.engine = r.newEngine("w1", time.Minute)
				waiting := make(chan llmq.Request, tasks)
				for i := range tasks {
					req := request()
					req.ID = "task-" + strconv.Itoa(i)
					waiting <- req
				}
				close(waiting)
				began = time.Now()
				var takers sync.WaitGroup
				for range limit {
					takers.Go(func() {
						for req := range waiting {
							wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
						}
					})
				}
				takers.Wait()
			})
			if served != tasks*service {
				t.Errorf("service takes %s, want %s", served/tasks, service)
			}
			if ratio := float64(queued) / float64(served); ratio != want {
				t.Errorf("queued is %v times service, want %v", ratio, want)
			}
		})
	}
}
