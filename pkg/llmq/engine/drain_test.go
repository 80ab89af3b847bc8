package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// stopAfter is a process's stop after a while.
func stopAfter(d time.Duration) <-chan struct{} {
	stop := make(chan struct{})
	time.AfterFunc(d, func() { close(stop) })
	return stop
}

// handBack does with a release what a worker does, and waits until the message is back.
func (r *rig) handBack(v engine.Verdict) {
	r.t.Helper()
	wantVerdict(r.t, v, engine.Release, "draining")
	if v.Defer == nil {
		r.t.Fatal("the claim is not given back")
	}
	v.Defer(r.t.Context())
	time.Sleep(v.After)
}

// E11: what has not begun by then is not begun, and nobody is asked for anything.
func TestDrain_NothingBeginsAfterTheStop(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{}`, 0), func(t *testing.T, r *rig) {
		r.trips.Seen()
		stop := make(chan struct{})
		close(stop)
		v := r.engine.Run(t.Context(), engine.Call{Request: request(), Stop: stop})
		wantVerdict(t, v, engine.Release, "draining")
		if n := r.provider.calls.Load(); n != 0 || len(r.trips.Seen()) != 0 || v.Defer != nil {
			t.Errorf("%d calls, verdict %+v", n, v)
		}
	})
}

// E11: what waits for a slot is released at once, and the next worker has its claim by then.
func TestDrain_WhoWaitsForASlotIsReleased(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers(`{}`, 0), func(t *testing.T, r *rig) {
				leave := r.occupy()
				req, began := request(), time.Now()
				req.Lane = lane
				v := r.engine.Run(t.Context(), engine.Call{Request: req, Stop: stopAfter(5 * time.Second)})
				if took := time.Since(began); took != 5*time.Second || v.After != time.Second {
					t.Errorf("released after %v for %v, want 5s and 1s", took, v.After)
				}
				r.handBack(v)
				leave()
				wantVerdict(t, r.newEngine("w2", 30*time.Second).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
				if m := r.stored(req).Reply.Meta; m.Attempts != 1 || m.Takeovers != 0 {
					t.Errorf("meta %+v", m)
				}
				r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.Abandoned: 1, capacity.OK: 1}}) // the former is whoever was in the way
			})
		})
	}
}

// E11: a wait between two tries goes on in the queue, and the tries that were made count.
func TestDrain_ARetryWaitGoesOnInTheQueue(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		s, req := r.play(breaks()), request()
		began := time.Now()
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Stop: stopAfter(300 * time.Millisecond)})
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("released after %v", took)
		}
		r.wantSlots(ended(capacity.Failed))
		r.handBack(v)
		wantVerdict(t, r.newEngine("w2", 30*time.Second).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		s.wantGaps(t, secs(1, 2.5), secs(4, 10))
		if m := r.wantStored(req, llmq.CodeProviderError).Meta; m.Attempts != 3 || m.Takeovers != 0 {
			t.Errorf("meta %+v", m)
		}
	})
}

// E11: a failure after the stop is followed by no try here, neither of its target nor of the next.
func TestDrain_NoTryFollowsAFailureAfterTheStop(t *testing.T) {
	t.Parallel()
	slow := func(e provider.Error) act {
		return func(context.Context, provider.Request) (*provider.Response, error) {
			time.Sleep(2 * time.Second)
			return nil, &e
		}
	}
	for name, failure := range map[string]provider.Error{
		"the same target is next":  {Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503},
		"another target is next":   {Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 404},
		"it is throttled for long": {Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				second := target()
				second.Name, second.ModelID = "u", "gpt-y"
				r.chainOf(fallback.Rules{}, target(), second)
				s, req := r.play(slow(failure), answers(`{}`, 0)), request()
				began := time.Now()
				v := r.engine.Run(t.Context(), engine.Call{Request: req, Stop: stopAfter(time.Second)})
				if took := time.Since(began); took != 2*time.Second || len(s.at) != 1 {
					t.Errorf("released after %v and %d tries", took, len(s.at))
				}
				r.handBack(v)
				wantVerdict(t, r.newEngine("w2", 30*time.Second).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
				if gap := s.at[1] - s.at[0] - 2*time.Second; gap < failure.RetryAfter || gap < time.Second {
					t.Errorf("the second try came %v after the failure", gap)
				}
				if moved := s.ids[1] != s.ids[0]; moved != (failure.Class == provider.TargetFatal) {
					t.Errorf("tried %v", s.ids)
				}
			})
		})
	}
}

// E11: what runs goes on to its end.
func TestDrain_AnAttemptGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{}`, 10*time.Second), func(t *testing.T, r *rig) {
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Stop: stopAfter(time.Second)}), engine.Stored, "ok")
		if r.stored(req).Reply == nil {
			t.Error("no reply is stored")
		}
	})
}

// E11: an attempt that the drain's end cuts off is handed back as often as that happens: unlike one that does not fit into its
// function's time, it may well fit into the next worker's.
func TestDrain_WhatItsEndCutsOffIsHandedBack(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{}`, 10*time.Second), func(t *testing.T, r *rig) {
		req := request()
		for i := range 4 {
			ctx, cut := context.WithTimeout(t.Context(), 3*time.Second)
			v := r.engine.Run(ctx, engine.Call{Request: req, Stop: stopAfter(time.Second)})
			cut()
			r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.Abandoned: i + 1}})
			r.handBack(v)
		}
		wantVerdict(t, r.newEngine("w2", 30*time.Second).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Attempts != 5 || m.Takeovers != 0 {
			t.Errorf("meta %+v", m)
		}
	})
}
