package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// A5: a Go caller that gives up a call that runs here has it cancelled, and its slot is free again.
func TestDo_DirectIsCancelledWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := directConfig()
		cfg.CancelWithContext = true
		r := newRigWith(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), cfg, nil)
		r.preset()
		r.sendErr = refused()
		r.provide = func(ctx context.Context, _ provider.Request) (*provider.Response, error) {
			<-ctx.Done()
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Err: ctx.Err()}
		}
		ctx, cancel := cancelAfter(5 * time.Second)(t.Context())
		defer cancel()
		r.wantError(ctx, request(), llmq.CodeCancelled)
		r.provide = nil
		r.served(numbered(1), 0)
	})
}

// Nothing of this costs a call that is served as ever a round trip, and no engine is made for it.
func TestDo_NormalOperationMakesNoEngine(t *testing.T) {
	t.Parallel()
	directly(t, replies(time.Second), func(t *testing.T, r *rig) {
		r.wantReply(numbered(0))
		r.working.Wait()
		r.trips.Seen()
		r.wantReply(numbered(1))
		r.working.Wait()
		if n := len(r.trips.Seen()); n != 3+2 { // the stand-in for a worker makes two
			t.Errorf("%d round trips, want 3", n-2)
		}
		if r.engines.Load() != 0 {
			t.Errorf("%d engines made", r.engines.Load())
		}
	})
}

// D10: while the state store can't be told either, a process counts for itself.
func TestDo_CountsForItselfWithoutAStore(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.hangs()
		r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
			if name := cmds[0].Name(); name == "set" {
				return errors.New("connection refused")
			}
			return nil
		})
		for i := range 3 {
			r.served(numbered(i), 6*time.Second)
		}
		r.served(numbered(3), 0)
	})
}

// E12: a process that ran a call here dies, and no message tells of it. Who asks again by the same id hears as soon as the
// dead one's lease has ended: an error while the queue is still down, the reply where it is back.
func TestDo_DirectRunnerThatDiedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"queue still down": false, "queue back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directly(t, replies(0), func(t *testing.T, r *rig) {
				r.sendErr = refused()
				r.served(numbered(0), 0) // the model's calls run here from now on
				req := request()
				var b luascript.Batch
				taken := r.claims.Take(&b, req, claims.BodyHash(req), "dead/1")
				if err := b.Run(t.Context(), r.valkey); err != nil {
					t.Fatal(err)
				}
				if _, err := taken(); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if back {
					r.sendErr = nil
					r.wantReply(req)
				} else {
					r.serve = nil
					r.wantError(t.Context(), req, llmq.CodeQueueUnavailable)
				}
				if took := time.Since(began); took > claims.Lease+5*time.Second {
					t.Errorf("heard after %v, want it soon after the lease of %v", took, claims.Lease)
				}
			})
		})
	}
}
