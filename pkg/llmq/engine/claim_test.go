package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// rob makes another owner's claim, as after a lapse.
func (r *rig) rob(req llmq.Request) {
	r.t.Helper()
	r.client.HSet(r.t.Context(), r.space.Call(req.Tenant, req.RID()).Claim, "owner", "robber", "fence", 9, "until_ms", time.Now().Add(time.Hour).UnixMilli())
}

func TestRun_ClaimLostMidRunCancelsTheAttemptAndDropsItsReply(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 50*time.Second), func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			r.rob(req)
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Leave, "claim_lost")
		if took := time.Since(start); took != engine.RenewEvery {
			t.Errorf("cancelled after %v, want at the first renewal", took)
		}
		if r.stored(req) != nil {
			t.Error("a result is stored")
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}

// Two bodies under one id, by whichever way they came: the first is run, the other is refused
// and gets nobody's answer, whether the first still runs or has ended.
func TestRun_AnotherBodyUnderTheIDIsRefused(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"running": 5 * time.Second, "ended": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 10*time.Second), func(t *testing.T, r *rig) {
				req, first := request(), make(chan engine.Verdict, 1)
				go func() { first <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
				time.Sleep(wait)
				other := req
				other.Body = []byte(`{"model":"m","secret":"another prompt"}`)
				v := r.engine.Run(t.Context(), engine.Call{Request: other})
				wantVerdict(t, v, engine.Refuse, "idempotency_mismatch")
				if !errors.Is(v.Err, llmq.CodeIdempotencyMismatch) || v.Defer != nil {
					t.Errorf("verdict %+v", v)
				}
				wantVerdict(t, <-first, engine.Stored, "ok")
				if n := r.provider.calls.Load(); n != 1 {
					t.Errorf("%d provider calls, want 1", n)
				}
				if res := r.stored(req); res == nil || res.BodyHash != claims.BodyHash(req) {
					t.Errorf("stored %+v, want it under the first body's hash", res)
				}
			})
		})
	}
}

func TestRun_ClaimLostUnnoticedDropsTheReplyAtTheFence(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 9*time.Second), func(t *testing.T, r *rig) {
		req := request()
		go func() {
			time.Sleep(5 * time.Second)
			r.rob(req)
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Leave, "claim_lost")
		if r.stored(req) != nil {
			t.Error("a result is stored")
		}
		r.wantSlots(ended(capacity.OK))
	})
}

func TestRun_ClaimAndSlotAreRenewedWhileItRuns(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 59*time.Second), func(t *testing.T, r *rig) {
		req := request()
		go func() {
			for range 5 {
				time.Sleep(11 * time.Second)
				if other := r.take(req, "other"); other.State != claims.Busy || other.Wait < claims.Lease-engine.RenewEvery {
					t.Errorf("another's take = %+v, want it busy by a fresh lease", other)
				}
				if a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
					return r.capacity.Admit(b, askFor(target(), "x"))
				}); a.Granted {
					t.Error("the slot was given away")
				}
			}
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
	})
}

// DS11.
func TestRun_UnrenewedAttemptIsCancelledBeforeItsClaimLapses(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Hour), func(t *testing.T, r *rig) {
		start := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if time.Since(start) > time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Leave, "claim_lost")
		if took := time.Since(start); took < 25*time.Second || took > 35*time.Second {
			t.Errorf("cancelled after %v, want at most 35s and not at the first failure", took)
		}
	})
}

func TestRun_FailedRenewalIsMadeUpForByTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 55*time.Second), func(t *testing.T, r *rig) {
		start := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if at := time.Since(start); at > 9*time.Second && at < 21*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
	})
}

// C9: a key of the request that has a wrong type holds its message up and nothing else: it comes back after growing pauses, before and after
// its deadline, one line each time says which keys to look at, and the slot that came with the take goes back.
func TestRun_KeyOfAWrongTypeIsLookedAtEverMoreSeldom(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			req := request()
			if err := r.mini.Set(r.space.Call(req.Tenant, req.RID()).Claim, "text"); err != nil {
				t.Fatal(err)
			}
			if late {
				time.Sleep(time.Hour)
			}
			for receives, want := range map[int]time.Duration{0: 2 * time.Second, 1: 2 * time.Second, 4: 16 * time.Second, 9: 5 * time.Minute, 900: 5 * time.Minute} {
				v := r.engine.Run(t.Context(), engine.Call{Request: req, Receives: receives})
				wantVerdict(t, v, engine.Release, "key_of_wrong_type")
				if v.After != want {
					t.Errorf("late %t: back after %v on receive %d, want %v", late, v.After, receives, want)
				}
			}
			if r.peek(target()).InUse != 0 || r.provider.calls.Load() != 0 {
				t.Errorf("%d slots are held, %d calls", r.peek(target()).InUse, r.provider.calls.Load())
			}
			if log := r.log.String(); strings.Count(log, "level=WARN") != 5 || !strings.Contains(log, string(req.RID())) || !strings.Contains(log, "next_step") {
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}

// DS12: the attempt that a worker died over is counted, the first of its take, one after a failure, and one that begins long after what
// was noted last; and so is no attempt of one that was given back.
func TestRun_CountsTheAttemptThatAWorkerDiedOver(t *testing.T) {
	t.Parallel()
	fails := func(after time.Duration) func() (*provider.Response, error) {
		return func() (*provider.Response, error) {
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503, RetryAfter: after}
		}
	}
	dies := func() (*provider.Response, error) {
		time.Sleep(100 * time.Millisecond)
		panic("the worker dies")
	}
	answers := func() (*provider.Response, error) {
		return &provider.Response{Status: 200, Body: []byte("{}")}, nil
	}
	for name, acts := range map[string][]func() (*provider.Response, error){
		"at once":                      {dies, answers},
		"after a failure":              {fails(0), dies, answers},
		"after a long wait":            {fails(12 * time.Second), dies, answers},
		"twice":                        {dies, fails(0), dies, answers},
		"later than the first renewal": {func() (*provider.Response, error) { time.Sleep(15 * time.Second); return dies() }, answers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				n := 0
				r.provider.call = func(context.Context, provider.Request) (*provider.Response, error) {
					n++
					return acts[n-1]()
				}
				req := hour(request())
				for r.stored(req) == nil {
					func() {
						defer func() { _ = recover() }()
						r.engine.Run(t.Context(), engine.Call{Request: req})
					}()
					time.Sleep(capacity.Lease)
				}
				if res := r.stored(req); res.Err != nil || res.Reply.Meta.Attempts != len(acts) {
					t.Errorf("told %+v, want %d attempts", res, len(acts))
				}
			})
		})
	}
}

// C9, DS1: an hour after its deadline nobody waits for the end of such a request any more. Its message is acknowledged where the end is
// stored, else it is a dead letter, which a redrive sends again once the key is gone. No provider is called.
func TestRun_KeyOfAWrongTypeEndsAsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ended, lost bool
		action      engine.Action
		reason      string
	}{
		"nobody knows how it ended": {false, false, engine.Refuse, "configuration"},
		"its end is stored":         {true, false, engine.Stored, "already_stored"},
		"its body is gone at that":  {false, true, engine.Refuse, "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				req := request()
				k := r.space.Call(req.Tenant, req.RID())
				broken := k.Claim
				if tt.ended {
					wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
					broken = k.Submission
				}
				calls := r.provider.calls.Load()
				if err := r.mini.Set(broken, "text"); err != nil {
					t.Fatal(err)
				}
				call := engine.Call{Request: req, Receives: 20}
				if tt.lost {
					call.Lost = llmq.Errorf(llmq.CodeBadEnvelope, "the body is not stored")
					if ended, err := r.engine.Ended(t.Context(), req); ended || err != nil {
						t.Errorf("ended %t, %v", ended, err)
					}
				}
				time.Sleep(time.Until(req.Deadline) + time.Hour - time.Millisecond)
				wantVerdict(t, r.engine.Run(t.Context(), call), engine.Release, "key_of_wrong_type")
				time.Sleep(time.Millisecond)
				v := r.engine.Run(t.Context(), call)
				wantVerdict(t, v, tt.action, tt.reason)
				if r.provider.calls.Load() != calls || r.peek(target()).InUse != 0 {
					t.Errorf("%d calls, %d slots are held", r.provider.calls.Load()-calls, r.peek(target()).InUse)
				}
			})
		})
	}
}
