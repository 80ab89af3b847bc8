package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// programConfig is that of a program.
func programConfig(name string) client.Config {
	cfg := directConfig()
	cfg.Caller, cfg.Callers, cfg.OutlastStore, cfg.CancelWithContext = name, 0, true, true
	return cfg
}

// callersOf runs a test of so many programs on one store, each with a connection of its own.
func callersOf(t *testing.T, n int, test func(t *testing.T, rs []*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, space := llmqtest.NewMiniredis(t), luatest.Space()
		rs := make([]*rig, n)
		for i := range rs {
			rs[i] = newRigIn(t, luatest.Pipe(t, m), space, programConfig(string(rune('a'+i))), replies(0))
		}
		rs[0].preset()
		defer func() {
			for _, r := range rs {
				r.working.Wait()
				r.Close()
			}
		}()
		test(t, rs)
	})
}

// attended makes a call of each model by each program, and waits until they know of each other.
func attended(t *testing.T, rs []*rig) {
	t.Helper()
	for i, r := range rs {
		for k, alias := range []string{"m", "free"} {
			req := once(1000 + 10*i + k)
			req.Model.Alias = alias
			r.wantReply(req)
		}
	}
	time.Sleep(capacity.Away + 2*capacity.AttendEvery)
}

// soon is a call that waits for so long.
func soon(n int, alias string, d time.Duration) llmq.Request {
	r := once(n)
	r.Model.Alias, r.Deadline = alias, time.UnixMilli(time.Now().Add(d).UnixMilli())
	return r
}

// C9, D11: a program goes on without the store once that has failed for as long as it may; at a target with a cap once what others
// had in flight there has ended.
func TestProgram_LostStoreIsDoneWithout(t *testing.T) {
	t.Parallel()
	for alias, least := range map[string]time.Duration{"free": 1500 * time.Millisecond, "m": 45 * time.Second} {
		t.Run(alias, func(t *testing.T) {
			t.Parallel()
			callersOf(t, 1, func(t *testing.T, rs []*rig) {
				attended(t, rs)
				rs[0].lose(0)
				began := time.Now()
				rs[0].served(soon(0, alias, 2*time.Minute), least+15*time.Second)
				if took := time.Since(began); took < least {
					t.Errorf("after %v, want %v at least", took, least)
				}
				if log := rs[0].log.String(); strings.Count(log, "calls_uncounted") != 1 {
					t.Errorf("log: %s", log)
				}
				var out strings.Builder
				if err := rs[0].metrics.FlushEMF(&out, "n"); err != nil || !strings.Contains(out.String(), `"llmq_direct_total":1`) {
					t.Errorf("metrics: %v %s", err, out.String())
				}
			})
		})
	}
}

// C9, DS56: programs run at most what was last heard ÷ how many they are, and no more than a cap all together.
func TestProgram_ProgramsShareWhatThereIs(t *testing.T) {
	t.Parallel()
	callersOf(t, 3, func(t *testing.T, rs []*rig) {
		attended(t, rs)
		var running, peak, served atomic.Int32
		var calls sync.WaitGroup
		for _, r := range rs {
			r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
				for now := running.Add(1); ; {
					if was := peak.Load(); now <= was || peak.CompareAndSwap(was, now) {
						break
					}
				}
				time.Sleep(time.Second)
				running.Add(-1)
				return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{}`)}, nil
			}
			r.lose(0)
		}
		time.Sleep(capacity.AttendEvery + 2*time.Second) // all of them have seen it
		for i := range 90 {
			calls.Go(func() {
				if _, err := rs[i%3].Do(t.Context(), soon(i, "free", 80*time.Second)); err == nil {
					served.Add(1)
				}
			})
		}
		calls.Wait()
		if peak.Load() != 18 || served.Load() != 90 { // a third of 20 each
			t.Errorf("%d at once and %d of 90 served, want 18 and all", peak.Load(), served.Load())
		}
		rs[0].wantError(t.Context(), soon(100, "m", 70*time.Second), llmq.CodeQueueUnavailable) // a third of a cap of 1 is none
		for _, r := range rs {
			if got := int(r.provided.Load()); got != 30 {
				t.Errorf("a program ran %d calls, want 30", got)
			}
		}
	})
}

// C9, D14, DS45, DS56: what may have another who knows it, and where nobody knows how many share, nothing runs; its caller is told to
// come back.
func TestProgram_LostStoreIsUnavailableForAllElse(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection refused")
	for name, tc := range map[string]struct {
		change func(r *llmq.Request)
		early  bool  // the store is lost before it is known who shares
		err    error // of the store; nil: it does not answer
	}{
		"an id of the caller's own":         {change: func(r *llmq.Request) { r.OneOff = false }},
		"bg":                                {change: func(r *llmq.Request) { r.Lane = llmq.LaneBG }},
		"a target that nobody has heard of": {change: func(r *llmq.Request) { r.Model.Alias = "large" }},
		"lost before it knew who shares":    {early: true},
		"a store that answers":              {err: answer("OOM command not allowed")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callersOf(t, 1, func(t *testing.T, rs []*rig) {
				r := rs[0]
				if tc.early {
					r.wantReply(once(1))
					time.Sleep(capacity.AttendEvery)
				} else {
					attended(t, rs)
				}
				r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
					if tc.err != nil {
						return tc.err
					}
					return lost
				})
				req := soon(0, "free", 70*time.Second)
				if tc.change != nil {
					tc.change(&req)
				}
				e := r.failure(t.Context(), req, llmq.CodeQueueUnavailable)
				if e.RetryAfter <= 0 {
					t.Errorf("no Retry-After: %+v", e)
				}
				if r.provided.Load() != 0 {
					t.Error("it was run here")
				}
			})
		})
	}
}

// answer is one of the server's.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// C9, C12: what was run without the store has slots there once it is back, before anybody is admitted, and they are returned when it ends.
func TestProgram_StoreThatIsBackHearsOfWhatRuns(t *testing.T) {
	t.Parallel()
	callersOf(t, 1, func(t *testing.T, rs []*rig) {
		attended(t, rs)
		r := rs[0]
		r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
			time.Sleep(time.Minute)
			return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"for":"here"}`)}, nil
		}
		r.lose(70 * time.Second)
		var call sync.WaitGroup
		call.Go(func() { r.served(soon(0, "m", 4*time.Minute), 3*time.Minute) })
		time.Sleep(75 * time.Second)
		at := catalogue().Models()[0].Targets[0]
		if st := peek(r, at); st.InUse != 1 || st.Quarantine <= 0 {
			t.Errorf("while it runs: %+v, want its slot and nobody else admitted", st)
		}
		call.Wait()
		time.Sleep(2 * time.Second)
		if st := peek(r, at); st.InUse != 0 || st.Lapsed != 0 {
			t.Errorf("after its end: %+v", st)
		}
		r.wantReply(once(1))
		if log := r.log.String(); strings.Count(log, "calls_counted_again") != 1 {
			t.Errorf("log: %s", log)
		}
	})
}

// peek looks at a target, whatever becomes of the rig's own connection.
func peek(r *rig, at llmq.Target) capacity.State {
	r.t.Helper()
	var b luascript.Batch
	peeked := capacity.New(r.space).Peek(&b, at)
	if err := b.Run(r.t.Context(), r.valkey); err != nil {
		r.t.Fatal(err)
	}
	st, err := peeked()
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// DS11, C9: a call that has got a slot, and then can't renew it, is stopped as a worker's is.
func TestProgram_StoreThatIsLostAgainStopsWhatHadASlot(t *testing.T) {
	t.Parallel()
	callersOf(t, 1, func(t *testing.T, rs []*rig) {
		attended(t, rs)
		r := rs[0]
		var stopped atomic.Bool
		r.provide = func(ctx context.Context, _ provider.Request) (*provider.Response, error) {
			<-ctx.Done()
			stopped.Store(true)
			return nil, ctx.Err()
		}
		start := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if d := time.Since(start); d < 20*time.Second || d > 30*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		var call sync.WaitGroup
		call.Go(func() { _, _ = r.Do(t.Context(), soon(0, "free", 4*time.Minute)) })
		time.Sleep(50 * time.Second)
		if r.provided.Load() != 1 || stopped.Load() {
			t.Fatalf("%d calls, stopped %v", r.provided.Load(), stopped.Load())
		}
		time.Sleep(20 * time.Second)
		if !stopped.Load() {
			t.Error("it runs on")
		}
		call.Wait()
	})
}
