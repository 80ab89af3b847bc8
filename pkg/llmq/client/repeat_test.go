package client_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// silence makes a request that was sent, and never ends.
func (r *rig) silence(req llmq.Request) {
	r.t.Helper()
	r.wantError(r.t.Context(), req, llmq.CodeExpired)
}

// A repeat waits for what was sent, not for what it would have sent itself.
// DS27.
func TestDo_RepeatWaitsNoLongerThanWhatWasSentMayRun(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"while it may run": 0, "after its end": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				first := request()
				end := first.Deadline.Add(2 * time.Second)
				var all sync.WaitGroup
				all.Go(func() { r.silence(first) })
				time.Sleep(10*time.Second + 2*wait)
				r.trips.Seen()
				again := request() // a new deadline
				start := time.Now()
				e := r.failure(t.Context(), again, llmq.CodeExpired)
				if want := "the request req-1 ended without a stored result by its deadline; send it again under a new id"; e.Message != want || !e.Final {
					t.Errorf("error %+v, want %q", e, want)
				}
				if now := time.Now(); wait == 0 && !now.Equal(end) || wait > 0 && !now.Equal(start) {
					t.Errorf("told after %v, the first ended %v after this began", now.Sub(start), end.Sub(start))
				}
				if wait > 0 {
					if diff := cmp.Diff([][]string{{"evalsha"}, {"hget", "get"}, {"hget", "hget", "hget"}}, r.trips.Seen()); diff != "" {
						t.Errorf("round trips (-want +got):\n%s", diff)
					}
				}
				all.Wait()
				r.want(1, 0)
			})
		})
	}
}

// DS15: what a worker has begun, and is not heard of any more, may have been paid for.
func TestDo_BegunRequestWithoutAnEndHasNotExpired(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		progress claims.Progress
		returned bool
		code     llmq.Code
	}{
		"it runs, or its worker is dead": {claims.Progress{}, false, llmq.CodeTimeout},
		"handed back after an attempt":   {claims.Progress{Attempts: 1}, true, llmq.CodeTimeout},
		"handed back without any":        {claims.Progress{}, true, llmq.CodeExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				req := request()
				taken := batch(r, func(b *luascript.Batch) luascript.Pending[claims.Take] {
					return r.claims.Take(b, req, claims.BodyHash(req), "dead/1")
				})
				if of.returned {
					batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
						return r.claims.Defer(b, taken.Claim, 0, of.progress)
					})
				}
				if e := r.failure(t.Context(), req, of.code); e.Final {
					t.Errorf("the first caller is told that it is final: %+v", e)
				}
				if e := r.failure(t.Context(), request(), of.code); !e.Final { // DS27
					t.Errorf("whoever asks again by the id is told %+v", e)
				}
			})
		})
	}
}

func TestDo_RepeatAfterTheDeadlineGetsWhatIsStored(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.silence(request())
		time.Sleep(time.Minute)
		r.plant(request(), own(t, request()))
		r.wantReply(request())
		r.want(1, 0)
	})
}

// The last look makes up for a wake that was lost shortly before, for a repeat as for the first.
func TestDo_RepeatLooksOnceMoreWhenItsWaitEnds(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := request()
		r.working.Go(func() { r.wantReply(req) })
		time.Sleep(time.Until(req.Deadline) + time.Second) // no sweep comes in the last second
		r.working.Go(func() {
			time.Sleep(900 * time.Millisecond)
			r.plant(req, own(t, req))
		})
		r.wantReply(request())
	})
}

// A request that was recorded and sent only later runs by the later deadline.
func TestDo_RepeatKnowsTheDeadlineOfTheMessage(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = llmq.Errorf(llmq.CodeQueueUnavailable, "down")
		r.wantError(t.Context(), request(), llmq.CodeQueueUnavailable)
		r.sendErr = nil
		time.Sleep(time.Minute)
		second := request()
		r.working.Go(func() { r.silence(second) })
		time.Sleep(time.Minute) // past the first deadline
		r.wantError(t.Context(), request(), llmq.CodeExpired)
		if late := time.Since(second.Deadline); late != 2*time.Second {
			t.Errorf("told %v after the sent deadline, want 2s", late)
		}
	})
}

// A repeat of a stored error never gets another answer under its id, whatever the code says.
// DS27.
func TestDo_ReplayedErrorIsFinal(t *testing.T) {
	t.Parallel()
	serve := func(llmq.Request) *llmq.Result {
		time.Sleep(5 * time.Second)
		return &llmq.Result{Err: llmq.Errorf(llmq.CodeRateLimited, "m@t: slow down").After(7 * time.Second)}
	}
	bubble(t, serve, func(t *testing.T, r *rig) {
		const final = "m@t: slow down; this is the stored end of the id, a new try needs a new one"
		var all sync.WaitGroup
		all.Go(func() {
			if e := r.failure(t.Context(), request(), llmq.CodeRateLimited); e.Final || e.Message != "m@t: slow down" {
				t.Errorf("the first got %+v", e)
			}
		})
		time.Sleep(time.Second)
		for _, when := range []string{"waited for", "found"} {
			if e := r.failure(t.Context(), request(), llmq.CodeRateLimited); !e.Final || e.Message != final {
				t.Errorf("%s: %+v, want it final", when, e)
			}
		}
		all.Wait()
		r.want(1, 1)
	})
}
