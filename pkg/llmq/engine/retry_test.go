package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// script is a provider that plays its acts in order, the last one for ever, and notes when it was called.
type script struct {
	start time.Time
	at    []time.Duration
	ids   []string
}

type act func(context.Context, provider.Request) (*provider.Response, error)

func (r *rig) play(acts ...act) *script {
	s := &script{start: time.Now()}
	r.provider.call = func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		n := min(len(s.at), len(acts)-1)
		s.at, s.ids = append(s.at, time.Since(s.start)), append(s.ids, req.ModelID)
		return acts[n](ctx, req)
	}
	return s
}

// toTheEnd runs a request as its queue would, again and again, until it is not handed back any more.
func (r *rig) toTheEnd(req llmq.Request) engine.Verdict {
	for {
		v := r.engine.Run(r.t.Context(), engine.Call{Request: req})
		if v.Action != engine.Release {
			return v
		}
		if v.Defer != nil {
			v.Defer(r.t.Context())
		}
		time.Sleep(v.After)
	}
}

func throttles(after time.Duration) act {
	return fails(provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, Message: "slow down", RetryAfter: after})
}

func breaks() act {
	return fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503})
}

func (s *script) wantGaps(t *testing.T, bounds ...[2]time.Duration) {
	t.Helper()
	if len(s.at) != len(bounds)+1 {
		t.Fatalf("called at %v, want %d calls", s.at, len(bounds)+1)
	}
	for i, b := range bounds {
		if gap := s.at[i+1] - s.at[i]; gap < b[0] || gap > b[1]+time.Second/4 { // asking for the slot takes a moment
			t.Errorf("call %d came %v after the one before, want %v to %v", i+2, gap, b[0], b[1])
		}
	}
}

func secs(low, high float64) [2]time.Duration {
	return [2]time.Duration{time.Duration(low * float64(time.Second)), time.Duration(high * float64(time.Second))}
}

// D2, H16 b: three tries, a curve apart, and meta tells of them.
func TestRun_FailuresAreTriedThreeTimes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		s, req := r.play(breaks()), request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		s.wantGaps(t, secs(1, 2.5), secs(4, 10))
		if e := r.wantStored(req, llmq.CodeProviderError); e.Meta.Attempts != 3 || e.Meta.Target != "t" || e.Meta.Fallback {
			t.Errorf("stored %+v", e.Meta)
		}
		r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.Failed: 3}})
	})
}

// D2, H15 d: six tries after throttles, none more than ten seconds apart, each told to the limiter.
func TestRun_ThrottlesAreTriedSixTimes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		s, req := r.play(throttles(0)), request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "throttled")
		s.wantGaps(t, secs(1, 2.5), secs(4, 10), secs(10, 10), secs(10, 10), secs(10, 10))
		if e := r.wantStored(req, llmq.CodeRateLimited); e.Meta.Attempts != 6 {
			t.Errorf("stored %+v", e.Meta)
		}
		r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.Throttled: 6}})
	})
}

// D3, DS31: nobody holds a slot while it sleeps, and the claim is kept.
func TestRun_NoSlotIsHeldWhileItSleeps(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(throttles(20*time.Second), answers("{}", time.Second))
		req, done := request(), make(chan engine.Verdict, 1)
		go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
		time.Sleep(15 * time.Second)
		r.wantSlots(ended(capacity.Throttled))
		if other := r.take(req, "other"); other.State != claims.Busy {
			t.Errorf("another's take = %+v, want it busy", other)
		}
		give := r.occupy() // somebody uses it meanwhile
		time.Sleep(time.Second)
		give()
		wantVerdict(t, <-done, engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Attempts != 2 || m.Provided != time.Second {
			t.Errorf("meta %+v", m)
		}
	})
}

// H14: the next attempt starts no earlier than asked, and no more than the normal jitter later.
func TestRun_RetryAfterIsAFloor(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{7 * time.Second, 7250 * time.Millisecond, 29 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				s := r.play(throttles(after), answers("{}", 0))
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
				s.wantGaps(t, [2]time.Duration{after, after + 1500*time.Millisecond})
			})
		})
	}
}

// D2, D3, H14: a long wait is handed back, and what was tried is not forgotten.
func TestRun_LongRetryAfterIsHandedBackWithItsProgress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lane  llmq.Lane
		after time.Duration
	}{{llmq.LaneRT, 6 * time.Minute}, {llmq.LaneBulk, 20 * time.Second}} {
		t.Run(string(tc.lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.play(throttles(0), throttles(0), throttles(tc.after), breaks())
				req, start := request(), time.Now()
				req.Lane, req.Deadline = tc.lane, start.Add(time.Hour)
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				wantVerdict(t, v, engine.Release, "retry_later")
				if v.After < tc.after || v.After > tc.after+tc.after/10 || v.Defer == nil {
					t.Fatalf("verdict %+v", v)
				}
				r.wantSlots(capacity.State{Ended: map[capacity.Ending]int{capacity.Throttled: 3}})
				v.Defer(t.Context())
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, "deferred")
				time.Sleep(v.After)
				wantVerdict(t, r.toTheEnd(req), engine.Stored, "failed")
				// Three throttles before, three failures after: not six, and not nine.
				if e := r.wantStored(req, llmq.CodeProviderError); e.Meta.Attempts != 6 || e.Meta.Takeovers != 0 {
					t.Errorf("stored %+v", e.Meta)
				}
			})
		})
	}
}

// H14, D3: what would pass the deadline is not slept; the caller learns when to come again.
func TestRun_WaitBeyondTheDeadlineIsNotMade(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		s, req := r.play(throttles(24*time.Hour)), request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "throttled")
		if took := time.Since(s.start); took != 0 || len(s.at) != 1 {
			t.Errorf("%d calls in %v, want one and its end", len(s.at), took)
		}
		if e := r.wantStored(req, llmq.CodeRateLimited); e.RetryAfter != 24*time.Hour {
			t.Errorf("stored %+v", e)
		}
	})
}

// D3: a sleep that this process can't hold is another's.
func TestRun_SleepBeyondTheProcessIsHandedBack(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(breaks())
		req := request()
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: time.Now().Add(4 * time.Second)})
		wantVerdict(t, v, engine.Release, "retry_later")
		if v.After < 4*time.Second || v.After > 10*time.Second || v.Defer == nil {
			t.Errorf("verdict %+v", v)
		}
	})
}

// H16 a: a target that hangs, with nowhere else to go, gets its tries and no more.
func TestRun_HungTargetIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Hour), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if e := r.wantStored(req, llmq.CodeTimeout); e.Meta.Attempts != 3 || e.Meta.Provided != 3*time.Minute {
			t.Errorf("stored %+v", e.Meta)
		}
	})
}

// D4, H15 a, DS34: what repeating can't mend is not repeated.
func TestRun_FatalFailuresAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, failure := range []provider.Error{
		{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400, Message: "unknown field"},
		{Class: provider.TargetFatal, Code: llmq.CodeInsufficientQuota, Status: 429},
		{Class: provider.TargetFatal, Code: llmq.CodeProviderAuth, Status: 403},
	} {
		t.Run(string(failure.Code), func(t *testing.T) {
			t.Parallel()
			bubble(t, fails(failure), func(t *testing.T, r *rig) {
				req := request()
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
				if e := r.wantStored(req, failure.Code); e.Meta.Attempts != 1 {
					t.Errorf("stored %+v", e.Meta)
				}
				r.wantSlots(ended(capacity.Failed)) // not throttled: it says nothing about load
			})
		})
	}
}

// H12: the deadline that passes between two tries ends the call with what is known.
func TestRun_DeadlineBetweenTriesTellsTheLastFailure(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(func(ctx context.Context, req provider.Request) (*provider.Response, error) {
			time.Sleep(3500 * time.Millisecond)
			return breaks()(ctx, req)
		})
		req, start := request(), time.Now()
		req.Deadline = start.Add(5400 * time.Millisecond)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if took := time.Since(start); took != 3500*time.Millisecond {
			t.Errorf("ended after %v; no sleep leaves an attempt its second", took)
		}
		r.wantStored(req, llmq.CodeProviderError)
	})
}

// DS12: a worker's death gives a request none of its tries anew: they are noted with each renewal, and between tries.
func TestRun_CrashKeepsTheCountOfTries(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(breaks(), breaks(), func(context.Context, provider.Request) (*provider.Response, error) {
			time.Sleep(engine.RenewEvery + time.Second)
			panic("the worker dies")
		}, breaks())
		req := request()
		req.Deadline = time.Now().Add(time.Hour)
		func() {
			defer func() { _ = recover() }()
			t.Errorf("it lived: %+v", r.engine.Run(t.Context(), engine.Call{Request: req}))
		}()
		time.Sleep(capacity.Lease)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		if e := r.wantStored(req, llmq.CodeProviderError); e.Meta.Attempts != 4 || e.Meta.Takeovers != 1 {
			t.Errorf("stored %+v, want the fourth attempt to be the last", e.Meta)
		}
	})
}

// C10: a try more costs two round trips, one that gives the slot back and one that asks for it again.
func TestRun_RoundTripsOfARetry(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(answers("{}", 0), breaks(), answers("{}", 0))
		warm := request()
		warm.ID = "warm"
		r.engine.Run(t.Context(), engine.Call{Request: warm})
		again := request()
		again.ID = "again"
		r.engine.Run(t.Context(), engine.Call{Request: again}) // the store learns what a retry needs
		r.trips.Seen()
		r.play(breaks(), answers("{}", 0))
		r.engine.Run(t.Context(), engine.Call{Request: request()})
		want := [][]string{{"evalsha", "evalsha"}, {"evalsha", "evalsha"}, {"evalsha"}, {"evalsha", "evalsha"}}
		if diff := cmp.Diff(want, r.trips.Seen()); diff != "" {
			t.Errorf("round trips (-want +got):\n%s", diff)
		}
	})
}
