package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// rulesOf are rules of one model's targets.
func rulesOf(targets ...llmq.Target) engine.Rules {
	return engine.Rules{Catalogue: llmq.NewCatalogue([]llmq.Model{{Alias: "m", Lanes: llmq.Lanes(), Targets: targets}})}
}

// follow makes the rig's engine one that follows rules, and returns where they are set.
func (r *rig) follow(first engine.Rules) *atomic.Pointer[engine.Rules] {
	var now atomic.Pointer[engine.Rules]
	now.Store(&first)
	r.follows = func(context.Context) engine.Rules { return *now.Load() }
	r.chainOf(fallback.Rules{}, first.Catalogue.Models()[0].Targets...)
	return &now
}

// capOf is the target with a cap.
func capOf(n int) llmq.Target {
	t := target()
	t.MaxConcurrency = n
	return t
}

// E2: a cap that is cut while a call waits for a slot holds for that call: it does not begin beside the one that still runs.
func TestRun_ACutHoldsForACallThatWaits(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				wide := capOf(2)
				wide.Limits.BackgroundShare = 1
				now := r.follow(rulesOf(wide))
				var give []func()
				for _, id := range []string{"other-1", "other-2"} {
					a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
						return r.capacity.Admit(b, askFor(wide, id))
					})
					if !a.Granted {
						t.Fatalf("%s has no slot", id)
					}
					give = append(give, func() {
						batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Settled] {
							return r.capacity.Abandon(b, a.Slot.Ask())
						})
					})
				}
				done := make(chan engine.Verdict, 1)
				req := request()
				req.Lane = lane
				go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
				time.Sleep(time.Second)
				narrow := wide
				narrow.MaxConcurrency = 1
				cut := rulesOf(narrow)
				now.Store(&cut)
				give[0]()
				time.Sleep(2 * time.Second)
				if n := r.provider.calls.Load(); n != 0 {
					t.Errorf("%d calls began beside the one that has the only slot", n)
				}
				give[1]()
				wantVerdict(t, <-done, engine.Stored, "ok")
			})
		})
	}
}

// E2: the targets of a call are those that it began with; the next call has the new ones.
func TestRun_ACallKeepsItsChain(t *testing.T) {
	t.Parallel()
	first, second := target(), target()
	second.Name, second.ModelID = "t2", "second"
	var now *atomic.Pointer[engine.Rules]
	call := func(_ context.Context, req provider.Request) (*provider.Response, error) {
		if req.ModelID == "second" {
			return &provider.Response{Status: 200, Body: []byte("{}")}, nil
		}
		alone := rulesOf(first)
		now.Store(&alone) // while the first target is called
		return nil, &provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 404}
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		now = r.follow(rulesOf(first, second))
		v := r.directly(request())
		wantVerdict(t, v, engine.Stored, "ok")
		if v.Result.Reply.Meta.Target != "t2" {
			t.Errorf("served by %s, want the second target", v.Result.Reply.Meta.Target)
		}
		next := request()
		next.ID = "req-2"
		if v := r.directly(next); v.Result == nil || v.Result.Err == nil {
			t.Errorf("the next call: %+v, want the failure of its only target", v)
		}
	})
}

// E2: what a target has of its own goes before what the engine was made with: the time of an attempt, the tries of one that
// throttles and the waits between them, and how long a live call waits for a slot.
func TestRun_ATargetsOwnPace(t *testing.T) {
	t.Parallel()
	paced := target()
	paced.Pace = llmq.Pace{
		AttemptTimeout: 5 * time.Second, ThrottleAttempts: 4, RetryBase: 3 * time.Second, RetryMultiplier: 1, RetrySpread: 1, RetryMax: 3 * time.Second,
		ThrottleRetryMax: 3 * time.Second, CapacityWait: 4 * time.Second,
	}
	throttled := fails(provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429})
	for name, tc := range map[string]struct {
		call        func(context.Context, provider.Request) (*provider.Response, error)
		full        bool
		least, most time.Duration
		calls       int32
		code        llmq.Code
	}{
		"an attempt is cut":           {call: answers("{}", time.Minute), least: 5 * time.Second, most: 30 * time.Second, calls: 3, code: llmq.CodeTimeout},
		"throttles":                   {call: throttled, least: 9 * time.Second, most: 10 * time.Second, calls: 4, code: llmq.CodeRateLimited},
		"the wait for a slot is over": {call: answers("{}", 0), full: true, least: 3 * time.Second, most: 4 * time.Second, code: llmq.CodeNoCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, tc.call, func(t *testing.T, r *rig) {
				r.chainOf(fallback.Rules{}, paced)
				if tc.full {
					defer r.occupy()()
				}
				req, began := request(), time.Now()
				r.engine.Run(t.Context(), engine.Call{Request: req})
				if took := time.Since(began); took < tc.least || took > tc.most || r.provider.calls.Load() != tc.calls {
					t.Errorf("took %v and %d calls, want %v to %v and %d", took, r.provider.calls.Load(), tc.least, tc.most, tc.calls)
				}
				r.wantStored(req, tc.code)
			})
		})
	}
}

// E4: a call that is to run at once or to queue asks its first target alone; one that is to run here asks all of its chain.
func TestRun_AtOnceAsksTheFirstTargetAlone(t *testing.T) {
	t.Parallel()
	second := target()
	second.Name, second.ModelID = "t2", "second"
	for _, atOnce := range []bool{true, false} {
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			r.chainOf(fallback.Rules{}, target(), second)
			defer r.occupy()()
			began := time.Now()
			v := r.engine.Run(t.Context(), engine.Call{Request: request(), Direct: true, AtOnce: atOnce})
			if time.Since(began) != 0 {
				t.Errorf("at once %t: took %v", atOnce, time.Since(began))
			}
			if !atOnce {
				wantVerdict(t, v, engine.Stored, "ok")
				return
			}
			wantVerdict(t, v, engine.Release, "no_capacity")
			if n := r.provider.calls.Load(); n != 0 || v.Defer == nil {
				t.Errorf("%d calls; %+v", n, v)
			}
		})
	}
}
