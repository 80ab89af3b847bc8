package capacity

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

func (d door) forget(what func(*luascript.Batch, llmq.Target) luascript.Pending[bool], t llmq.Target) bool {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[bool] { return what(b, t) })
}

// E5: limits are learned anew, and nothing else of the target changes: a call that runs keeps its slot and ends as ever.
func TestGate_ForgetsLimits(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d, at := open(t, c), target(0)
		at.Limits.Breaker = llmq.Breaker{Threshold: 100, Window: time.Minute, Cooldown: time.Minute}
		fresh := d.peek(at).Learned
		if d.forget(d.ForgetLimits, at) {
			t.Error("an unused target had something to forget")
		}
		var held []Slot
		for i := range 8 {
			if a := d.admit(rtCall(at, fmt.Sprint(i))); a.Granted {
				held = append(held, a.Slot)
			}
		}
		if len(held) != 8 {
			t.Fatalf("%d slots", len(held))
		}
		d.settle(held[0], Outcome{Ending: Failed})
		for _, s := range held[1:7] {
			d.settle(s, Outcome{Ending: Throttled})
		}
		if d.peek(at).Learned.Slots.Limit == fresh.Slots.Limit {
			t.Fatal("nothing was learned of six throttles")
		}
		if !d.forget(d.ForgetLimits, at) {
			t.Error("there was nothing to forget")
		}
		st := d.peek(at)
		if st.Learned.Slots != fresh.Slots || st.InUse != 1 || st.Ended[Throttled] != 6 || st.Ended[Failed] != 1 {
			t.Errorf("after it: %+v, want what was learned to be %v and the rest to stay", st, fresh)
		}
		if got := d.settle(held[7], Outcome{Ending: OK}); !got.Returned {
			t.Errorf("the call that ran: %+v", got)
		}
		if a := d.admit(rtCall(at, "next")); !a.Granted {
			t.Errorf("the next call: %+v", a)
		}
	})
}

// E5: an open breaker is closed, and its failures are forgotten: it takes as many again to open it.
func TestGate_ForgetsBreaker(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d, at := open(t, c), target(5)
		at.Limits.Breaker = llmq.Breaker{Threshold: 2, Window: time.Minute, Cooldown: time.Minute}
		fail := func(id string) {
			t.Helper()
			a := d.admit(rtCall(at, id))
			if !a.Granted {
				t.Fatalf("%s: %+v", id, a)
			}
			d.settle(a.Slot, Outcome{Ending: Failed, Broken: true})
		}
		fail("a")
		fail("b")
		if st := d.peek(at); st.Breaker != BreakerOpen {
			t.Fatalf("the breaker is %s", st.Breaker)
		}
		limits := d.peek(at).Learned
		if !d.forget(d.ForgetBreaker, at) {
			t.Error("there was nothing to forget")
		}
		if st := d.peek(at); st.Breaker != BreakerClosed || st.OpenFor != 0 || st.Learned.Slots != limits.Slots || st.Ended[Failed] != 2 {
			t.Errorf("after it: %+v", st)
		}
		fail("c")
		if st := d.peek(at); st.Breaker != BreakerClosed {
			t.Errorf("after one failure it is %s", st.Breaker)
		}
		fail("d")
		if st := d.peek(at); st.Breaker != BreakerOpen {
			t.Errorf("after the second it is %s", st.Breaker)
		}
	})
}
