package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
)

// B10, B13: the message has the hash of its tenant as its group, and hints beside it: version, operation, lane, and the
// id hashed with the tenant. User and session travel in the envelope only, as the door hashed them.
func TestDo_SendsOnceAndReturnsTheReply(t *testing.T) {
	t.Parallel()
	bubble(t, replies(2*time.Second), func(t *testing.T, r *rig) {
		warm := request()
		warm.ID = "warm" // the store learns the scripts
		r.wantReply(warm)
		r.trips.Seen()
		req, start := request(), time.Now()
		reply := r.wantReply(req)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the reply came after %v, want at once when it was there", took)
		}
		if reply.Status != 200 || reply.Meta.Worker != "w" {
			t.Errorf("reply %+v", reply)
		}
		// submit; mark, state and result; the woken read. The take and the finish of the
		// stand-in for a worker lie between.
		trips := map[string]int{}
		for _, trip := range r.trips.Seen() {
			trips[strings.Join(trip, " ")]++
		}
		if diff := cmp.Diff(map[string]int{"evalsha": 1 + 2, "evalsha hget get": 1, "get": 1}, trips); diff != "" {
			t.Errorf("round trips (-want +got):\n%s", diff)
		}
		s := r.sent[1]
		if s.queue != "llm-m-rt" || s.Group != llmq.TenantHash("team") || s.Delay != 0 {
			t.Errorf("sent %+v", s)
		}
		if diff := cmp.Diff(map[string]string{"llmq_v": "1", "llmq_op": "chat", "llmq_lane": "rt", "llmq_rid": string(req.RID())}, s.Attributes); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		env, err := llmq.DecodeEnvelope(s.Body)
		if err != nil {
			t.Fatalf("envelope: %v", err)
		}
		wantEnv := llmq.Envelope{
			ID: "req-1", Op: llmq.OpChat, Model: "m", Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Deadline: req.Deadline,
			Tenant: "team", KeyID: "k", User: "u", Session: "s", Trace: "tr", Params: req.Body,
		}
		if diff := cmp.Diff(wantEnv, env); diff != "" {
			t.Errorf("envelope (-want +got):\n%s", diff)
		}
	})
}

func TestDo_TakesUpARunningRequest(t *testing.T) {
	t.Parallel()
	bubble(t, replies(5*time.Second), func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				req := request()
				if i > 1 { // the same body, written otherwise
					req.Body = []byte(`{"x":"<y>","model":"m"}`)
				}
				r.wantReply(req)
			})
		}
		all.Wait()
		r.want(1, 1)
	})
}

func TestDo_SameRequestAtTheSameMomentRunsOnce(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Second), func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { r.wantReply(request()) })
		}
		all.Wait()
		if _, runs := r.counts(); runs != 1 {
			t.Errorf("%d runs, want one however often it was sent", runs)
		}
	})
}

func TestDo_ReturnsAStoredResultWithoutASend(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		r.wantReply(request())
		time.Sleep(time.Minute)
		r.wantReply(request())
		r.want(1, 1)
	})
}

// H10 c.
// DS18.
func TestDo_ChangedBodyIsAMismatchWhileItRunsAndAfter(t *testing.T) {
	t.Parallel()
	bubble(t, replies(5*time.Second), func(t *testing.T, r *rig) {
		changed := request()
		changed.Body = []byte(`{"model":"m","x":"two"}`)
		var first sync.WaitGroup
		first.Go(func() { r.wantReply(request()) })
		time.Sleep(time.Second)
		r.wantError(t.Context(), changed, llmq.CodeIdempotencyMismatch)
		first.Wait()
		r.wantError(t.Context(), changed, llmq.CodeIdempotencyMismatch)
		r.wantReply(request()) // the first is untouched
		r.want(1, 1)
	})
}

// DS18.
func TestDo_AnotherTenantsIDIsAnotherRequest(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		other := request()
		other.Tenant, other.Body = "rivals", []byte(`{"model":"m","x":"theirs"}`)
		r.wantReply(request())
		r.wantReply(other)
		r.want(2, 2)
	})
}

// DS17.
func TestDo_ResultThatIsGoneIsExpiredAndNotBoughtAgain(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		first := request()
		r.wantReply(first)
		time.Sleep(time.Until(first.Deadline) + claims.ResultLife + time.Second)
		r.wantError(t.Context(), request(), llmq.CodeResultExpired)
		r.want(1, 1)
	})
}

// A claim can outlive its submission record: then the message is sent, finds its request
// done, and the caller must hear so rather than wait.
func TestDo_EndedRequestWithoutARecordIsExpired(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		req := request()
		r.wantReply(req)
		k := r.space.Call("team", req.RID())
		r.mini.Del(k.Submission)
		r.mini.Del(k.Result)
		start := time.Now()
		r.wantError(t.Context(), req, llmq.CodeResultExpired)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v to say so", took)
		}
		_, runs := r.counts()
		if runs != 1 {
			t.Errorf("%d runs, want one", runs)
		}
	})
}

func TestDo_FailedSendIsUnavailableAndARepeatSendsAgain(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached").Because(errors.New("503"))
		r.wantError(t.Context(), request(), llmq.CodeQueueUnavailable)
		r.sendErr, r.serve = nil, replies(time.Second)
		r.wantReply(request())
		r.want(2, 1)
	})
}

func TestDo_WaitEndsWithItsContextAndTheSameIDTakesItUp(t *testing.T) {
	t.Parallel()
	bubble(t, replies(10*time.Second), func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if e := r.failure(ctx, request(), llmq.CodeTimeout); !strings.Contains(e.Message, "req-1") {
			t.Errorf("message %q does not name the request", e.Message)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("waited %v, want 3s", took)
		}
		r.wantReply(request())
		r.want(1, 1)
	})
}

func TestDo_WaitsLittleLongerThanTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		r.wantError(t.Context(), req, llmq.CodeExpired)
		if took := time.Since(start); took < 90*time.Second || took > 93*time.Second {
			t.Errorf("waited %v for a deadline of 90s", took)
		}
	})
}

func TestDo_StoredErrorIsTheCallersError(t *testing.T) {
	t.Parallel()
	serve := func(r llmq.Request) *llmq.Result {
		e := llmq.Errorf(llmq.CodeRateLimited, "m@t: slow down").After(7 * time.Second)
		e.Meta = llmq.Meta{RequestID: r.ID, Lane: r.Lane, Target: "t", Attempts: 1}
		return &llmq.Result{Err: e}
	}
	bubble(t, serve, func(t *testing.T, r *rig) {
		e := r.failure(t.Context(), request(), llmq.CodeRateLimited)
		if e.Message != "m@t: slow down" || e.RetryAfter != 7*time.Second || e.Meta.Attempts != 1 {
			t.Errorf("error %+v", e)
		}
	})
}

// What was decided before the wait ended is told even after it.
func TestDo_VerdictStandsWhenTheContextEndsWithIt(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		r.wantReply(request())
		changed := request()
		changed.Body = []byte("{}")
		ctx, cancel := context.WithCancel(t.Context())
		r.working.Wait()
		r.trips.OnAnswer(func(context.Context, []redis.Cmder) error {
			cancel()
			return nil
		})
		r.wantError(ctx, changed, llmq.CodeIdempotencyMismatch)
	})
}

func TestDo_RefusesBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		unknown, wrong, stream := request(), request(), request()
		unknown.Model.Alias, wrong.Op, stream.Body = "n", llmq.OpConverse, []byte(`{"model":"m","stream":true}`)
		r.wantError(t.Context(), unknown, llmq.CodeModelNotFound)
		r.wantError(t.Context(), wrong, llmq.CodeWrongWire)
		r.wantError(t.Context(), stream, llmq.CodeInvalidRequest)
		if n := len(r.trips.Seen()); n != 0 {
			t.Errorf("%d round trips, want none", n)
		}
		r.want(0, 0)
	})
}

func TestDo_StoreDownIsUnavailableAndNothingIsSent(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
		r.wantError(t.Context(), request(), llmq.CodeQueueUnavailable)
		r.want(0, 0)
	})
}

// DS20: an error here would make the caller send, and pay for, another request.
func TestDo_StoreLostAfterTheSendIsWaitedOut(t *testing.T) {
	t.Parallel()
	bubble(t, replies(3*time.Second), func(t *testing.T, r *rig) {
		warm := request()
		warm.ID = "warm" // the store learns the scripts: one it does not know has no effect
		r.wantReply(warm)
		r.working.Wait()
		lost := false
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if len(cmds) == 3 && !lost { // mark, state, result
				lost = true
				return errors.New("connection reset")
			}
			return nil
		})
		r.wantReply(request())
		r.wantReply(request())
		r.want(2, 2)
	})
}

func TestDo_BulkWithoutAQueueGoesToTheDefaultOne(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		req := request()
		req.Lane = llmq.LaneBulk
		r.wantReply(req)
		if r.sent[0].queue != "llm-m" {
			t.Errorf("sent to %s", r.sent[0].queue)
		}
	})
}

// On real servers, in both modes: callers of their own requests, at the same moment.
func TestDo_ManyCallersEachGetTheirOwn(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		name := "valkey"
		if cluster {
			name = "valkey-cluster"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, servers.Dial(t, cluster), replies(0))
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					req := request()
					req.ID = llmq.NewID()
					reply, err := r.Do(t.Context(), req)
					if err != nil || string(reply.Body) != `{"for":"`+req.ID+`"}` {
						t.Errorf("do = %+v, %v", reply, err)
					}
				})
			}
			all.Wait()
			r.working.Wait()
			r.want(100, 100)
		})
	}
}

// KT6, SEC07: a result that is not the caller's own is not shown, whoever stored it, and is told once.
func TestDo_ForeignResultIsNotReturned(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := request()
		foreign, err := llmq.EncodeResult(llmq.Result{RID: llmq.NewRID("rivals", "x"), Tenant: "rivals", Reply: &llmq.Reply{Status: 200, Body: []byte(`"theirs"`)}}, nil)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if err := r.mini.Set(r.space.Call("team", req.RID()).Result, string(foreign)); err != nil {
			t.Fatalf("set: %v", err)
		}
		if e := r.failure(t.Context(), req, llmq.CodeInternal); strings.Contains(e.Error(), "theirs") {
			t.Errorf("the error quotes it: %v", e)
		}
		if n := r.mixed.Load(); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
	})
}

func TestNew_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{}, client.Deps{})
	for _, want := range []string{"Config.Names", "Config.InlineMaxBytes", "Deps.Valkey", "Deps.Queue", "Deps.Claims", "Deps.Results", "Deps.Hub", "Deps.Bodies", "Deps.Log"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
