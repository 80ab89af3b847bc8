package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// place is a target named alias@name with one slot, whose model id is its name.
func place(alias, name string) llmq.Target {
	t := target()
	t.Model, t.Name, t.ModelID = alias, name, alias+"/"+name
	return t
}

// stage is a provider that answers by the model id that it is asked for.
func (r *rig) stage(by map[string]act) *script {
	s := &script{start: time.Now()}
	r.provider.call = func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		s.at, s.ids = append(s.at, time.Since(s.start)), append(s.ids, req.ModelID)
		return by[req.ModelID](ctx, req)
	}
	return s
}

func gone() act {
	return fails(provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 404})
}

// hold takes a target's only slot until the test ends.
func (r *rig) hold(target llmq.Target) {
	r.t.Helper()
	if a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
		return r.capacity.Admit(b, askFor(target, "holder"))
	}); !a.Granted {
		r.t.Fatalf("no slot of %s to hold", target)
	}
}

// D4, D7, H15 a, H18: a target that will never serve is left at once, and meta says who did.
func TestRun_TargetFatalMovesOn(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"m": {{Alias: "n"}}}}, place("m", "a"), place("m", "b"), place("n", "c"))
		s := r.stage(map[string]act{"m/a": gone(), "m/b": gone(), "n/c": answers("{}", time.Second)})
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if diff := cmp.Diff([]string{"m/a", "m/b", "n/c"}, s.ids); diff != "" || time.Since(s.start) != time.Second {
			t.Errorf("calls (-want +got), after %v:\n%s", time.Since(s.start), diff)
		}
		want := llmq.Meta{
			RequestID: "req-1", Model: "n", Target: "c", Provider: "p", ModelID: "n/c", Lane: llmq.LaneRT,
			Fallback: true, Attempts: 3, Provided: time.Second, Worker: "w1",
		}
		if diff := cmp.Diff(want, r.stored(req).Reply.Meta); diff != "" {
			t.Errorf("meta (-want +got):\n%s", diff)
		}
	})
}

// D7: the policy target keeps to the model, a pin to the target.
func TestRun_PolicyBoundsTheChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*llmq.Request)
		want   []string
	}{
		"target": {func(r *llmq.Request) { r.Fallback = llmq.FallbackTarget }, []string{"m/a", "m/b"}},
		"pin":    {func(r *llmq.Request) { r.Model.Target = "b" }, []string{"m/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"m": {{Alias: "n"}}}}, place("m", "a"), place("m", "b"), place("n", "c"))
				s := r.stage(map[string]act{"m/a": gone(), "m/b": gone(), "n/c": answers("{}", 0)})
				req := request()
				tc.change(&req)
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
				if diff := cmp.Diff(tc.want, s.ids); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if e := r.wantStored(req, llmq.CodeProviderError); e.Meta.Model != "m" || e.Meta.Target != "b" || e.Meta.Attempts != len(tc.want) {
					t.Errorf("meta %+v", e.Meta)
				}
			})
		})
	}
}

// D5: a target that hangs is left for the next one.
func TestRun_HungTargetMovesOn(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		s := r.stage(map[string]act{"m/a": answers("{}", time.Hour), "m/b": answers("{}", time.Second)})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
		if diff := cmp.Diff([]time.Duration{0, time.Minute}, s.at); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// D2, D7: each step gets its tries; then the next has a turn, and the chain's end tells the last failure
// of a target that might have served.
func TestRun_EachStepGetsItsTries(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"), place("m", "c"))
		s := r.stage(map[string]act{"m/a": breaks(), "m/b": throttles(time.Second), "m/c": gone()})
		req := request()
		req.Deadline = time.Now().Add(5 * time.Minute)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if diff := cmp.Diff(slices.Concat(slices.Repeat([]string{"m/a"}, 3), slices.Repeat([]string{"m/b"}, 6), []string{"m/c"}), s.ids); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if e := r.wantStored(req, llmq.CodeRateLimited); e.Meta.Attempts != 10 || e.RetryAfter != time.Second || !e.Meta.Fallback {
			t.Errorf("stored %+v with %+v", e, e.Meta)
		}
	})
}

// H14: a wait that the deadline can't hold is no reason to fail while another target can serve.
func TestRun_WaitBeyondTheDeadlineMovesOn(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		r.stage(map[string]act{"m/a": throttles(24 * time.Hour), "m/b": answers("{}", 0)})
		start := time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// C8, DS33: rt looks for a slot two seconds a step, along its chain; nobody paid for the look.
func TestRun_RTWalksItsChainForASlot(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"), place("m", "c"))
		s := r.stage(map[string]act{"m/c": answers("{}", 0)})
		r.hold(place("m", "a"))
		r.hold(place("m", "b"))
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if s.at[0] < 3500*time.Millisecond || s.at[0] > 4200*time.Millisecond {
			t.Errorf("called after %v, want two steps of up to 2 s before", s.at[0])
		}
		if m := r.stored(req).Reply.Meta; m.Attempts != 1 || m.Target != "c" || !m.Fallback {
			t.Errorf("meta %+v", m)
		}
	})
}

// C8: a ring: the step that was passed by serves when its slot comes free.
func TestRun_RTComesBackToAStepThatWasFull(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		s := r.stage(map[string]act{"m/a": answers("{}", 0)})
		r.hold(place("m", "b"))
		a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
			return r.capacity.Admit(b, askFor(place("m", "a"), "x"))
		})
		go func() {
			time.Sleep(3 * time.Second)
			batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Settled] {
				return r.capacity.Settle(b, a.Slot, capacity.Outcome{Ending: capacity.OK, Tokens: capacity.Unknown})
			})
		}()
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Fallback || s.at[0] < 3500*time.Millisecond || s.at[0] > 4300*time.Millisecond {
			t.Errorf("called after %v, meta %+v", s.at[0], m)
		}
	})
}

// C8: one pass where no wait is wanted.
func TestRun_RTWithoutAWaitAsksEachStepOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"), place("m", "c"))
		r.stage(map[string]act{"m/c": answers("{}", 0)})
		r.engine = r.newEngine("w1", 0)
		for _, t := range []string{"a", "b"} {
			r.hold(place("m", t))
		}
		start, req := time.Now(), request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		r.hold(place("m", "c"))
		req.ID = "req-2"
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		r.wantStored(req, llmq.CodeNoCapacity)
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// C8, DS33: bg and bulk wait for their own target, here and in the queue, and leave a fallback's alone.
func TestRun_QueuedLanesSpendNoFallbacksSlot(t *testing.T) {
	t.Parallel()
	for _, lane := range []llmq.Lane{llmq.LaneBG, llmq.LaneBulk} {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
				s := r.stage(map[string]act{"m/b": answers("{}", 0)})
				r.hold(place("m", "a"))
				req := request()
				req.Lane, req.Deadline = lane, time.Now().Add(time.Hour)
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, "no_capacity")
				if len(s.ids) != 0 {
					t.Errorf("called %v", s.ids)
				}
			})
		})
	}
}

// D7: what stands in only where it has room is passed by at once where it has none.
func TestRun_StepThatNeedsHeadroomIsPassedBy(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"m": {{Alias: "n", RequireHeadroom: true}, {Alias: "o"}}}},
					place("m", "a"), place("n", "b"), place("o", "c"))
				s := r.stage(map[string]act{"m/a": gone(), "o/c": answers("{}", 0)})
				r.hold(place("n", "b"))
				req := request()
				req.Lane = lane
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
				if diff := cmp.Diff([]string{"m/a", "o/c"}, s.ids); diff != "" || time.Since(s.start) != 0 {
					t.Errorf("calls (-want +got), after %v:\n%s", time.Since(s.start), diff)
				}
			})
		})
	}
}

func TestRun_NoHeadroomAtTheEndTellsTheFailure(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"m": {{Alias: "n", RequireHeadroom: true}}}}, place("m", "a"), place("n", "b"))
		r.stage(map[string]act{"m/a": gone()})
		r.hold(place("n", "b"))
		req, start := request(), time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		r.wantStored(req, llmq.CodeProviderError)
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// D6: a closed target is left at once by every lane; where there is no other, rt waits its time and the
// others come back when it opens.
func TestRun_ClosedTargetMovesOn(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
				r.stage(map[string]act{"m/b": answers("{}", 0)})
				engine.WrapGate(r.engine, func(target string) (engine.Shortage, bool) {
					return engine.Shortage{Closed: true, Retry: time.Minute}, target == "m@a"
				})
				req, start := request(), time.Now()
				req.Lane = lane
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
				if took := time.Since(start); took != 0 {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestRun_NothingOpenComesBackWhenOneOpens(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		engine.WrapGate(r.engine, func(target string) (engine.Shortage, bool) {
			return engine.Shortage{Closed: true, Retry: map[string]time.Duration{"m@a": time.Minute, "m@b": 40 * time.Second}[target]}, true
		})
		req, start := request(), time.Now()
		req.Lane, req.Deadline = llmq.LaneBG, start.Add(time.Hour)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "no_capacity")
		if took := time.Since(start); took != 0 || v.After != 40*time.Second {
			t.Errorf("released after %v for %v, want at once for 40s", took, v.After)
		}
		req.ID, req.Lane = "rt", llmq.LaneRT
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		if e := r.wantStored(req, llmq.CodeNoCapacity); e.RetryAfter != 40*time.Second {
			t.Errorf("stored %+v", e)
		}
	})
}

// C8: out of budget, rt is told when the next token comes.
func TestRun_OutOfBudgetIsRateLimited(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		engine.WrapGate(r.engine, func(string) (engine.Shortage, bool) { return engine.Shortage{Retry: 45 * time.Second}, true })
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		if e := r.wantStored(req, llmq.CodeRateLimited); e.RetryAfter != 45*time.Second || e.Meta.Attempts != 0 {
			t.Errorf("stored %+v", e)
		}
		req.ID, req.Lane, req.Deadline = "bg", llmq.LaneBG, time.Now().Add(time.Hour)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "no_capacity")
		if v.After != 45*time.Second {
			t.Errorf("released for %v, want until the next token", v.After)
		}
	})
}

// DS12: a request that was handed back at its second step goes on there.
func TestRun_ReleaseKeepsTheStep(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		again := false
		s := r.stage(map[string]act{"m/a": gone(), "m/b": func(ctx context.Context, req provider.Request) (*provider.Response, error) {
			if !again {
				again = true
				return throttles(2*time.Minute)(ctx, req)
			}
			return answers("{}", 0)(ctx, req)
		}})
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		wantVerdict(t, r.toTheEnd(req), engine.Stored, "ok")
		if diff := cmp.Diff([]string{"m/a", "m/b", "m/b"}, s.ids); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if m := r.stored(req).Reply.Meta; m.Attempts != 3 || m.Target != "b" || !m.Fallback {
			t.Errorf("meta %+v", m)
		}
		for _, target := range []llmq.Target{place("m", "a"), place("m", "b")} {
			if st := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, target) }); st.InUse != 0 {
				t.Errorf("%d slots of %s are held", st.InUse, target)
			}
		}
	})
}
