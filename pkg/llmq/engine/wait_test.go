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
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

func TestRun_RTWaitsForASlotThenFails(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		give, start := r.occupy(), time.Now()
		defer give()
		go func() { // somebody keeps it
			for range 3 {
				time.Sleep(20 * time.Second)
				batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
					return r.capacity.Admit(b, askFor(target(), "other"))
				})
			}
		}()
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		if took := time.Since(start); took < 28*time.Second || took > 30*time.Second {
			t.Errorf("waited %v, want nearly 30s", took)
		}
		e := r.wantStored(req, llmq.CodeNoCapacity)
		if e.RetryAfter <= 0 || e.Meta.Attempts != 0 || r.provider.calls.Load() != 0 {
			t.Errorf("stored %+v after %d provider calls", e, r.provider.calls.Load())
		}
		time.Sleep(time.Minute)
	})
}

// C8, C14: who gives up is told how long it would have to wait if it came anew, behind all that wait, at the rate at which calls
// start. What has it look in often is another figure.
func TestRun_RTThatGivesUpIsToldHowLongTheQueueIs(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		const waiting, every = 9, 2 * time.Second
		stop, stopped := make(chan struct{}), make(chan struct{})
		held := capacity.Admission{}
		next := func(i int) { // somebody gets the slot in the moment in which it comes free
			held = batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
				if i > 0 {
					r.capacity.Settle(b, held.Slot, capacity.Outcome{Ending: capacity.OK})
				}
				return r.capacity.Admit(b, askFor(target(), fmt.Sprint("runs-", i)))
			})
			if !held.Granted {
				t.Errorf("%d got no slot: %+v", i, held)
			}
		}
		r.occupy()() // from here on the store knows both scripts, and runs them in the order in which they are sent
		next(0)
		for i := range waiting {
			batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
				a := askFor(target(), fmt.Sprint("waits-", i))
				a.Until = time.Now().Add(time.Hour)
				return r.capacity.Admit(b, a)
			})
		}
		go func() {
			defer close(stopped)
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(every):
					next(i)
				}
			}
		}()
		req := request()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		close(stop)
		<-stopped
		e := r.wantStored(req, llmq.CodeNoCapacity)
		if want := (waiting + 1) * every; e.RetryAfter < want*8/10 || e.RetryAfter > want*12/10 {
			t.Errorf("told to come again in %v, want about %v: it and %d others wait, and one starts every %v", e.RetryAfter, want, waiting, every)
		}
		asked := 0
		for range r.trips.Seen() {
			asked++
		}
		if asked < 100 {
			t.Errorf("%d round trips in 30 s, want it to look in all the time", asked)
		}
	})
}

// C8, C9: the wait for a slot counts only the time in which the store has said that there is none. So a call outlasts a store that is lost,
// and is told of no capacity once it has waited that long for a slot, and no sooner.
func TestRun_RTsWaitLeavesOutALostStore(t *testing.T) {
	t.Parallel()
	const from, until = 2 * time.Second, 20 * time.Second // it is lost
	lose := func(r *rig, start time.Time) {
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if at := time.Since(start); at > from && at < until {
				return errors.New("connection refused")
			}
			return nil
		})
	}
	t.Run("a slot comes free", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers(`{"x":1}`, 0), func(t *testing.T, r *rig) {
			give, start, freed := r.occupy(), time.Now(), make(chan struct{})
			lose(r, start)
			go func() {
				defer close(freed)
				time.Sleep(40 * time.Second)
				give()
			}()
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: hour(request())}), engine.Stored, "ok")
			if took := time.Since(start); took < 40*time.Second || took > 42*time.Second {
				t.Errorf("served after %v, want soon after the slot came free", took)
			}
			<-freed
		})
	})
	t.Run("none does", func(t *testing.T) {
		t.Parallel()
		bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
			defer r.occupy()()
			start, req := time.Now(), hour(request())
			lose(r, start)
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
			if took, want := time.Since(start), 30*time.Second+until-from; took < want-3*time.Second || took > want+time.Second {
				t.Errorf("given up after %v, want about %v", took, want)
			}
			r.wantStored(req, llmq.CodeNoCapacity)
		})
	})
}

func TestRun_RTWithoutAWaitAsksOnceThenFails(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		give := r.occupy()
		r.engine = r.newEngine("w1", 0)
		req, start := request(), time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
		if took := time.Since(start); took != 0 || r.provider.calls.Load() != 0 {
			t.Errorf("took %v with %d provider calls, want one try", took, r.provider.calls.Load())
		}
		r.wantStored(req, llmq.CodeNoCapacity)
		give()
		free := request()
		free.ID = "req-2"
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: free}), engine.Stored, "ok")
	})
}

// Who has waited long asks as often as a newcomer, give or take a factor of two.
func TestRun_LongWaitDoesNotAskLessOften(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		defer r.occupy()()
		req := request()
		req.Lane = llmq.LaneBG
		var last time.Time
		asked := 0
		r.trips.OnTrip(func(_ context.Context, cmds []redis.Cmder) error {
			declared, _, ok := luatest.IsScript(cmds[0])
			if !ok || len(cmds) != 1 || !strings.Contains(fmt.Sprint(declared), ":cap:") {
				return nil
			}
			if gap := time.Since(last); asked > 0 && gap > 200*time.Millisecond {
				t.Errorf("asked %v after the last time", gap)
			}
			last = time.Now()
			asked++
			return nil
		})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Release, "no_capacity")
		if asked < 75 {
			t.Errorf("asked %d times in 15s", asked)
		}
	})
}

func TestRun_SlotThatComesFreeIsTaken(t *testing.T) {
	t.Parallel()
	for _, lane := range []llmq.Lane{llmq.LaneRT, llmq.LaneBG} {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				give, start := r.occupy(), time.Now()
				go func() {
					time.Sleep(8 * time.Second)
					give()
				}()
				req := request()
				req.Lane = lane
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
				if took := time.Since(start); took < 8*time.Second || took > 9*time.Second {
					t.Errorf("started after %v, want within a second of the free slot", took)
				}
			})
		})
	}
}

func TestRun_DeadlineEndsTheWaitForASlot(t *testing.T) {
	t.Parallel()
	for _, lane := range llmq.Lanes() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				defer r.occupy()()
				req, start := request(), time.Now()
				req.Lane, req.Deadline = lane, time.Now().Add(4*time.Second)
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "expired")
				// The store's clock says when it has passed, and counts whole ms.
				if took := time.Since(start); took > 4*time.Second+2*time.Millisecond {
					t.Errorf("waited %v, past the deadline", took)
				}
				r.wantStored(req, llmq.CodeExpired)
			})
		})
	}
}

func TestRun_BGWaitsShortlyForASlotThenGoesBack(t *testing.T) {
	t.Parallel()
	for _, lane := range []llmq.Lane{llmq.LaneBG, llmq.LaneBulk} {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				defer r.occupy()()
				req, start := request(), time.Now()
				req.Lane, req.Deadline = lane, start.Add(time.Hour)
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				wantVerdict(t, v, engine.Release, "no_capacity")
				if took := time.Since(start); took < 13*time.Second || took > 15*time.Second {
					t.Errorf("waited %v, want nearly 15s", took)
				}
				if v.After < 5*time.Second || v.After > 15*time.Second || v.Defer == nil {
					t.Fatalf("verdict %+v", v)
				}
				// Still claimed until the message's visibility has been changed.
				if other := r.take(req, "other"); other.State != claims.Busy {
					t.Errorf("before the defer: %+v, want it busy", other)
				}
				v.Defer(t.Context())
				if other := r.take(req, "other"); other.State != claims.Deferred || other.Wait != v.After.Truncate(time.Millisecond) {
					t.Errorf("after the defer: %+v, want it deferred for %v", other, v.After)
				}
				time.Sleep(v.After)
				if other := r.take(req, "other"); other.State != claims.Taken || other.Claim.Progress.Attempts != 0 || other.Claim.Takeovers != 0 {
					t.Errorf("in the end: %+v; waiting is neither an attempt nor a takeover", other)
				}
			})
		})
	}
}

func TestRun_ReleaseForLackOfASlotEndsByTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		defer r.occupy()()
		req := request()
		req.Lane, req.Deadline = llmq.LaneBG, time.Now().Add(18*time.Second)
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		wantVerdict(t, v, engine.Release, "no_capacity")
		if back := time.Now().Add(v.After); back.After(req.Deadline) {
			t.Errorf("back %v after the deadline", back.Sub(req.Deadline))
		}
	})
}

func TestRun_ClaimLostWhileWaitingForASlotStoresNothing(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		defer r.occupy()()
		req := request()
		go func() {
			time.Sleep(5 * time.Second)
			r.rob(req)
		}()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Leave, "claim_lost")
		if r.stored(req) != nil {
			t.Error("a result is stored")
		}
	})
}
