package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

func (r *rig) wantCancelled(tenant, id string, want client.Cancelled) {
	r.t.Helper()
	got, err := r.Cancel(r.t.Context(), tenant, id)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		r.t.Errorf("cancel: %v (-want +got):\n%s", err, diff)
	}
}

// A5: everybody who waits for a queued request is told at once.
// DS28.
func TestCancel_TellsEveryWaiter(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() {
				_, err := r.Do(t.Context(), req)
				errs <- err
			}()
		}
		const after = 4 * time.Second // not at a sweep's moment: a crowd that both wake is read some 3 ms later
		time.Sleep(after)
		r.wantCancelled(req.Tenant, req.ID, client.Cancelled{Known: true})
		for range cap(errs) {
			err := <-errs
			if e, ok := errors.AsType[*llmq.Error](err); !ok || e.Code != llmq.CodeCancelled || e.Meta.RequestID != req.ID {
				t.Errorf("a waiter got %v", err)
			}
		}
		if took := time.Since(start); took != after {
			t.Errorf("told after %v, want at once", took)
		}
		r.wantCancelled(req.Tenant, req.ID, client.Cancelled{Known: true})
	})
}

// DS30.
func TestCancel_TellsWhatHasBecomeOfIt(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		req := request()
		r.wantReply(req)
		r.wantCancelled(req.Tenant, req.ID, client.Cancelled{Over: true, Known: true})
		r.wantReply(req) // as before
		running := request()
		running.ID = "running"
		var b luascript.Batch
		r.claims.Take(&b, running, claims.BodyHash(running), "w/1")
		if err := b.Run(t.Context(), r.valkey); err != nil {
			t.Fatalf("take: %v", err)
		}
		r.wantCancelled(running.Tenant, running.ID, client.Cancelled{Running: true, Known: true})
		r.wantCancelled(running.Tenant, running.ID, client.Cancelled{Running: true, Known: true})
	})
}

// An id that is not known yet may be on its way: it is refused when it comes. Another tenant's is not touched.
func TestCancel_OfAnUnknownID(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		req := request()
		r.wantCancelled("other-team", req.ID, client.Cancelled{})
		r.wantReply(req)
		late := request()
		late.ID = "late"
		r.wantCancelled(late.Tenant, late.ID, client.Cancelled{})
		e, ok := errors.AsType[*llmq.Error](second(r.Do(t.Context(), late)))
		if !ok || e.Code != llmq.CodeCancelled {
			t.Errorf("do = %v, want it cancelled", e)
		}
		r.want(2, 1)
	})
}

func second[A, B any](_ A, b B) B { return b }

func TestCancel_RefusesWhatIsNoID(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		for _, bad := range [][2]string{{"T", "r"}, {"t", ""}, {"t", "a b"}} {
			if _, err := r.Cancel(t.Context(), bad[0], bad[1]); !errors.Is(err, llmq.CodeInvalidRequest) {
				t.Errorf("cancel %q = %v, want invalid_request", bad, err)
			}
		}
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
		if _, err := r.Cancel(t.Context(), "t", "r"); !errors.Is(err, llmq.CodeQueueUnavailable) {
			t.Errorf("cancel = %v, want queue_unavailable", err)
		}
	})
}

// A5: a Go caller's cancelled context cancels where its program wants that; a deadline of its own never does.
func TestDo_CancelledContextCancels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		with   bool
		end    func(context.Context) (context.Context, context.CancelFunc)
		code   llmq.Code
		marked string
	}{
		"wanted": {true, cancelAfter(5 * time.Second), llmq.CodeCancelled, "1"},
		"not":    {false, cancelAfter(5 * time.Second), llmq.CodeTimeout, ""},
		"its own deadline": {true, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		}, llmq.CodeTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := client.Config{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000, CancelWithContext: tc.with}
				r := newRigWith(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), cfg, nil)
				ctx, cancel := tc.end(t.Context())
				defer cancel()
				req := request()
				r.wantError(ctx, req, tc.code)
				if got := r.valkey.HGet(t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "cancelled").Val(); got != tc.marked {
					t.Errorf("the claim is marked %q, want %q", got, tc.marked)
				}
			})
		})
	}
}

func cancelAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			time.Sleep(d)
			cancel()
		}()
		return ctx, cancel
	}
}
