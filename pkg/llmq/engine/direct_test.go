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
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// directly runs a request as one whose caller waits right here.
func (r *rig) directly(req llmq.Request) engine.Verdict {
	return r.engine.Run(r.t.Context(), engine.Call{Request: req, Direct: true})
}

// E12: whoever waits right here is told at first hand, and the state store as ever.
func TestRun_DirectTellsItsEnd(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{"x":1}`, time.Second), func(t *testing.T, r *rig) {
		req := request()
		v := r.directly(req)
		wantVerdict(t, v, engine.Stored, "ok")
		if v.Result == nil || v.Result.Reply == nil || string(v.Result.Reply.Body) != `{"x":1}` || v.Result.Reply.Meta.Attempts != 1 {
			t.Errorf("result %+v", v.Result)
		}
		if res := r.stored(req); res == nil || res.Reply == nil {
			t.Errorf("stored %+v", res)
		}
		r.wantSlots(ended(capacity.OK))
		again := r.directly(req)
		wantVerdict(t, again, engine.Stored, "already_stored")
		if again.Result != nil {
			t.Errorf("the second run tells %+v, want nothing: it has done nothing", again.Result)
		}
	})
}

// E12: what would have to wait, for a slot or for the next try, gives its claim back at once.
func TestRun_DirectNeverWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		full   bool
		call   func(context.Context, provider.Request) (*provider.Response, error)
		reason string
		calls  int32
	}{
		"no slot":  {full: true, call: answers("{}", 0), reason: "no_capacity"},
		"throttle": {call: fails(provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429}), reason: "retry_later", calls: 1},
		"failure":  {call: fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503}), reason: "retry_later", calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, tc.call, func(t *testing.T, r *rig) {
				if tc.full {
					defer r.occupy()()
				}
				req, began := request(), time.Now()
				v := r.directly(req)
				wantVerdict(t, v, engine.Release, tc.reason)
				if took := time.Since(began); took != 0 || r.provider.calls.Load() != tc.calls {
					t.Errorf("took %v and %d calls, want no time and %d", took, r.provider.calls.Load(), tc.calls)
				}
				if v.Result != nil || v.Defer == nil || v.After < time.Second {
					t.Fatalf("verdict %+v", v)
				}
				v.Defer(t.Context())
				if take := r.take(req, "w"); take.State != claims.Deferred || take.Claim.Progress.Attempts != int(tc.calls) {
					t.Errorf("a worker finds %+v, want a claim given back with what was tried", take)
				}
				st := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, target()) })
				if st.Waiting != 0 {
					t.Errorf("%d rt calls wait, want none: its caller has been sent away", st.Waiting)
				}
			})
		})
	}
}

// C14: those who wait in a worker come first.
func TestRun_DirectComesAfterThoseWhoWait(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		give := r.occupy()
		batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
			return r.capacity.Admit(b, capacity.Ask{Target: target(), Lane: llmq.LaneRT, CallID: "waits", Until: time.Now().Add(time.Minute)})
		})
		give()
		wantVerdict(t, r.directly(request()), engine.Release, "no_capacity")
	})
}

// D11: a reply that the store can't be told of is told to whoever waits for it here.
func TestRun_DirectTellsWhatCouldNotBeStored(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{"x":1}`, time.Second), func(t *testing.T, r *rig) {
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if r.provider.calls.Load() > 0 {
				return errors.New("connection refused")
			}
			return nil
		})
		v := r.directly(request())
		if v.Result == nil || v.Result.Reply == nil || string(v.Result.Reply.Body) != `{"x":1}` {
			t.Errorf("verdict %+v", v)
		}
	})
}

// What is let begin without a store.
func anywhere(capacity.Ask) (func(capacity.Outcome), bool) { return func(capacity.Outcome) {}, true }
func nowhere(capacity.Ask) (func(capacity.Outcome), bool)  { return nil, false }
func unlessHard(a capacity.Ask) (func(capacity.Outcome), bool) {
	return func(capacity.Outcome) {}, a.Target.Name != "hard"
}

// D11: without a store, one attempt at each target that may be called unseen, and no sleep.
func TestRunUnclaimed_TriesEachTargetOnce(t *testing.T) {
	t.Parallel()
	second, hard := target(), target()
	second.Name, second.ModelID, hard.Name = "t2", "second", "hard"
	call := func(_ context.Context, req provider.Request) (*provider.Response, error) {
		if req.ModelID == "second" {
			return &provider.Response{Status: 200, Body: []byte("{}")}, nil
		}
		return nil, &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429}
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, target(), hard, second)
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
		began := time.Now()
		res, ok := r.engine.RunUnclaimed(t.Context(), request(), unlessHard)
		if !ok || res.Reply == nil || res.Reply.Meta.Target != "t2" || res.Reply.Meta.Attempts != 2 || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %v", res, ok, time.Since(began))
		}
		if _, ok := r.engine.RunUnclaimed(t.Context(), request(), nowhere); ok {
			t.Error("ran, though no target may be called unseen")
		}
		if len(r.trips.Seen()) != 0 {
			t.Error("the store was asked")
		}
	})
}

// D11: the last failure is what the caller is told; one that is the call's own ends it.
func TestRunUnclaimed_TellsTheFailure(t *testing.T) {
	t.Parallel()
	second := target()
	second.Name = "t2"
	bubble(t, fails(provider.Error{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400, Message: "no"}), func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{}, target(), second)
		res, ok := r.engine.RunUnclaimed(t.Context(), request(), anywhere)
		if !ok || res.Err == nil || res.Err.Code != llmq.CodeProviderRejected || res.Err.Meta.Attempts != 1 || r.provider.calls.Load() != 1 {
			t.Errorf("%+v, %v after %d calls", res, ok, r.provider.calls.Load())
		}
	})
}
