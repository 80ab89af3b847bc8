package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestRun_SuccessIsStoredByteForByteInTwoRoundTrips(t *testing.T) {
	t.Parallel()
	const body = "{ \"x\" : \"<y>\",\n\"n\":1.0}"
	bubble(t, answers(body, 2*time.Second), func(t *testing.T, r *rig) {
		r.provider.call = func(ctx context.Context, req provider.Request) (*provider.Response, error) {
			if diff := cmp.Diff(provider.Request{Op: llmq.OpChat, ModelID: "gpt-x", Body: request().Body, Tenant: "team", ID: req.ID, Attempt: 1}, req); diff != "" {
				t.Errorf("the provider's request (-want +got):\n%s", diff)
			}
			return answers(body, 2*time.Second)(ctx, req)
		}
		warm := request()
		warm.ID = "warm" // the store learns the scripts
		r.engine.Run(t.Context(), engine.Call{Request: warm})
		r.trips.Seen()

		req := request()
		queued := time.Now()
		time.Sleep(3 * time.Second)
		v := r.engine.Run(t.Context(), engine.Call{Request: req, QueuedAt: queued})
		wantVerdict(t, v, engine.Stored, "ok")
		if diff := cmp.Diff([][]string{{"evalsha", "evalsha"}, {"evalsha", "evalsha"}}, r.trips.Seen()); diff != "" {
			t.Errorf("round trips of one call (-want +got):\n%s", diff)
		}
		want := &llmq.Result{RID: req.RID(), Tenant: "team", BodyHash: claims.BodyHash(req), Reply: &llmq.Reply{
			Status: 200, ContentType: "application/json", Body: []byte(body),
			Meta: llmq.Meta{
				RequestID: "req-1", Model: "m", Target: "t", Provider: "p", ModelID: "gpt-x", Lane: llmq.LaneRT,
				Attempts: 1, QueueWait: 3 * time.Second, Provided: 2 * time.Second, Worker: "w1",
			},
		}}
		if diff := cmp.Diff(want, r.stored(req)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.OK: 2}})
	})
}

// DS5.
func TestRun_SecondRunOfAnEndedRequestCallsNobody(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		if n := r.provider.calls.Load(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
		r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.OK: 1, capacity.Abandoned: 1}})
	})
}

func TestRun_LargeReplyLiesElsewhere(t *testing.T) {
	t.Parallel()
	body := `{"x":"` + strings.Repeat("y", 5000) + `"}`
	bubble(t, answers(body, 0), func(t *testing.T, r *rig) {
		req := request()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		if raw := r.client.Get(t.Context(), r.space.Call("team", req.RID()).Result).Val(); len(raw) > 1000 {
			t.Errorf("%d bytes lie in the store", len(raw))
		}
		if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != body {
			t.Errorf("the reply did not come back: %+v", res)
		}
	})
}

func TestRun_FailuresAreStoredAsWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		failure provider.Error
		ending  capacity.Ending
		code    llmq.Code
		message string
		after   time.Duration
	}{
		{
			"throttle",
			provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, Message: "slow down", RetryAfter: 7 * time.Second},
			capacity.Throttled, llmq.CodeRateLimited, "m@t: slow down", 7 * time.Second,
		},
		{
			"call-fatal",
			provider.Error{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400, Message: "bad temperature"},
			capacity.Failed, llmq.CodeProviderRejected, "m@t: bad temperature", 0,
		},
		{
			"target-fatal",
			provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderAuth, Status: 403},
			capacity.Failed, llmq.CodeProviderAuth, "m@t: status 403", 0,
		},
		{
			"no answer",
			provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Err: errors.New("connection reset")},
			capacity.Failed, llmq.CodeProviderError, "m@t: no answer", 0,
		},
		{
			"timed out by itself",
			provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Err: errors.New("header")},
			capacity.Failed, llmq.CodeTimeout, "m@t did not answer in time", 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, fails(tc.failure), func(t *testing.T, r *rig) {
				r.once()
				req := request()
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, string(tc.ending))
				e := r.wantStored(req, tc.code)
				if e.Message != tc.message || e.RetryAfter != tc.after || e.Meta.Attempts != 1 || e.Meta.Target != "t" {
					t.Errorf("stored %+v", e)
				}
				r.wantSlots(ended(tc.ending))
				if log := r.log.String(); strings.Contains(log, tc.failure.Message) && tc.failure.Message != "" || strings.Contains(log, "the prompt") {
					t.Errorf("the log quotes the call:\n%s", log)
				}
			})
		})
	}
}

// H12 a, DS15.
func TestRun_DeadlinePassedInTheQueueCallsNobody(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(-2 * time.Second)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "expired")
		r.wantStored(req, llmq.CodeExpired)
		if n := r.provider.calls.Load(); n != 0 {
			t.Errorf("%d provider calls, want none", n)
		}
		r.wantSlots(free())
	})
}

// H12 b.
func TestRun_SlowProviderIsCutAtTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 10*time.Second), func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		req.Deadline = start.Add(3 * time.Second)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("cut after %v, want 3s", took)
		}
		r.wantStored(req, llmq.CodeTimeout)
		r.wantSlots(ended(capacity.Failed))
	})
}

func TestRun_SlowAttemptIsCutAtItsOwnTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Hour), func(t *testing.T, r *rig) {
		r.once()
		req, start := request(), time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if took := time.Since(start); took != 60*time.Second {
			t.Errorf("cut after %v, want 60s", took)
		}
		r.wantStored(req, llmq.CodeTimeout)
	})
}

func TestRun_BusyClaimIsReleasedUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		r.take(req, "other")
		time.Sleep(5 * time.Second)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "running_elsewhere")
		if v.After != claims.Lease-5*time.Second || v.Defer != nil {
			t.Errorf("released for %v (defer %v), want the rest of the lease and no defer", v.After, v.Defer != nil)
		}
		r.wantSlots(ended(capacity.Abandoned))
		// The lease lapsed: it is taken over, and that is counted.
		time.Sleep(v.After)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if res := r.stored(req); res.Reply.Meta.Takeovers != 1 || res.Reply.Meta.Attempts != 2 {
			t.Errorf("meta %+v, want one takeover, and an attempt counted for it", res.Reply.Meta)
		}
	})
}

// DS4: nobody is called without a claim.
func TestRun_StoreDownAtBeginReleasesAndCallsNobody(t *testing.T) {
	t.Parallel()
	for half, reason := range map[string]string{"take": "key_of_wrong_type", "admit": "store_unavailable"} {
		t.Run("answer refused: "+half, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				req := request()
				k, broken := r.space.Call("team", req.RID()), map[string]string{}
				broken["take"], broken["admit"] = k.Claim, r.space.Target(target()).RT
				if err := r.client.Set(t.Context(), broken[half], "no hash", 0).Err(); err != nil {
					t.Fatalf("break: %v", err)
				}
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				wantVerdict(t, v, engine.Release, reason)
				if v.After < 2*time.Second || v.After > 8*time.Second || r.provider.calls.Load() != 0 {
					t.Errorf("released for %v with %d provider calls", v.After, r.provider.calls.Load())
				}
			})
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			r.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
			v := r.engine.Run(t.Context(), engine.Call{Request: request()})
			wantVerdict(t, v, engine.Release, "store_unavailable")
			if v.After < 2*time.Second || v.After > 8*time.Second || v.Defer != nil || r.provider.calls.Load() != 0 {
				t.Errorf("released for %v with %d provider calls", v.After, r.provider.calls.Load())
			}
		})
	})
}

// DS12: a refused admission gives the claim back with the attempts of earlier takes.
func TestRun_FailedAdmissionKeepsTheAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		first := r.take(req, "first")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			return r.claims.Defer(b, first.Claim, 0, claims.Progress{Attempts: 4})
		})
		slots := r.space.Target(target()).RT
		r.client.Set(t.Context(), slots, "no set", 0)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "store_unavailable")
		if v.Defer == nil {
			t.Fatal("the claim is not given back")
		}
		v.Defer(t.Context())
		time.Sleep(v.After)
		if again := r.take(req, "again"); again.State != claims.Taken || again.Claim.Progress.Attempts != 4 || again.Claim.Takeovers != 0 {
			t.Errorf("next take = %+v, want it free with 4 attempts", again)
		}
	})
}

// Slots lie on a node of their own: where only that one fails, the claim that was taken
// on another is given back.
func TestRun_LostAdmissionGivesTheClaimBack(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		warm := req
		warm.ID = "warm" // the store learns the scripts
		r.engine.Run(t.Context(), engine.Call{Request: warm})
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if len(cmds) == 2 { // take and admit
				cmds[1].SetErr(errors.New("i/o timeout"))
			}
			return nil
		})
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "store_unavailable")
		if v.Defer == nil || r.provider.calls.Load() != 1 {
			t.Fatalf("verdict %+v after %d provider calls, want the claim given back", v, r.provider.calls.Load())
		}
		v.Defer(t.Context())
		time.Sleep(v.After)
		if again := r.take(req, "again"); again.State != claims.Taken || again.Claim.Takeovers != 0 {
			t.Errorf("next take = %+v, want it free", again)
		}
	})
}

func TestRun_LostFinishAnswerIsMadeUpFor(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		var lost atomic.Int32
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if isFinish(cmds) && lost.Add(1) <= 2 {
				return errors.New("connection reset")
			}
			return nil
		})
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if r.stored(req) == nil {
			t.Error("nothing is stored")
		}
		r.wantSlots(ended(capacity.OK))
	})
}

func isFinish(cmds []redis.Cmder) bool {
	for _, c := range cmds {
		if declared, args, ok := luatest.IsScript(c); ok && len(declared) == 3 && len(args) == 9 { // a take has fewer
			return true
		}
	}
	return false
}

// DS25: the reply is paid for once, and its caller gets it.
func TestRun_BodiesDownAtFinishStoresTheReplyInside(t *testing.T) {
	t.Parallel()
	body := `"` + strings.Repeat("y", 5000) + `"`
	bubble(t, answers(body, 0), func(t *testing.T, r *rig) {
		r.bodies.err = errors.New("AccessDenied")
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		if n := r.provider.calls.Load(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
		if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != body {
			t.Errorf("stored %+v, want the reply", res)
		}
		if log := r.log.String(); !strings.Contains(log, "body store failed") || strings.Contains(log, "yyy") {
			t.Errorf("the log is\n%s", log)
		}
		r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.OK: 1, capacity.Abandoned: 1}})
	})
}
