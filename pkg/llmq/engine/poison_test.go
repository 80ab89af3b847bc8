package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// yard is a dead-letter queue.
type yard struct {
	fail    error
	letters []engine.Letter
}

func (y *yard) bury(_ context.Context, l engine.Letter) error {
	if y.fail != nil {
		return y.fail
	}
	y.letters = append(y.letters, l)
	return nil
}

// wantLetters compares all but the words.
func (y *yard) wantLetters(t *testing.T, want ...engine.Letter) {
	t.Helper()
	code := cmp.Transformer("code", func(e *llmq.Error) llmq.Code { return e.Code })
	if diff := cmp.Diff(want, y.letters, code, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

func died(code llmq.Code, attempts int, class string) engine.Letter {
	return engine.Letter{Why: &llmq.Error{Code: code}, Attempts: attempts, Class: class}
}

func hour(req llmq.Request) llmq.Request {
	req.Deadline = time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())
	return req
}

// killed has n workers die over a request, so that its claim has lapsed n times.
func (r *rig) killed(req llmq.Request, n int) {
	r.t.Helper()
	for range n {
		r.take(req, llmq.NewID())
		time.Sleep(claims.Lease)
	}
}

// DS26, B17: the message is buried first, then its caller is told; a copy of it is neither run nor buried again, and its
// body is kept for the one that lies there.
func TestRun_FifthTakeoverIsDeadLetteredAsWorkerCrash(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.provider.call = func(context.Context, provider.Request) (*provider.Response, error) { panic("the worker dies") }
		var y yard
		req := hour(request())
		call := engine.Call{Request: req, Bury: func(ctx context.Context, l engine.Letter) error {
			if r.stored(req) != nil {
				t.Error("its caller was told before the message was safe")
			}
			return y.bury(ctx, l)
		}}
		die := func() {
			defer func() { _ = recover() }()
			v := r.engine.Run(t.Context(), call)
			t.Errorf("it lived: %+v", v)
		}
		for range 5 {
			die()
			time.Sleep(capacity.Lease)
		}
		v := r.engine.Run(t.Context(), call)
		wantVerdict(t, v, engine.Stored, "worker_crash")
		if n := r.provider.calls.Load(); n != 5 || !v.KeepBody {
			t.Errorf("%d provider calls, want 5; verdict %+v", n, v)
		}
		if e := r.wantStored(req, llmq.CodeWorkerCrash); e.Meta.Takeovers != 5 || e.Meta.Attempts != 5 { // DS12
			t.Errorf("stored %+v", e)
		}
		y.wantLetters(t, died(llmq.CodeWorkerCrash, 5, ""))
		r.wantSlots(ended(capacity.Abandoned))
		v = r.engine.Run(t.Context(), call)
		wantVerdict(t, v, engine.Stored, "dead_lettered")
		if !v.KeepBody || len(y.letters) != 1 {
			t.Errorf("of a copy: %+v and %d dead letters", v, len(y.letters))
		}
	})
}

// DS39, B14: what was dead runs as a new request, once.
func TestRun_LaterGenerationOfADeadRequestRuns(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		var y yard
		req := hour(request())
		r.killed(req, 5)
		r.take(req, "sixth")
		time.Sleep(claims.Lease)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Bury: y.bury}), engine.Stored, "worker_crash")
		again := hour(req)
		r.wantEnded(again, true)
		again.Generation = 1
		r.wantEnded(again, false)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: again, Bury: y.bury}), engine.Stored, "ok")
		r.wantEnded(again, true)
		if res := r.stored(req); res == nil || res.Reply == nil || res.Reply.Meta.Attempts != 1 || res.Reply.Meta.Takeovers != 0 {
			t.Errorf("stored %+v", res)
		}
		for generation := range 3 {
			again.Generation = generation
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: again, Bury: y.bury}), engine.Stored, "already_stored")
		}
		if n := r.provider.calls.Load(); n != 1 || len(y.letters) != 1 {
			t.Errorf("%d provider calls and %d dead letters", n, len(y.letters))
		}
	})
}

// wantEnded asks what a worker asks that finds a request's body gone.
func (r *rig) wantEnded(q llmq.Request, want bool) {
	r.t.Helper()
	if got, err := r.engine.Ended(r.t.Context(), q); got != want || err != nil {
		r.t.Errorf("generation %d has ended: %t, %v; want %t", q.Generation, got, err, want)
	}
}

// DS39.
func TestRun_EarlierGenerationIsAcknowledgedUnrun(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 20*time.Second), func(t *testing.T, r *rig) {
		req := hour(request())
		again := req
		again.Generation = 1
		ended := make(chan engine.Verdict, 1)
		go func() { ended <- r.engine.Run(t.Context(), engine.Call{Request: again}) }()
		synctest.Wait()
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Stored, "later_generation")
		if !v.KeepBody {
			t.Error("the body of the later generation would be deleted")
		}
		overdue := req
		overdue.Deadline = time.Now().Add(-time.Second)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: overdue}), engine.Stored, "later_generation")
		wantVerdict(t, <-ended, engine.Stored, "ok")
	})
}

// DS39: an end whose message was not dead-lettered is no dead one.
func TestRun_LaterGenerationOfAFailedRequestDoesNotRun(t *testing.T) {
	t.Parallel()
	bubble(t, fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 500}), func(t *testing.T, r *rig) {
		r.once()
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
		req.Generation = 1
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		if n := r.provider.calls.Load(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
	})
}

// DS1, D10: a dead-letter queue that does not take the message delays its end, by releases that are no takeovers.
func TestRun_PoisonThatCannotBeBuriedComesBack(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		y := yard{fail: errors.New("refused")}
		req := hour(request())
		r.killed(req, 6)
		call := engine.Call{Request: req, Bury: y.bury}
		for range 3 {
			v := r.engine.Run(t.Context(), call)
			wantVerdict(t, v, engine.Release, "dead_letter_queue_unavailable")
			v.Defer(t.Context())
			time.Sleep(v.After)
		}
		if res := r.stored(req); res != nil {
			t.Errorf("stored %+v before the message was safe", res)
		}
		y.fail = nil
		wantVerdict(t, r.engine.Run(t.Context(), call), engine.Stored, "worker_crash")
		if e := r.wantStored(req, llmq.CodeWorkerCrash); e.Meta.Takeovers != 6 {
			t.Errorf("stored %+v", e)
		}
		y.wantLetters(t, died(llmq.CodeWorkerCrash, 6, ""))
	})
}

// Where there is no time for another try, an honest end is worth more than a dead letter.
func TestRun_PoisonThatCannotBeBuriedInTimeIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.UnixMilli(time.Now().Add(6*claims.Lease + 3*time.Second).UnixMilli())
		r.killed(req, 6)
		y := yard{fail: errors.New("refused")}
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Bury: y.bury})
		wantVerdict(t, v, engine.Stored, "worker_crash")
		r.wantStored(req, llmq.CodeWorkerCrash)
		if v.KeepBody {
			t.Errorf("nobody needs the body of %+v", v)
		}
	})
}

func TestRun_WorkerCrashThatCannotBeStoredLeavesTheMessage(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := request()
		r.take(req, "dead")
		r.client.HSet(t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "takeovers", 4)
		time.Sleep(claims.Lease)
		r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
			if isFinish(cmds) {
				return errors.New("connection refused")
			}
			return nil
		})
		var y yard
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Bury: y.bury}), engine.Leave, "store_unavailable")
		if n := r.provider.calls.Load(); n != 0 {
			t.Errorf("%d provider calls, want none", n)
		}
	})
}

// B5: failures are counted over targets and releases; throttles are not among them.
func TestRun_TooManyFailuresAreDeadLettered(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.most, r.policy.SleepMost = 4, 3*time.Second // every second wait is a release
		r.chainOf(fallback.Rules{}, place("m", "a"), place("m", "b"))
		r.play(breaks(), throttles(0), breaks(), breaks(), breaks(), answers("{}", 0))
		var y yard
		req := hour(request())
		req.Lane = llmq.LaneBG
		releases := 0
		for {
			v := r.engine.Run(t.Context(), engine.Call{Request: req, Bury: y.bury})
			if v.Action != engine.Release {
				wantVerdict(t, v, engine.Stored, "provider_error")
				break
			}
			releases++
			v.Defer(t.Context())
			time.Sleep(v.After)
		}
		if releases < 2 {
			t.Errorf("%d releases, want some between the failures", releases)
		}
		y.wantLetters(t, died(llmq.CodeProviderError, 5, "retryable"))
		if e := r.wantStored(req, llmq.CodeProviderError); e.Meta.Attempts != 5 || e.Meta.Takeovers != 0 {
			t.Errorf("stored %+v", e)
		}
		again := hour(req)
		again.Generation = 1
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: again, Bury: y.bury}), engine.Stored, "ok")
	})
}

func TestRun_PoisonIsBuriedByALaterRunWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 500}), func(t *testing.T, r *rig) {
		r.most = 1
		r.engine = r.newEngine("w1", 30*time.Second)
		y := yard{fail: errors.New("refused")}
		req := hour(request())
		call := engine.Call{Request: req, Bury: y.bury}
		v := r.engine.Run(t.Context(), call)
		wantVerdict(t, v, engine.Release, "dead_letter_queue_unavailable")
		v.Defer(t.Context())
		time.Sleep(v.After)
		y.fail = nil
		wantVerdict(t, r.engine.Run(t.Context(), call), engine.Stored, "provider_error")
		y.wantLetters(t, died(llmq.CodeProviderError, 1, "retryable"))
		if n := r.provider.calls.Load(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
	})
}

// DS46, B17: after its first takeover a request waits without its claim, its slot and a place among the waiting until it is
// alone, and has all of them anew for its run.
func TestRun_TakenOverRequestWaitsUntilItIsAlone(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := hour(request())
		r.killed(req, 2)
		asked := make(chan int, 1)
		alone := make(chan bool)
		call := engine.Call{Request: req, Alone: func(_ context.Context, takeovers int) bool {
			asked <- takeovers
			return <-alone
		}}
		over := make(chan engine.Verdict, 1)
		go func() { over <- r.engine.Run(t.Context(), call) }()
		if n := <-asked; n != 2 {
			t.Errorf("it waits with %d takeovers, want 2", n)
		}
		r.wantSlots(ended(capacity.Abandoned))
		time.Sleep(3 * claims.Lease) // nobody renews what nobody holds
		alone <- true
		wantVerdict(t, <-over, engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Takeovers != 2 || m.Attempts != 3 {
			t.Errorf("meta %+v", m)
		}
	})
}

// DS46: it is released where it does not get to be alone, and that is no takeover.
func TestRun_TakenOverRequestThatIsNeverAloneIsReleased(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := hour(request())
		r.killed(req, 1)
		call := engine.Call{Request: req, Limit: time.Now().Add(20 * time.Second), Alone: func(ctx context.Context, _ int) bool {
			<-ctx.Done()
			return false
		}}
		began := time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), call), engine.Release, "must_run_alone")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("it waited for %v, not to the end of its process's time", took)
		}
		if next := r.take(req, "next"); next.State != claims.Taken || next.Claim.Takeovers != 1 {
			t.Errorf("the next take = %+v", next)
		}
	})
}

// E12, DS46: the door does not run what may kill it.
func TestRun_TakenOverRequestIsNotRunDirectly(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := hour(request())
		r.killed(req, 1)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Direct: true}), engine.Release, "must_run_alone")
		if next := r.take(req, "next"); next.State != claims.Taken || next.Claim.Takeovers != 1 || r.provider.calls.Load() != 0 {
			t.Errorf("the next take = %+v after %d calls", next, r.provider.calls.Load())
		}
	})
}

func TestRun_CancelWhileItWaitsToBeAloneEndsIt(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := hour(request())
		r.killed(req, 1)
		call := engine.Call{Request: req, Alone: func(context.Context, int) bool {
			r.cancel(req)
			return true
		}}
		wantVerdict(t, r.engine.Run(t.Context(), call), engine.Stored, "already_stored")
		r.wantStored(req, llmq.CodeCancelled)
	})
}
