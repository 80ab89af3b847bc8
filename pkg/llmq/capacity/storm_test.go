package capacity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// peak counts what is in flight, and the most that was.
type peak struct{ now, most atomic.Int64 }

func (p *peak) enter() {
	n := p.now.Add(1)
	for {
		most := p.most.Load()
		if n <= most || p.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (p *peak) leave() { p.now.Add(-1) }

var errLost = errors.New("the answer was lost")

// trip is one verb as a round trip that may lose its answer; who asks then asks again.
func trip[T any](ctx context.Context, c redis.UniversalClient, add func(b *luascript.Batch) luascript.Pending[T]) (T, error) {
	for {
		var b luascript.Batch
		pending := add(&b)
		err := b.Run(ctx, c)
		if err == nil {
			return pending()
		}
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			var none T
			return none, err
		}
	}
}

// C4, C5, C6: eight callers a lane on two targets of one provider, each of whose answers is lost
// one time in ten. The caps of target, lane and provider hold exactly as the calls themselves
// count, everybody is served, and nothing is left behind: all slots are to be had again.
func TestGate_StormHoldsEveryCap(t *testing.T) {
	t.Parallel()
	const callers, calls, cap0, cap1, sharedCap, bulkCap = 8, 25, 6, 5, 8, 2
	c := servers.Dial(t, true)
	d := open(t, c)
	c.AddHook(&luatest.Trips{After: func(context.Context, []redis.Cmder) error {
		if rand.N(10) == 0 {
			return errLost
		}
		return nil
	}})
	var shared peak
	var own, bulk [2]peak
	var targets [2]llmq.Target
	for i, most := range []int{cap0, cap1} {
		targets[i] = llmq.Target{
			Model: "m", Name: fmt.Sprint("t", i), Provider: "p", MaxConcurrency: most, Shared: llmq.SharedLimits{MaxConcurrency: sharedCap},
			Limits: llmq.Limits{BackgroundShare: 1, Lanes: map[llmq.Lane]int{llmq.LaneBulk: bulkCap}},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var done atomic.Int64
	for i, at := range targets {
		for _, lane := range llmq.Lanes() {
			for caller := range callers {
				wg.Go(func() {
					for call := range calls {
						a := Ask{Target: at, Lane: lane, CallID: fmt.Sprintf("%s-%d-%d-%d", lane, i, caller, call)}
						slot, ok := untilAdmitted(ctx, t, d, c, a)
						if !ok {
							return
						}
						own[i].enter()
						shared.enter()
						if lane == llmq.LaneBulk {
							bulk[i].enter()
						}
						pause(ctx, time.Duration(1+rand.N(4))*time.Millisecond)
						if lane == llmq.LaneBulk {
							bulk[i].leave()
						}
						own[i].leave()
						shared.leave()
						end := func(b *luascript.Batch) luascript.Pending[Settled] {
							return d.Settle(b, slot, Outcome{Ending: OK, Tokens: Unknown})
						}
						if call%5 == 0 {
							end = func(b *luascript.Batch) luascript.Pending[Settled] { return d.Abandon(b, a) }
						}
						if _, err := trip(ctx, c, end); err != nil {
							t.Errorf("end of %s: %v", a.CallID, err)
							return
						}
						done.Add(1)
					}
				})
			}
		}
	}
	wg.Wait()
	if n := done.Load(); n != 2*3*callers*calls {
		t.Errorf("%d calls were done, want %d", n, 2*3*callers*calls)
	}
	if shared.most.Load() > sharedCap {
		t.Errorf("the provider's peak was %d, want at most %d", shared.most.Load(), sharedCap)
	}
	for i, most := range []int64{cap0, cap1} {
		if own[i].most.Load() > most || bulk[i].most.Load() > bulkCap {
			t.Errorf("target %d: peak %d of %d, bulk %d of %d", i, own[i].most.Load(), most, bulk[i].most.Load(), bulkCap)
		}
		st, err := trip(ctx, c, func(b *luascript.Batch) luascript.Pending[State] { return d.Peek(b, targets[i]) })
		if err != nil || st.InUse != 0 || st.SharedInUse != 0 || st.Lapsed != 0 || st.Waiting != 0 {
			t.Errorf("left behind at target %d: %+v, %v", i, st, err)
		}
		if n := st.Ended[OK] + st.Ended[Abandoned]; n != 3*callers*calls {
			t.Errorf("target %d counts %d endings, want %d", i, n, 3*callers*calls)
		}
	}
	// Whether callers met at the cap is the machine's mood; that all of it is there again is not.
	granted := 0
	for i := range cap0 + cap1 {
		a := rtCall(targets[i%2], fmt.Sprint("after-", i))
		got, err := trip(ctx, c, func(b *luascript.Batch) luascript.Pending[Admission] { return d.Admit(b, a) })
		if err != nil {
			t.Fatalf("after the storm: %v", err)
		}
		if got.Granted {
			granted++
		}
	}
	if granted != sharedCap {
		t.Errorf("%d slots are to be had after the storm, want exactly %d", granted, sharedCap)
	}
}

// untilAdmitted asks until it has a slot.
func untilAdmitted(ctx context.Context, t *testing.T, d door, c redis.UniversalClient, a Ask) (Slot, bool) {
	for {
		got, err := trip(ctx, c, func(b *luascript.Batch) luascript.Pending[Admission] { return d.Admit(b, a) })
		if err != nil {
			t.Errorf("admit %s: %v", a.CallID, err)
			return Slot{}, false
		}
		if got.Granted {
			return got.Slot, true
		}
		pause(ctx, time.Duration(1+rand.N(8))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// No lane starves another: with all of them asking for more than there is, each gets some, rt
// most at once, and an rt call that waits does as it is told.
func TestGate_StarvesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, last = 4, 20 * time.Second
		c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
		d, at := open(t, c), target(most)
		ctx, cancel := context.WithTimeout(t.Context(), last)
		defer cancel()
		var inFlight peak
		served := map[llmq.Lane]*atomic.Int64{}
		var longest atomic.Int64 // wait of an rt call
		var wg sync.WaitGroup
		for _, lane := range llmq.Lanes() {
			served[lane] = &atomic.Int64{}
			for caller := range 4 {
				wg.Go(func() {
					for call := 0; ctx.Err() == nil; call++ {
						a, asked := Ask{Target: at, Lane: lane, CallID: fmt.Sprintf("%s-%d-%d", lane, caller, call)}, time.Now()
						if lane == llmq.LaneRT {
							a.Until = asked.Add(time.Minute)
						}
						got := d.admit(a)
						for !got.Granted && ctx.Err() == nil {
							time.Sleep(got.Retry)
							got = d.admit(a)
						}
						if !got.Granted {
							return
						}
						if lane == llmq.LaneRT {
							longest.Store(max(longest.Load(), int64(time.Since(asked))))
						}
						inFlight.enter()
						time.Sleep(300 * time.Millisecond)
						inFlight.leave()
						d.settle(got.Slot, Outcome{Ending: OK, Tokens: Unknown})
						served[lane].Add(1)
					}
				})
			}
		}
		wg.Wait()
		if n := inFlight.most.Load(); n != most {
			t.Errorf("the peak was %d, want exactly %d", n, most)
		}
		for lane, n := range served {
			if n.Load() < 3 {
				t.Errorf("%s was served %d times in %v", lane, n.Load(), last)
			}
		}
		if rt := served[llmq.LaneRT].Load(); rt < served[llmq.LaneBulk].Load() {
			t.Errorf("rt was served %d times, bulk %d", rt, served[llmq.LaneBulk].Load())
		}
		if wait := time.Duration(longest.Load()); wait > 5*time.Second {
			t.Errorf("an rt call waited for %v", wait)
		}
	})
}
