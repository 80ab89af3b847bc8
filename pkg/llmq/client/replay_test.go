package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// D14: who gives a call up while the state store is lost has it cancelled once the store is back, or never where its deadline
// comes first.
func TestDo_CancelIsSaidAgainOnceTheStoreIsBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lost   time.Duration
		marked string
	}{
		"back in time":         {10 * time.Second, "1"},
		"back when it is over": {3 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := client.Config{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000, CancelWithContext: true}
				r := newRigWith(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), cfg, nil)
				defer r.Close()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				req := request()
				go func() {
					_, err := r.Do(ctx, req)
					ended <- err
				}()
				time.Sleep(1500 * time.Millisecond) // it is sent, and waited for
				synctest.Wait()
				r.lose(tc.lost)
				cancel()
				if err := <-ended; !errors.Is(err, llmq.CodeTimeout) {
					t.Errorf("do: %v, want a call that goes on", err)
				}
				time.Sleep(tc.lost + 2*time.Second)
				synctest.Wait()
				r.trips.OnTrip(nil)
				if got := r.valkey.HGet(t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "cancelled").Val(); got != tc.marked {
					t.Errorf("the claim is marked %q, want %q", got, tc.marked)
				}
			})
		})
	}
}

// Close ends what is still to be said; a client that says nothing more can be used on.
func TestClose_EndsTheReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := client.Config{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000, CancelWithContext: true}
		r := newRigWith(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), cfg, nil)
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r.wantError(ctx, request(), llmq.CodeTimeout)
		}
		time.Sleep(5 * time.Second)
		r.Close()
		r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.wantError(ctx, request(), llmq.CodeTimeout) // starts nothing any more
	})
}
