package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// cancel cancels as a client does.
func (r *rig) cancel(req llmq.Request) claims.Cancellation {
	r.t.Helper()
	stored, err := llmq.EncodeResult(llmq.Result{RID: req.RID(), Tenant: req.Tenant, Err: llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")}, nil)
	if err != nil {
		r.t.Fatalf("encode: %v", err)
	}
	return batch(r, func(b *luascript.Batch) luascript.Pending[claims.Cancellation] {
		return r.claims.Cancel(b, req.Tenant, req.ID, stored)
	})
}

// A5, H12 c, DS29.
func TestRun_CancelStopsARunningAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Minute), func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		go func() {
			time.Sleep(time.Second)
			if got := r.cancel(req); got.State != claims.CancelTold || !got.Known {
				t.Errorf("cancel = %+v", got)
			}
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
		if took := time.Since(start); took != time.Second {
			t.Errorf("stopped after %v, want at once", took)
		}
		if e := r.wantStored(req, llmq.CodeCancelled); e.Meta.Attempts != 1 || e.Meta.Target != "t" || e.Meta.Provided != time.Second {
			t.Errorf("stored %+v", e.Meta)
		}
		r.wantSlots(ended(capacity.Abandoned)) // it teaches the limiter nothing
		if got := r.cancel(req); got.State != claims.CancelDone {
			t.Errorf("cancelled again = %+v", got)
		}
	})
}

// A5: a queued call is never run, whoever gets its message.
func TestRun_CancelledBeforeItsTakeIsNeverRun(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		if got := r.cancel(req); got.State != claims.CancelDone || got.Known {
			t.Errorf("cancel = %+v", got)
		}
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		r.wantStored(req, llmq.CodeCancelled)
		if n := r.provider.calls.Load(); n != 0 {
			t.Errorf("%d provider calls, want none", n)
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}

func TestRun_CancelEndsEveryWait(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(r *rig){
		"for a slot":  func(r *rig) { r.hold(target()) },
		"for a retry": func(r *rig) { r.play(throttles(25 * time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				begin(r)
				req, start := request(), time.Now()
				go func() {
					time.Sleep(5 * time.Second)
					r.cancel(req)
				}()
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
				if took := time.Since(start); took != 5*time.Second {
					t.Errorf("ended after %v, want at once", took)
				}
				r.wantStored(req, llmq.CodeCancelled)
			})
		})
	}
}

// DS29: a word that was lost is told by the next renewal.
func TestRun_LostWordOfACancelIsToldByTheRenewal(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Minute), func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			r.client.HSet(t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "cancelled", 1)
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
		if took := time.Since(start); took != engine.RenewEvery {
			t.Errorf("stopped after %v, want at the next renewal", took)
		}
		r.wantStored(req, llmq.CodeCancelled)
	})
}

// DS29: whoever was told that a request is being cancelled gets no reply of it after all: one that
// comes at that moment is not stored.
func TestRun_ReplyThatCrossesACancelIsDropped(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 2*time.Second), func(t *testing.T, r *rig) {
		req := request()
		r.trips.OnTrip(func(ctx context.Context, cmds []redis.Cmder) error {
			if isFinish(cmds) {
				r.client.HSet(ctx, r.space.Call(req.Tenant, req.RID()).Claim, "cancelled", 1)
			}
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
		r.wantStored(req, llmq.CodeCancelled)
		r.wantSlots(ended(capacity.OK)) // the target did answer
	})
}

// One whose owner dies before it could store the cancellation: the next one does, and calls nobody.
func TestRun_CancelOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		r.take(req, "dead")
		if got := r.cancel(req); got.State != claims.CancelTold {
			t.Fatalf("cancel = %+v", got)
		}
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, "running_elsewhere")
		time.Sleep(claims.Lease)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
		if e := r.wantStored(req, llmq.CodeCancelled); e.Meta.Takeovers != 1 || r.provider.calls.Load() != 0 {
			t.Errorf("stored %+v after %d provider calls", e.Meta, r.provider.calls.Load())
		}
	})
}

// A cancel that comes between the end of the work and the return of its claim ends the request there.
func TestRun_CancelDuringAReleaseIsToldAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(throttles(10 * time.Minute))
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "retry_later")
		if got := r.cancel(req); got.State != claims.CancelTold {
			t.Fatalf("cancel = %+v", got)
		}
		v.Defer(t.Context())
		r.wantStored(req, llmq.CodeCancelled)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
	})
}

// A5: one that was handed back ends at once: it is in nobody's hands.
func TestRun_CancelOfAReleasedRequest(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(throttles(10 * time.Minute))
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		r.engine.Run(t.Context(), engine.Call{Request: req}).Defer(t.Context())
		if got := r.cancel(req); got.State != claims.CancelDone {
			t.Errorf("cancel = %+v", got)
		}
		r.wantStored(req, llmq.CodeCancelled)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
	})
}

func TestRun_CancelAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		if got := r.cancel(req); got.State != claims.CancelLate {
			t.Errorf("cancel = %+v", got)
		}
		if res := r.stored(req); res == nil || res.Reply == nil {
			t.Errorf("stored %+v, want the reply", res)
		}
	})
}

// DS15: a deadline is told by the store's clock: a process whose own is ahead hands the message back.
func TestRun_ClockThatIsAheadExpiresNothing(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(-time.Second)
		r.mini.SetTime(time.Now().Add(-4 * time.Second))
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "deadline_ahead")
		if v.After < 2*time.Second || v.After > 4*time.Second || v.Defer == nil || r.stored(req) != nil {
			t.Fatalf("verdict %+v", v)
		}
		v.Defer(t.Context())
		r.mini.SetTime(time.Now().Add(v.After))
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "expired")
	})
}

// DS15: a claim is not given past the deadline either, where the process's own clock is behind.
func TestRun_ClockThatIsBehindBeginsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(time.Second)
		r.mini.SetTime(time.Now().Add(4 * time.Second))
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "expired")
		r.wantStored(req, llmq.CodeExpired)
		if n := r.provider.calls.Load(); n != 0 {
			t.Errorf("%d provider calls, want none", n)
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}

func TestRun_ExpiryThatIsNotOurs(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(time.Second)
		r.take(req, "other")
		time.Sleep(2 * time.Second)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "running_elsewhere")
		if v.After <= 0 || v.After > claims.Lease {
			t.Errorf("verdict %+v", v)
		}
		other := req
		other.Body = []byte(`{"another":"body"}`)
		if v := r.engine.Run(t.Context(), engine.Call{Request: other}); v.Action != engine.Refuse || !errors.Is(v.Err, llmq.CodeIdempotencyMismatch) {
			t.Errorf("another body: %+v", v)
		}
		r.client.HSet(t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "cancelled", 1)
		time.Sleep(claims.Lease)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
		r.wantStored(req, llmq.CodeCancelled)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
	})
}
