package capacity

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// However far the server's clock steps back, a smooth budget fills from then on: at its rate, or at once where it stepped too
// far to wait for.
func TestGate_BudgetFillsAfterTheClockSteppedBack(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		for i, back := range []int64{60_000, 121_000, 600_000, 3_600_000} {
			for _, lane := range []llmq.Lane{llmq.LaneRT, llmq.LaneBG} {
				d, now := open(t, c), int64(luatest.Epoch)
				d.now = now
				at := target(1000)
				at.Model = fmt.Sprintf("stepped-%d-%s", i, lane)
				at.Limits.Rates = llmq.Rates{RPM: 60, TPM: 60_000, RTShare: 0.2}
				ask := func(id string) Admission {
					return d.admit(Ask{Target: at, Lane: lane, CallID: id, Tokens: 1000})
				}
				n := 0
				for ask(fmt.Sprint("before-", n)).Granted {
					n++
				}
				now -= back
				waited := 0
				for d.now = now; !ask("after").Granted; d.now = now {
					now, waited = now+1000, waited+1
					if waited > 125 {
						t.Fatalf("%s: nothing was admitted for %d s after a step of %d s", lane, waited, back/1000)
					}
				}
			}
		}
	})
}

// DS35: what the provider refused as wrong costs nothing, in what is learned of its rate of tokens neither.
func TestGate_FailedCallTeachesNoTokens(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d, at := open(t, c), target(10)
		flow := func() string {
			k, _ := d.names(at)
			text, err := c.HGet(t.Context(), k.State, "flow").Result()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		taken := func() (n int) {
			var f [11]int
			if _, err := fmt.Sscan(flow(), &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &n); err != nil {
				t.Fatalf("flow %q: %v", flow(), err)
			}
			return n
		}
		d.settle(d.admit(Ask{Target: at, Lane: llmq.LaneRT, CallID: "small", Tokens: 100}).Slot, Outcome{Ending: Failed})
		before := taken()
		huge := d.admit(Ask{Target: at, Lane: llmq.LaneRT, CallID: "huge", Tokens: Reserve(10, 1e10, false)})
		if !huge.Granted {
			t.Fatalf("admit = %+v", huge)
		}
		d.settle(huge.Slot, Outcome{Ending: Failed, Tokens: 0})
		if after := taken(); after != before {
			t.Errorf("%d tokens were taken before the call, %d after it", before, after)
		}
	})
}
