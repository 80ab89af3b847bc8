package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
)

// H17, D6: a throttle neither counts nor resets, also of the probe; meanwhile the other target serves.
func TestRun_ThrottledTargetIsNotABrokenOne(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.policy.Attempts = 5
		broken, busy := answer{status: 500, body: `{}`}, slowDown(nil)
		primary := &line{answers: []answer{broken, broken, busy, broken, busy, chatted()}}
		spare := &line{answers: []answer{chatted()}}
		targets := r.wired(llmq.WireOpenAI, primary, spare)
		targets[0].Limits.Breaker = llmq.Breaker{Threshold: 3, Cooldown: time.Second}
		r.chainOf(fallback.Rules{}, targets...)
		run := func(id, wantTarget string, wantPrimary int, wantBreaker capacity.BreakerState) {
			t.Helper()
			req := asked(llmq.WireOpenAI)
			req.ID, req.Deadline = id, time.Now().Add(5*time.Minute)
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
			st := r.peek(targets[0])
			if m := r.stored(req).Reply.Meta; m.Target != wantTarget || primary.calls() != wantPrimary || st.Breaker != wantBreaker || st.InUse != 0 {
				t.Errorf("%s: served by %s after %d calls of primary, its breaker is %s with %d slots held", id, m.Target, primary.calls(), st.Breaker, st.InUse)
			}
		}
		// The fourth reply opens it, which ends the target's tries though five are allowed.
		run("opens", "1", 4, capacity.BreakerOpen)
		run("meanwhile", "1", 4, capacity.BreakerOpen)
		r.once()
		time.Sleep(time.Second)
		run("throttled probe", "1", 5, capacity.BreakerHalfOpen)
		run("good probe", "0", 6, capacity.BreakerClosed)
		run("as before", "0", 7, capacity.BreakerClosed)
		want := map[capacity.Ending]int{capacity.Failed: 3, capacity.Throttled: 2, capacity.OK: 2}
		if diff := cmp.Diff(want, r.peek(targets[0]).Ended); diff != "" {
			t.Errorf("endings (-want +got):\n%s", diff)
		}
	})
}

// D6: what a breaker counts is a server's failure and silence; nothing that speaks of the call, of load or of
// the time that we gave it.
func TestRun_OnlyServerFailuresAndSilenceOpenTheBreaker(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer answer
		left   time.Duration
		want   capacity.BreakerState
	}{
		"500":               {answer{status: 500, body: `{}`}, time.Hour, capacity.BreakerOpen},
		"503":               {answer{status: 503, body: `{}`}, time.Hour, capacity.BreakerOpen},
		"silence":           {answer{status: 200, after: time.Hour}, 3 * time.Hour, capacity.BreakerOpen},
		"cut at a deadline": {answer{status: 200, after: time.Hour}, 5 * time.Second, capacity.BreakerClosed},
		"429":               {answer{status: 429, body: `{}`}, time.Hour, capacity.BreakerClosed},
		"overloaded":        {answer{status: 503, body: `{"error":{"message":"The model is overloaded"}}`}, time.Hour, capacity.BreakerClosed},
		"400":               {answer{status: 400, body: `{}`}, time.Hour, capacity.BreakerClosed},
		"404":               {answer{status: 404, body: `{}`}, time.Hour, capacity.BreakerClosed},
		"no JSON":           {answer{status: 200, body: `<html>`}, time.Hour, capacity.BreakerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				l := &line{answers: []answer{tc.answer}}
				target := r.wired(llmq.WireOpenAI, l)[0]
				target.Limits.Breaker.Threshold = 1
				r.chainOf(fallback.Rules{}, target)
				r.once()
				req := asked(llmq.WireOpenAI)
				req.Deadline = time.Now().Add(tc.left)
				if v := r.engine.Run(t.Context(), engine.Call{Request: req}); v.Action != engine.Stored {
					t.Errorf("verdict %+v", v)
				}
				if st := r.peek(target); st.Breaker != tc.want || l.calls() != 1 {
					t.Errorf("breaker %s after %d calls, want %s", st.Breaker, l.calls(), tc.want)
				}
			})
		})
	}
}

// D6, C8: while the only target is closed an rt request waits its time and is told when to come again, any other
// comes back when it opens; none of them is an attempt (DS12), and the first one is the probe.
func TestRun_ClosedTargetIsWaitedFor(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		l := &line{answers: []answer{{status: 500, body: `{}`}, chatted()}}
		target := r.wired(llmq.WireOpenAI, l)[0]
		target.Limits.Breaker = llmq.Breaker{Threshold: 1, Cooldown: 40 * time.Second}
		r.chainOf(fallback.Rules{}, target)
		req := asked(llmq.WireOpenAI)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		r.wantStored(req, llmq.CodeProviderError)
		if l.calls() != 1 {
			t.Errorf("%d calls, want the breaker to end the tries", l.calls())
		}
		rt := asked(llmq.WireOpenAI)
		rt.ID = "rt"
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: rt}), engine.Stored, "abandoned")
		if e := r.stored(rt).Err; e == nil || e.Code != llmq.CodeNoCapacity || !strings.Contains(e.Message, "left alone") || e.RetryAfter < 5*time.Second || e.RetryAfter > 40*time.Second {
			t.Errorf("an rt request got %+v, want no_capacity and when to come again", e)
		}
		bg := asked(llmq.WireOpenAI)
		bg.ID, bg.Lane, bg.Deadline = "bg", llmq.LaneBG, time.Now().Add(time.Hour)
		v := r.engine.Run(t.Context(), engine.Call{Request: bg})
		wantVerdict(t, v, engine.Release, "no_capacity")
		if v.After < 39*time.Second || v.After > 41*time.Second {
			t.Errorf("released for %v, want until it opens", v.After)
		}
		v.Defer(t.Context())
		time.Sleep(v.After)
		wantVerdict(t, r.toTheEnd(bg), engine.Stored, "ok")
		if m := r.stored(bg).Reply.Meta; m.Attempts != 1 || r.peek(target).Breaker != capacity.BreakerClosed {
			t.Errorf("meta %+v, breaker %s", m, r.peek(target).Breaker)
		}
	})
}
