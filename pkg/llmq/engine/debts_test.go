package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// C9, DS38: a take and an admission that took effect though their caller gave up are undone by the next run of the process
// that hears the store: no slot and no claim of nobody is left to lapse.
func TestRun_LateEffectsAreUndoneByTheNextRun(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		warm, req, next := request(), request(), request()
		warm.ID, next.ID = "warm", "next"
		r.engine.Run(t.Context(), engine.Call{Request: warm}) // the store learns the scripts
		r.trips.OnAnswer(func(context.Context, []redis.Cmder) error { return errors.New("i/o timeout") })
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, engine.ReasonStoreUnavailable)
		r.trips.OnAnswer(nil)
		if other := r.take(req, "probe"); other.State != claims.Busy {
			t.Fatalf("take = %+v, want a claim of nobody's", other)
		}
		start := time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: next}), engine.Stored, "ok")
		if took := time.Since(start); took > time.Second {
			t.Errorf("the next request waited %v for the slot of nobody", took)
		}
		if other := r.take(req, "other"); other.State != claims.Taken || other.Claim.Takeovers != 0 {
			t.Errorf("take = %+v, want it free", other)
		}
	})
}

// DS38: the request itself is not sent away for the lease of its own former claim.
func TestRun_OwnLateClaimIsNoOtherOwner(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		warm, req := request(), request()
		warm.ID = "warm"
		r.engine.Run(t.Context(), engine.Call{Request: warm})
		r.trips.OnAnswer(func(context.Context, []redis.Cmder) error { return errors.New("i/o timeout") })
		r.engine.Run(t.Context(), engine.Call{Request: req})
		r.trips.OnAnswer(nil)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if in := r.peek(target()).InUse; in != 0 {
			t.Errorf("%d slots are held", in)
		}
	})
}

// DS38: a result that the store did not take is told by the next run of the process, and the slot goes back with what it
// has cost; the fence decides as ever.
func TestRun_UnstoredResultIsToldByTheNextRun(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`"first"`, 0), func(t *testing.T, r *rig) {
		req, next := request(), request()
		next.ID = "next"
		back := r.deaf()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		back()
		r.engine.Run(t.Context(), engine.Call{Request: next})
		if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != `"first"` {
			t.Errorf("stored %+v, want the reply", res)
		}
		if in := r.peek(target()).InUse; in != 0 {
			t.Errorf("%d slots are held", in)
		}
	})
}

// A queued request that waited for a slot while the store was silent has not learned that there is none: it goes back. (An rt one waits on:
// TestRun_RTsWaitLeavesOutALostStore.)
func TestRun_WaitInTheDarkIsNoLackOfCapacity(t *testing.T) {
	t.Parallel()
	for _, lane := range []llmq.Lane{llmq.LaneBG, llmq.LaneBulk} {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				defer r.occupy()()
				start, req := time.Now(), request()
				req.Lane = lane
				r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
					if since := time.Since(start); since > time.Second && since < 8*time.Second {
						return errors.New("connection refused")
					}
					return nil
				})
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				wantVerdict(t, v, engine.Release, engine.ReasonStoreUnavailable)
				if r.stored(req) != nil || r.provider.calls.Load() != 0 {
					t.Errorf("a result is stored, or %d calls were made", r.provider.calls.Load())
				}
				if log := r.log.String(); strings.Contains(log, "level=WARN") || !strings.Contains(log, "state store failed") {
					t.Errorf("the log is\n%s", log)
				}
			})
		})
	}
}
