package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// lose makes the state store fail every call for a while; 0 is for ever.
func (r *rig) lose(d time.Duration) {
	end := time.Now().Add(d)
	r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
		if d == 0 || time.Now().Before(end) {
			return errors.New("connection refused")
		}
		return nil
	})
}

// once is a request that nobody can send again, to a target without a cap.
func once(n int) llmq.Request {
	r := numbered(n)
	r.Model.Alias, r.OneOff = "free", true
	return r
}

// D11: a call that was not sent yet, whose caller waits and whose id nobody else has, is run without the store once that has failed
// for as long as it may.
func TestDo_LostStoreIsDoneWithout(t *testing.T) {
	t.Parallel()
	directly(t, nil, func(t *testing.T, r *rig) {
		r.lose(0)
		began := time.Now()
		r.served(once(0), 3*time.Second)
		if took := time.Since(began); took < 1500*time.Millisecond {
			t.Errorf("after %v, want the store tried for 2s", took)
		}
		r.want(0, 0)
	})
}

// D11: one that is back in time costs nothing but the wait.
func TestDo_StoreThatBlinksIsWaitedFor(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.lose(time.Second)
		r.wantReply(once(0))
		r.want(1, 1)
		if r.provided.Load() != 0 {
			t.Error("it was run here")
		}
	})
}

// D11, DS45: all else is unavailable, with a time to come back at.
func TestDo_LostStoreIsUnavailableForAllElse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *llmq.Request){
		"an id of the caller's own": func(r *llmq.Request) { r.OneOff = false },
		"bg":                        func(r *llmq.Request) { r.Lane = llmq.LaneBG },
		"bulk":                      func(r *llmq.Request) { r.Lane = llmq.LaneBulk },
		"a target with a cap":       func(r *llmq.Request) { r.Model.Alias = "m" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directly(t, nil, func(t *testing.T, r *rig) {
				r.lose(0)
				req := once(0)
				change(&req)
				if e := r.failure(t.Context(), req, llmq.CodeQueueUnavailable); e.RetryAfter <= 0 {
					t.Errorf("no Retry-After: %+v", e)
				}
				if r.provided.Load() != 0 {
					t.Error("it was run here")
				}
			})
		})
	}
}

// D11: one at a time in a process.
func TestDo_OneCallAtATimeWithoutAStore(t *testing.T) {
	t.Parallel()
	directly(t, nil, func(t *testing.T, r *rig) {
		r.lose(0)
		hold := make(chan struct{})
		r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
			<-hold
			return &provider.Response{Status: 200, Body: []byte(`{"for":"here"}`)}, nil
		}
		var first sync.WaitGroup
		first.Go(func() { r.served(once(0), time.Minute) })
		time.Sleep(3 * time.Second)
		r.wantError(t.Context(), once(1), llmq.CodeQueueUnavailable)
		close(hold)
		first.Wait()
		r.served(once(2), 3*time.Second)
	})
}

// D11: of many processes so many run one as the limit has room for that was last heard of.
func TestDo_ProcessesShareTheLimitWithoutAStore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		heard     bool
		low, high int // of 400 calls
	}{
		"as configured":      {low: 50, high: 120}, // 20 slots of 100 processes
		"as it was heard of": {heard: true, low: 10, high: 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg, m := directConfig(), llmqtest.NewMiniredis(t)
				cfg.Callers, cfg.StoreWait = 100, 0
				r := newRigWith(t, luatest.Pipe(t, m), cfg, replies(0))
				if tc.heard { // 5 slots are in force
					law, deps := capacity.DefaultLaw(), r.Deps
					law.Initial = 5
					deps.Capacity = deps.Capacity.Tuned(law, capacity.Lease)
					c, err := client.New(cfg, deps)
					if err != nil {
						t.Fatal(err)
					}
					r.Client = c
					r.wantReply(once(1000))
					r.working.Wait()
				}
				r.lose(0)
				served := 0
				for i := range 400 {
					if _, err := r.Do(t.Context(), once(i)); err == nil {
						served++
					}
				}
				if served < tc.low || served > tc.high {
					t.Errorf("%d of 400 were served, want %d to %d", served, tc.low, tc.high)
				}
			})
		})
	}
}
