package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// An rt request that found its slot elsewhere, or none, waits nowhere any more.
func TestRun_WaitingEndsWithTheWait(t *testing.T) {
	t.Parallel()
	t.Run("served elsewhere", func(t *testing.T) {
		t.Parallel()
		bubble(t, nil, func(t *testing.T, r *rig) {
			a, b := place("m", "a"), place("m", "b")
			r.chainOf(fallback.Rules{}, a, b)
			r.stage(map[string]act{"m/b": answers("{}", 20*time.Second)})
			r.hold(a)
			done := make(chan engine.Verdict, 1)
			go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: request()}) }()
			time.Sleep(time.Second)
			if st := r.peek(a); st.Waiting != 1 {
				t.Errorf("%d wait, want 1", st.Waiting)
			}
			time.Sleep(3 * time.Second)
			if st := r.peek(a); st.Waiting != 0 || r.peek(b).InUse != 1 {
				t.Errorf("%d wait while it is served, want none", st.Waiting)
			}
			wantVerdict(t, <-done, engine.Stored, "ok")
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			r.hold(target())
			req := request()
			go func() {
				time.Sleep(5 * time.Second)
				r.cancel(req)
			}()
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "cancelled")
			if st := r.peek(target()); st.Waiting != 0 {
				t.Errorf("%d wait, want none", st.Waiting)
			}
		})
	})
	t.Run("running elsewhere", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			r.hold(target())
			req := request()
			r.take(req, "other")
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, "running_elsewhere")
			if st := r.peek(target()); st.Waiting != 0 {
				t.Errorf("%d wait, want none", st.Waiting)
			}
		})
	})
}

// DS9: a slot whose answer was lost is given back with the claim, and its reservation with it.
func TestRun_LostAdmissionLeavesNoSlot(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		m := &meter{load: provider.Load{InputChars: 40, MaxOutput: 390}, call: charges(provider.Usage{Input: 1}, 0)}
		r.wires = map[string]provider.Provider{"meter": m}
		target := budgeted("t", 1000)
		r.chainOf(fallback.Rules{}, target)
		warm := request()
		warm.ID = "warm"
		r.engine.Run(t.Context(), engine.Call{Request: warm})
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if len(cmds) == 2 { // take and admit
				cmds[1].SetErr(errors.New("i/o timeout"))
			}
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Release, "store_unavailable")
		if st := r.peek(target); st.InUse != 0 || st.TokensUsed != 1 {
			t.Errorf("%d slots are held, %d tokens used", st.InUse, st.TokensUsed)
		}
	})
}

// C10: a request that comes back at a later step pays one round trip for the change of its slot.
func TestRun_RoundTripsOfAReturnAtALaterStep(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		s := r.stage(map[string]act{"m/a": gone(), "m/b": throttles(2 * time.Minute)})
		back := func(id string) {
			req := request()
			req.ID, req.Deadline = id, time.Now().Add(time.Hour)
			v := r.engine.Run(t.Context(), engine.Call{Request: req})
			wantVerdict(t, v, engine.Release, "retry_later")
			v.Defer(t.Context())
			time.Sleep(v.After)
			r.stage(map[string]act{"m/b": answers("{}", 0)})
			r.trips.Seen()
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		}
		back("warm") // the store learns the scripts
		r.stage(map[string]act{"m/a": gone(), "m/b": throttles(2 * time.Minute)})
		back("again")
		want := [][]string{{"evalsha", "evalsha"}, {"evalsha", "evalsha"}, {"evalsha", "evalsha"}}
		if got := r.trips.Seen(); !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("round trips %v, want %v", got, want)
		}
		if st := r.peek(place("m", "a")); st.InUse != 0 || len(s.ids) == 0 {
			t.Errorf("%d slots of the first step are held", st.InUse)
		}
	})
}

// A5, DS29, DS36: what was paid for a reply that nobody gets is told, and nothing of what it says.
func TestRun_DroppedReplyIsAccountedFor(t *testing.T) {
	t.Parallel()
	usage := provider.Usage{Input: 12, Output: 38}
	for name, tc := range map[string]struct {
		call  act
		spoil func(r *rig, req llmq.Request)
		after time.Duration
		want  []string
		used  int
	}{
		"cancelled while it runs": {
			charges(usage, time.Minute), func(r *rig, req llmq.Request) { r.cancel(req) }, time.Second,
			[]string{"reason=cancelled", "provider=meter", "target=m@t", "reserved_tokens=400"},
			400,
		},
		"cancelled as it is stored": {
			charges(usage, 2*time.Second), func(r *rig, req llmq.Request) {
				r.client.HSet(r.t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "cancelled", 1)
			}, time.Second,
			[]string{"reason=cancelled", "charged_tokens=50", "input_tokens=12", "output_tokens=38"},
			50,
		},
		"claim lost": {
			charges(usage, 2*time.Second), func(r *rig, req llmq.Request) {
				r.client.HSet(r.t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "fence", 99, "owner", "other")
			}, time.Second,
			[]string{"reason=claim_lost", "charged_tokens=50", "input_tokens=12", "output_tokens=38"},
			50,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.wires = map[string]provider.Provider{"meter": &meter{load: provider.Load{InputChars: 40, MaxOutput: 390}, call: tc.call}}
				target := budgeted("t", 1000)
				r.chainOf(fallback.Rules{}, target)
				req := request()
				go func() {
					time.Sleep(tc.after)
					tc.spoil(r, req)
				}()
				r.engine.Run(t.Context(), engine.Call{Request: req})
				log := r.log.String()
				for _, want := range append(tc.want, "msg=reply_dropped", "request_id=req-1") {
					if !strings.Contains(log, want) {
						t.Errorf("the log lacks %s:\n%s", want, log)
					}
				}
				if strings.Contains(log, "the prompt") || strings.Count(log, "msg=reply_dropped") != 1 {
					t.Errorf("the log is\n%s", log)
				}
				if st := r.peek(target); st.TokensUsed != tc.used || st.InUse != 0 {
					t.Errorf("%d tokens are used, want %d", st.TokensUsed, tc.used)
				}
			})
		})
	}
}
