package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestRun_UnknownModelGoesBackUntilNearTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Model = llmq.ModelRef{Alias: "new-model"}
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "model_not_configured")
		if v.After < time.Second || v.After > 5*time.Second || v.Defer != nil {
			t.Errorf("verdict %+v, want an unclaimed release of 1 to 5 s", v)
		}
		if n := len(r.trips.Seen()); n != 0 {
			t.Errorf("%d round trips, want none", n)
		}
		time.Sleep(61 * time.Second)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		if e := r.wantStored(req, llmq.CodeModelNotConfigured); e.Field != "model" {
			t.Errorf("stored %+v", e)
		}
	})
}

func TestRun_WrongWireEndsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Op = llmq.OpConverse
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		r.wantStored(req, llmq.CodeWrongWire)
	})
}

// H11 3.
func TestRun_NothingIsBegunWithoutTime(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{-time.Second, 0, 200 * time.Millisecond} {
		t.Run(left.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				v := r.engine.Run(t.Context(), engine.Call{Request: request(), Limit: time.Now().Add(left)})
				wantVerdict(t, v, engine.Release, "out_of_time")
				if n := len(r.trips.Seen()); n != 0 || r.provider.calls.Load() != 0 || v.Defer != nil {
					t.Errorf("%d round trips and %d provider calls, want none", n, r.provider.calls.Load())
				}
			})
		})
	}
}

func TestRun_LimitCutsTheAttemptAndGivesTheClaimBack(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Minute), func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: start.Add(20 * time.Second)})
		wantVerdict(t, v, engine.Release, "out_of_time")
		if took := time.Since(start); took != 20*time.Second || v.Defer == nil {
			t.Fatalf("cut after %v, defer %v", took, v.Defer != nil)
		}
		if v.After != time.Second {
			t.Errorf("released for %v; a message that comes back at once may find its claim not yet deferred", v.After)
		}
		v.Defer(t.Context())
		time.Sleep(v.After)
		if next := r.take(req, "next"); next.State != claims.Taken || next.Claim.Progress.Attempts != 1 || next.Claim.Takeovers != 0 {
			t.Errorf("next take = %+v, want it free with its attempt counted", next)
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}

func TestRun_LimitEndsTheWaitForASlotByARelease(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				defer r.occupy()()
				req, start := request(), time.Now()
				req.Lane = lane
				v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: start.Add(6 * time.Second)})
				wantVerdict(t, v, engine.Release, "out_of_time")
				if time.Since(start) > 6*time.Second || v.Defer == nil || v.After != time.Second || r.stored(req) != nil {
					t.Errorf("after %v: %+v", time.Since(start), v)
				}
			})
		})
	}
}

// H12, DS16: the last write must not use a context that is dead by then.
func TestRun_DeadlineThatEndsTheContextTooIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Minute), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(5 * time.Second)
		ctx, cancel := context.WithDeadline(t.Context(), req.Deadline)
		defer cancel()
		wantVerdict(t, r.engine.Run(ctx, engine.Call{Request: req}), engine.Stored, "failed")
		r.wantStored(req, llmq.CodeTimeout)
		r.wantSlots(ended(capacity.Failed))
	})
}

func TestRun_CancelledProcessGivesTheRequestBack(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Minute), func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req := request()
		v := r.engine.Run(ctx, engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "out_of_time")
		v.Defer(context.WithoutCancel(ctx))
		time.Sleep(v.After)
		if next := r.take(req, "next"); next.State != claims.Taken {
			t.Errorf("next take = %+v, want it free", next)
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}

func TestRun_PanicLeavesNoGoroutineAndLapses(t *testing.T) {
	t.Parallel()
	bubble(t, func(context.Context, provider.Request) (*provider.Response, error) { panic("boom") }, func(t *testing.T, r *rig) {
		req := request()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			r.engine.Run(t.Context(), engine.Call{Request: req})
		}()
		time.Sleep(capacity.Lease) // nobody renews any more
		r.provider.call = answers("{}", 0)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Takeovers != 1 {
			t.Errorf("meta %+v, want one takeover", m)
		}
	})
}

func TestRun_WipedStoreTakesThePaidResult(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 25*time.Second), func(t *testing.T, r *rig) {
		req := request()
		go func() {
			time.Sleep(15 * time.Second)
			r.mini.FlushAll()
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if res := r.stored(req); res == nil || res.Reply == nil {
			t.Errorf("stored %+v", res)
		}
	})
}

func TestNew_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := engine.New(engine.Config{RTCapacityWait: -1}, engine.Deps{Catalogue: llmq.NewCatalogue([]llmq.Model{{Alias: "m", Targets: []llmq.Target{target()}}})})
	for _, want := range []string{
		"Config.Worker", "Config.AttemptTimeout", "Config.RTCapacityWait", "Deps.Valkey", "Deps.Claims", "Deps.Capacity", "Deps.Results", "Deps.Log",
		"provider p of target m@t",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// DS23: a call that needs longer than its worker's process has is not paid for again and again.
func TestRun_AttemptCutTwiceEndsAsTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Hour), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: time.Now().Add(30 * time.Second)})
		wantVerdict(t, v, engine.Release, "out_of_time")
		v.Defer(t.Context())
		time.Sleep(v.After)
		v = r.engine.Run(t.Context(), engine.Call{Request: req, Limit: time.Now().Add(30 * time.Second)})
		wantVerdict(t, v, engine.Stored, "failed")
		if e := r.wantStored(req, llmq.CodeTimeout); e.Meta.Attempts != 2 {
			t.Errorf("stored %+v, want two attempts", e)
		}
		if n := r.provider.calls.Load(); n != 2 {
			t.Errorf("%d provider calls, want 2", n)
		}
	})
}
