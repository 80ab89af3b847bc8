package client_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// plant stores a result without a worker, and without waking anybody.
func (r *rig) plant(req llmq.Request, stored string) {
	r.t.Helper()
	if err := r.mini.Set(r.space.Call(req.Tenant, req.RID()).Result, stored); err != nil {
		r.t.Fatalf("set: %v", err)
	}
}

func own(t *testing.T, req llmq.Request) string {
	t.Helper()
	stored, err := llmq.EncodeResult(llmq.Result{RID: req.RID(), Tenant: req.Tenant, Reply: &llmq.Reply{Status: 200, Body: []byte(`{"for":"` + req.ID + `"}`)}}, nil)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return string(stored)
}

// DS7 from the other side: what came before the subscription stood is found at once.
func TestDo_FindsWhatCameBeforeItWaited(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		r.plant(req, own(t, req))
		r.wantReply(req)
		if took := time.Since(start); took != 0 {
			t.Errorf("found after %v, want it at once", took)
		}
	})
}

func TestDo_LostWakeIsMadeUpForByTheSweep(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req, start := request(), time.Now()
		r.working.Go(func() {
			time.Sleep(time.Second)
			r.plant(req, own(t, req))
		})
		r.wantReply(req)
		if took := time.Since(start); took < time.Second || took > results.SweepEvery+2*time.Second {
			t.Errorf("found after %v, want at most %v after it came", took, results.SweepEvery)
		}
	})
}

// The provider's bytes arrive as they are, with all that is known of the call.
func TestDo_ReplyArrivesByteForByte(t *testing.T) {
	t.Parallel()
	want := &llmq.Reply{
		Status: 201, ContentType: "application/json", Body: []byte("{ \"n\" : 1.0e0,\t\"x\":\"<\\u00e9é&\",\n\"n2\":12345678901234567890 }"),
		Meta: llmq.Meta{
			RequestID: "req-1", Model: "m", Target: "t", Provider: "p", ModelID: "gpt-x", Lane: llmq.LaneRT, Fallback: true, Attempts: 2, Takeovers: 1,
			QueueWait: 3 * time.Millisecond, Provided: 4 * time.Second, Worker: "w",
		},
	}
	serve := func(llmq.Request) *llmq.Result { reply := *want; return &llmq.Result{Reply: &reply} }
	bubble(t, serve, func(t *testing.T, r *rig) {
		got, err := r.Do(t.Context(), request())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("do: %v (-want +got):\n%s", err, diff)
		}
	})
}

// KT6: whatever lies under the caller's key is compared before any of it is shown,
// whether it lies there already or comes while the caller waits.
func TestDo_ResultThatIsNotOneOfOursIsNotShown(t *testing.T) {
	t.Parallel()
	req := llmq.Request{ID: "req-1", Tenant: "team"}
	good := own(t, req)
	for name, stored := range map[string]string{
		"another request's": own(t, llmq.Request{ID: "req-2", Tenant: "team"}),
		"another tenant's":  strings.Replace(good, llmq.TenantHash("team"), llmq.TenantHash("rivals"), 1),
		"a newer release's": strings.Replace(good, `"v":1`, `"v":2`, 1),
		"no reply":          strings.Replace(good, `"status":200,`, ``, 1),
		"no result":         `"req-1"`,
		"no JSON":           `{"for":"req-1`,
		"nothing":           "",
	} {
		for _, early := range []bool{true, false} {
			bubble(t, nil, func(t *testing.T, r *rig) {
				if early {
					r.plant(req, stored)
				} else {
					r.working.Go(func() {
						time.Sleep(time.Second)
						r.plant(req, stored)
					})
				}
				if e := r.failure(t.Context(), request(), llmq.CodeInternal); strings.Contains(e.Message, "for") || strings.Contains(e.Error(), `"for"`) {
					t.Errorf("%s, early %v: the error quotes it: %v", name, early, e)
				}
			})
		}
	}
}

// The verdict on a deadline that passed is worth a little wait.
func TestDo_HearsTheVerdictOnItsOwnDeadline(t *testing.T) {
	t.Parallel()
	serve := func(r llmq.Request) *llmq.Result {
		time.Sleep(time.Until(r.Deadline) + 1900*time.Millisecond)
		return &llmq.Result{Err: llmq.Errorf(llmq.CodeExpired, "the deadline passed while the request was queued")}
	}
	bubble(t, serve, func(t *testing.T, r *rig) { r.wantError(t.Context(), request(), llmq.CodeExpired) })
}

func TestDo_WaitsTwoSecondsPastTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := request()
		r.wantError(t.Context(), req, llmq.CodeExpired)
		if late := time.Since(req.Deadline); late != 2*time.Second {
			t.Errorf("gave up %v after the deadline, want 2s", late)
		}
	})
}

func TestDo_EndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.wantError(ctx, request(), llmq.CodeTimeout)
		r.want(0, 0)
	})
}

// A message that came over a queue leaves no submission record: its result tells whose
// body it answers, and nobody else gets it.
func TestDo_ResultOfAnotherBodyIsAMismatch(t *testing.T) {
	t.Parallel()
	queued := request()
	queued.Body = []byte(`{"model":"m","x":"another body"}`)
	for name, res := range map[string]llmq.Result{
		"reply": {Reply: &llmq.Reply{Status: 200, Body: []byte(`{"for":"another"}`)}},
		"error": {Err: llmq.Errorf(llmq.CodeProviderRejected, "another's temperature")},
	} {
		res.RID, res.Tenant, res.BodyHash = queued.RID(), queued.Tenant, claims.BodyHash(queued)
		stored, err := llmq.EncodeResult(res, nil)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		for _, after := range []time.Duration{0, time.Second} { // there already, or waited for
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.working.Go(func() {
					time.Sleep(after)
					r.plant(request(), string(stored))
				})
				synctest.Wait()
				if e := r.failure(t.Context(), request(), llmq.CodeIdempotencyMismatch); strings.Contains(e.Error(), "another's") {
					t.Errorf("%s after %v: the error quotes it: %v", name, after, e)
				}
			})
		}
	}
}

// DS24: a fetch with another body than the message's that came over a queue is told so at once, sends nothing, and leaves the right
// one what it had.
func TestDo_AnotherBodyThanTheQueuedOneSpoilsNothing(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]time.Duration{"has ended": 0, "runs": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, replies(ends), func(t *testing.T, r *rig) {
				queued := request()
				body, err := llmq.Envelope{ID: queued.ID, Op: queued.Op, Model: "m", Lane: queued.Lane, Deadline: queued.Deadline, Tenant: queued.Tenant, Params: queued.Body}.Encode()
				if err != nil {
					t.Fatalf("encode: %v", err)
				}
				r.working.Go(func() { r.work(body) })
				synctest.Wait()
				time.Sleep(time.Second)
				wrong, began := request(), time.Now()
				wrong.Body = []byte(`{"model":"m","x":"a typo"}`)
				r.wantError(t.Context(), wrong, llmq.CodeIdempotencyMismatch)
				if took := time.Since(began); took != 0 {
					t.Errorf("told after %v, want it at once", took)
				}
				r.want(0, 1)
				r.wantReply(request())
			})
		})
	}
}

// A10: an id stands for its model and operation too.
func TestDo_ChangedModelOrOperationIsAMismatch(t *testing.T) {
	t.Parallel()
	bubble(t, replies(5*time.Second), func(t *testing.T, r *rig) {
		var changed []llmq.Request
		for _, change := range []func(*llmq.Request){
			func(r *llmq.Request) { r.Model.Alias = "large" },
			func(r *llmq.Request) { r.Model.Target = "t" },
			func(r *llmq.Request) { r.Op = llmq.OpEmbeddings },
		} {
			req := request()
			change(&req)
			changed = append(changed, req)
		}
		var first sync.WaitGroup
		first.Go(func() { r.wantReply(request()) })
		time.Sleep(time.Second)
		for _, req := range changed {
			r.wantError(t.Context(), req, llmq.CodeIdempotencyMismatch)
		}
		first.Wait()
		for _, req := range changed {
			r.wantError(t.Context(), req, llmq.CodeIdempotencyMismatch)
		}
		r.want(1, 1)
	})
}

// A caller that died between its record and its send leaves an id that nothing was sent
// for: the repeat sends.
func TestDo_RecordWithoutASendIsSent(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		var b luascript.Batch
		submitted := r.claims.Submit(&b, request(), claims.BodyHash(request()))
		if err := b.Run(t.Context(), r.valkey); err != nil {
			t.Fatalf("submit: %v", err)
		}
		if sub, err := submitted(); err != nil || sub.Known {
			t.Fatalf("submitted %+v, %v", sub, err)
		}
		r.wantReply(request())
		r.want(1, 1)
	})
}

// One that died before it noted its send costs a second message; the claim keeps it to
// one run.
func TestDo_SendThatWasNotNotedIsRepeatedAndRunsOnce(t *testing.T) {
	t.Parallel()
	bubble(t, replies(3*time.Second), func(t *testing.T, r *rig) {
		down := true
		r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
			if len(cmds) == 3 && down { // mark, state, result
				return errors.New("connection refused")
			}
			return nil
		})
		r.wantReply(request())
		r.want(1, 1)
		down = false
		r.wantReply(request())
		r.working.Wait()
		r.want(2, 1)
	})
}

// deaf is a connection on which the server hears no subscription.
type deaf struct{ net.Conn }

func (c deaf) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Nothing was sent, so that there is nothing to wait for until the deadline.
func TestDo_UnconfirmedSubscriptionIsUnavailableSoon(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := r.mini.Dial()
				return deaf{conn}, err
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = c.Close() })
		r.replaceHub(results.NewHub(results.New(c, r.space, r, 1000)))
		start := time.Now()
		r.wantError(t.Context(), request(), llmq.CodeQueueUnavailable)
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("told after %v, want it soon", took)
		}
		r.want(0, 0)
	})
}

// replaceHub makes the rig's client anew, with another hub.
func (r *rig) replaceHub(h *results.Hub) {
	r.t.Helper()
	deps := r.Deps
	deps.Hub = h
	c, err := client.New(client.Config{Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000}, deps)
	if err != nil {
		r.t.Fatalf("new client: %v", err)
	}
	r.Client = c
}

// What each call costs in round trips, by what it finds.
func TestDo_RoundTrips(t *testing.T) {
	t.Parallel()
	bubble(t, replies(3*time.Second), func(t *testing.T, r *rig) {
		r.wantReply(request()) // the store learns the scripts
		r.trips.Seen()
		r.wantReply(request())
		// Submit, then state and result; nothing is sent, marked or waited for.
		if diff := cmp.Diff([][]string{{"evalsha"}, {"hget", "get"}}, r.trips.Seen()); diff != "" {
			t.Errorf("a stored result (-want +got):\n%s", diff)
		}
		changed := request()
		changed.Body = []byte("{}")
		r.wantError(t.Context(), changed, llmq.CodeIdempotencyMismatch)
		if diff := cmp.Diff([][]string{{"evalsha"}}, r.trips.Seen()); diff != "" {
			t.Errorf("a mismatch (-want +got):\n%s", diff)
		}
	})
}

// Without a subscription a reply could be missed, so nothing is sent. Not in a bubble: the
// library holds its mutex while it dials.
func TestDo_FailedSubscriptionIsUnavailableAndNothingIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, servers.Dial(t, false), replies(0))
	dead := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1,
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		if err := dead.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.replaceHub(results.NewHub(results.New(dead, luatest.Space(), r, 1000)))
	r.wantError(t.Context(), request(), llmq.CodeQueueUnavailable)
	r.want(0, 0)
}
