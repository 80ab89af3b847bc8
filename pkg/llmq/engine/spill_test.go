package engine_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// deaf makes the store hear no finish until it is called.
func (r *rig) deaf() (back func()) {
	lost := true
	r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
		if lost && isFinish(cmds) {
			return errors.New("connection refused")
		}
		return nil
	})
	return func() { lost = false }
}

// D1, DS37: the store is lost between the reply and its storing. The message goes back, and the next owner of the claim, in
// another process, returns the reply without another call.
func TestRun_ReplyThatCannotBeStoredIsFoundByTheNextOwner(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"small": `{"a": "<1>"}`, "large": `"` + strings.Repeat("y", 5000) + `"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers(body, time.Second), func(t *testing.T, r *rig) {
				req := request()
				back := r.deaf()
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				wantVerdict(t, v, engine.Release, engine.ReasonStoreUnavailable)
				if v.Defer != nil || r.stored(req) != nil {
					t.Errorf("verdict %+v: the claim is to lapse, so that the next take is a takeover", v)
				}
				back()
				time.Sleep(claims.Lease)
				wantVerdict(t, r.newEngine("w2", 0).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "reply_recovered")
				if n := r.provider.calls.Load(); n != 1 {
					t.Errorf("%d provider calls, want 1", n)
				}
				if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != body || res.Reply.Meta.Worker != "w1" {
					t.Errorf("stored %+v, want the first worker's reply", res)
				}
				for key := range r.bodies.stored {
					if strings.HasPrefix(key, "spill/") {
						t.Errorf("%s is left", key)
					}
				}
				if log := r.log.String(); strings.Contains(log, body) || strings.Contains(log, "level=WARN") {
					t.Errorf("the log is\n%s", log)
				}
			})
		})
	}
}

// DS37: its deadline passes before the claim lapses, so that nobody can take the request up. Who looks for it later gets what was paid for.
func TestRun_ReplyIsFoundAfterTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{"a":1}`, time.Second), func(t *testing.T, r *rig) {
		req := request()
		req.Deadline = time.Now().Add(claims.Lease - 5*time.Second)
		back := r.deaf()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, engine.ReasonStoreUnavailable)
		back()
		time.Sleep(claims.Lease + time.Second)
		wantVerdict(t, r.newEngine("w2", 0).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "reply_recovered")
		if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != `{"a":1}` || r.provider.calls.Load() != 1 {
			t.Errorf("stored %+v after %d provider calls, want the reply of the one", res, r.provider.calls.Load())
		}
		for key := range r.bodies.stored {
			if strings.HasPrefix(key, "spill/") {
				t.Errorf("%s is left", key)
			}
		}
	})
}

// DS37: the body store is asked nothing by a first take, a repeat of one that has ended, a take after releases, and one after
// a wipe whose message comes for the first time.
func TestRun_OrdinaryCallAsksTheBodyStoreNothing(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", time.Second), func(t *testing.T, r *rig) {
		req := request()
		first := r.take(req, "first")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			return r.claims.Defer(b, first.Claim, 0, claims.Progress{})
		})
		second := r.take(req, "second")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			return r.claims.Defer(b, second.Claim, 0, claims.Progress{})
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Receives: 3}), engine.Stored, "ok")
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Receives: 4}), engine.Stored, "already_stored")
		r.empty()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request(), Receives: 1}), engine.Stored, "ok")
		if r.bodies.looks != 0 || len(r.bodies.stored) != 0 {
			t.Errorf("%d looks, %d puts", r.bodies.looks, len(r.bodies.stored))
		}
	})
}

// DS37: where the body store fails as well, the reply is lost, which the log says with what it has cost.
func TestRun_ReplyThatNobodyTakesIsAccountedFor(t *testing.T) {
	t.Parallel()
	call := func(context.Context, provider.Request) (*provider.Response, error) {
		return &provider.Response{Status: 200, Body: []byte(`{"x":"the reply"}`), Usage: &provider.Usage{Input: 7, Output: 3}}, nil
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		back := r.deaf()
		r.bodies.err = errors.New("no bucket")
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Leave, engine.ReasonStoreUnavailable)
		log := r.log.String()
		if !strings.Contains(log, "reply not stored") || !strings.Contains(log, "reply_dropped") || !strings.Contains(log, "output_tokens=3") || strings.Contains(log, "the reply") {
			t.Errorf("the log is\n%s", log)
		}
		// The next owner can't look, and runs it: nothing stops because the bucket fails.
		back()
		time.Sleep(capacity.Lease)
		wantVerdict(t, r.newEngine("w2", 0).Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if n := r.provider.calls.Load(); n != 2 {
			t.Errorf("%d provider calls, want 2", n)
		}
	})
}

// DS37: what lies there is believed only if it is a reply to this very request, of the same generation, whether its claim was
// taken over or the store has forgotten it.
func TestRun_SpillOfAnythingElseIsIgnored(t *testing.T) {
	t.Parallel()
	spilled := func(r *rig, req llmq.Request, res llmq.Result, fence int64) {
		stored, err := llmq.EncodeResult(res, nil)
		if err != nil {
			r.t.Fatalf("encode: %v", err)
		}
		if err := r.results.Spill(r.t.Context(), req, results.Spilled{Stored: stored, Fence: fence}); err != nil {
			r.t.Fatalf("spill: %v", err)
		}
	}
	good := func(req llmq.Request) llmq.Result {
		return llmq.Result{RID: req.RID(), Tenant: req.Tenant, BodyHash: claims.BodyHash(req), Reply: &llmq.Reply{Status: 200, Body: []byte(`"spilled"`)}}
	}
	for _, tc := range []struct {
		name  string
		put   func(r *rig, req llmq.Request)
		taken bool
	}{
		{"its own", func(r *rig, req llmq.Request) { spilled(r, req, good(req), 1) }, true},
		{"of the same fence, before a wipe", func(r *rig, req llmq.Request) { spilled(r, req, good(req), 2) }, true},
		{"of a later fence, before a wipe", func(r *rig, req llmq.Request) { spilled(r, req, good(req), 7) }, true},
		{"of an earlier generation", func(r *rig, req llmq.Request) {
			req.Generation--
			spilled(r, req, good(req), 1)
		}, false},
		{"of a later generation", func(r *rig, req llmq.Request) {
			req.Generation++
			spilled(r, req, good(req), 1)
		}, false},
		{"of another operation", func(r *rig, req llmq.Request) {
			res := good(req)
			req.Op = llmq.OpEmbeddings
			res.BodyHash = claims.BodyHash(req)
			spilled(r, req, res, 1)
		}, false},
		{"of an earlier request of the id", func(r *rig, req llmq.Request) {
			req.Deadline = req.Deadline.Add(-time.Hour)
			spilled(r, req, good(req), 1)
		}, false},
		{"of another body", func(r *rig, req llmq.Request) {
			res := good(req)
			res.BodyHash = "other"
			spilled(r, req, res, 1)
		}, false},
		{"of another request", func(r *rig, req llmq.Request) {
			res := good(req)
			res.RID = llmq.NewRID(req.Tenant, "other")
			spilled(r, req, res, 1)
		}, false},
		{"of another tenant", func(r *rig, req llmq.Request) {
			res := good(req)
			res.Tenant = "other"
			spilled(r, req, res, 1)
		}, false},
		{"an error", func(r *rig, req llmq.Request) {
			res := good(req)
			res.Reply, res.Err = nil, llmq.Errorf(llmq.CodeTimeout, "late")
			spilled(r, req, res, 1)
		}, false},
		{"no JSON", func(r *rig, req llmq.Request) { r.corrupt(req, []byte("canary{")) }, false},
		{"nothing", func(r *rig, req llmq.Request) { r.corrupt(req, nil) }, false},
		{"of a newer version", func(r *rig, req llmq.Request) { r.corrupt(req, []byte(`{"v":2,"fence":1,"result":{}}`)) }, false},
		{"without a result", func(r *rig, req llmq.Request) { r.corrupt(req, []byte(`{"v":1,"fence":1}`)) }, false},
	} {
		for _, emptied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, store emptied %t", tc.name, emptied), func(t *testing.T) {
				t.Parallel()
				bubble(t, answers(`"run"`, 0), func(t *testing.T, r *rig) {
					req := request()
					req.Generation = 1
					r.take(req, "dead")
					tc.put(r, req)
					if emptied {
						r.empty()
					} else {
						time.Sleep(claims.Lease)
					}
					reason, body := "ok", `"run"`
					if tc.taken {
						reason, body = "reply_recovered", `"spilled"`
					}
					wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Receives: 2}), engine.Stored, reason)
					if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != body {
						t.Errorf("stored %+v, want %s", res, body)
					}
					if log := r.log.String(); !tc.taken && !strings.Contains(log, "spilled reply") || strings.Contains(log, "canary") {
						t.Errorf("the log is\n%s", log)
					}
				})
			})
		}
	}
}

// empty loses all that the store knows, and waits until it admits again.
func (r *rig) empty() {
	r.mini.FlushAll()
	time.Sleep(16 * time.Second)
}

// D1, DS37: the store is lost for good between the reply and its storing, and comes back empty. The message is received again, its
// claim is as new, and the reply is found all the same: while the request may still run, and after its deadline.
func TestRun_ReplyOutlastsAStoreThatComesBackEmpty(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": 0, "once it admits": 16 * time.Second, "after the deadline": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers(`{"a":1}`, time.Second), func(t *testing.T, r *rig) {
				req := request()
				back := r.deaf()
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Receives: 1}), engine.Release, engine.ReasonStoreUnavailable)
				back()
				r.mini.FlushAll()
				time.Sleep(wait)
				wantVerdict(t, r.newEngine("w2", 0).Run(t.Context(), engine.Call{Request: req, Receives: 2}), engine.Stored, "reply_recovered")
				if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != `{"a":1}` || r.provider.calls.Load() != 1 {
					t.Errorf("stored %+v after %d provider calls, want the reply of the one", res, r.provider.calls.Load())
				}
				for key := range r.bodies.stored {
					if strings.HasPrefix(key, "spill/") {
						t.Errorf("%s is left", key)
					}
				}
			})
		})
	}
}

// corrupt puts anything where a spilled reply would lie.
func (r *rig) corrupt(req llmq.Request, object []byte) {
	key := fmt.Sprintf("spill/%s/%s", llmq.TenantHash(req.Tenant), req.RID())
	if _, err := r.bodies.Put(r.t.Context(), key, object); err != nil {
		r.t.Fatalf("put: %v", err)
	}
}

// DS37: an end that was stored meanwhile stands, whoever comes with a spilled reply; a cancelled request gets none.
func TestRun_SpillReplacesNoEnd(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`"run"`, 0), func(t *testing.T, r *rig) {
		req := request()
		back := r.deaf()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		back()
		time.Sleep(claims.Lease)
		other := r.take(req, "other")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			stored, err := llmq.EncodeResult(llmq.Result{RID: req.RID(), Tenant: req.Tenant, Reply: &llmq.Reply{Status: 200, Body: []byte(`"newer"`)}}, nil)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			return r.claims.Finish(b, other.Claim, stored, false)
		})
		for _, e := range []*engine.Engine{r.engine, r.newEngine("w2", 0)} {
			wantVerdict(t, e.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		}
		if res := r.stored(req); res == nil || res.Reply == nil || string(res.Reply.Body) != `"newer"` {
			t.Errorf("stored %+v, want what was stored first", res)
		}
	})
}

// DS5, DS16: a store that is away for three seconds costs no reply and no takeover, whether it refuses at once or not.
func TestRun_ReplyOutlastsAShortOutage(t *testing.T) {
	t.Parallel()
	bubble(t, answers(`{"a":1}`, time.Second), func(t *testing.T, r *rig) {
		req := request()
		began := time.Now()
		r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
			if isFinish(cmds) && time.Since(began) < 4*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if res := r.stored(req); res == nil || res.Reply == nil || r.provider.calls.Load() != 1 {
			t.Errorf("stored %+v after %d calls", res, r.provider.calls.Load())
		}
	})
}
