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

// However much output a caller asks for, one call holds up no target whose rate of tokens is learned for
// longer than the largest that there is.
func TestReserve_GiantsAreBounded(t *testing.T) {
	t.Parallel()
	for asked, want := range map[int]int{0: 1000 + 3, 390: 390 + 3, mostOutput: mostOutput + 3, mostOutput + 1: mostOutput + 3, 1e18: mostOutput + 3} {
		if got := Reserve(10, asked, false); got != want {
			t.Errorf("%d asked for: %d reserved, want %d", asked, got, want)
		}
	}
}
