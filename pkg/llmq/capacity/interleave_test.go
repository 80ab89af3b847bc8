package capacity

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// interleavings lists every order of n steps of each of two processes: false is the first one's.
func interleavings(first, second int) [][]bool {
	if first == 0 && second == 0 {
		return [][]bool{nil}
	}
	var out [][]bool
	if first > 0 {
		for _, rest := range interleavings(first-1, second) {
			out = append(out, append([]bool{false}, rest...))
		}
	}
	if second > 0 {
		for _, rest := range interleavings(first, second-1) {
			out = append(out, append([]bool{true}, rest...))
		}
	}
	return out
}

// H13: two processes with a gate each draw on one budget of 1000 tokens, 400 reserved and 50 used by each of
// their two calls. In every order of their steps no more than the budget is ever reserved, a call is refused
// exactly where its reservation does not fit, and spent plus left is what there was.
func TestGate_BudgetIsExactInEveryInterleaving(t *testing.T) {
	t.Parallel()
	const most, reserved, used, steps = 1000, 400, 50, 4 // admit, settle, admit, settle
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		for _, order := range interleavings(steps, steps) {
			at := target(4)
			at.Limits.Rates = llmq.Rates{TPM: most, Fixed: true}
			first := open(t, c)
			other := *first.Gate
			gates := []door{first, {TB: t, Gate: &other, c: c}}
			now := int64(2_000_000_000_000) // far from a minute's end: all happens in one
			for _, g := range gates {
				g.now = now
			}
			spent := 0
			var step [2]int
			var slots [2]Admission
			for _, second := range order {
				who := 0
				if second {
					who = 1
				}
				g, n := gates[who], step[who]
				step[who]++
				if n%2 == 0 {
					a := rtCall(at, fmt.Sprintf("c%d-%d", who, n))
					a.Tokens = reserved
					got := g.admit(a)
					if fits := spent+reserved <= most; got.Granted != fits {
						t.Fatalf("%v: step %d of %d got %+v with %d spent", order, n, who, got, spent)
					}
					slots[who] = got
					if got.Granted {
						spent += reserved
					}
				} else if slots[who].Granted {
					for i := range 2 { // the second settle is a repeat
						if got := g.settle(slots[who].Slot, Outcome{Ending: OK, Tokens: used}); got.Returned != (i == 0) {
							t.Fatalf("%v: settle %d: %+v", order, i, got)
						}
					}
					spent -= reserved - used
				}
				if st := gates[1-who].peek(at); st.TokensUsed != spent || st.TokensUsed+st.TokensLeft != most || spent > most {
					t.Fatalf("%v: %d used and %d left, want %d of %d", order, st.TokensUsed, st.TokensLeft, spent, most)
				}
			}
			if !slices.Equal(step[:], []int{steps, steps}) {
				t.Fatalf("%v: steps %v", order, step)
			}
		}
	})
}

// C4: a cap that is cut from 20 to 5 while 20 are held, of all lanes, admits nothing until fewer than 5 are, whatever
// lane asks. Background that may use every slot is told the same as rt.
func TestGate_CapThatIsCutAdmitsNothingUntilBelowIt(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		for _, lane := range llmq.Lanes() {
			t.Run(string(lane), func(t *testing.T) {
				d, at := open(t, c), target(20)
				d.now = int64(luatest.Epoch)
				at.Name, at.Limits.BackgroundShare = string(lane), 1
				var held []Slot
				for i := range 20 {
					a := Ask{Target: at, Lane: llmq.Lanes()[i%3], CallID: fmt.Sprint(lane, "-a", i)}
					got := d.admit(a)
					if !got.Granted {
						t.Fatalf("%d of 20: %+v", i+1, got)
					}
					held = append(held, got.Slot)
				}
				at.MaxConcurrency = 5
				for i, s := range held {
					d.now = int64(luatest.Epoch) + int64(i)
					got := d.admit(Ask{Target: at, Lane: lane, CallID: fmt.Sprint(lane, "-b", i)})
					if left := 20 - i; got.Granted != (left < 5) || got.Granted && got.InUse != left+1 {
						t.Fatalf("with %d held: %+v", left, got)
					}
					if got.Granted {
						return
					}
					d.settle(s, Outcome{Ending: OK})
				}
				t.Error("nothing was admitted though nothing is held")
			})
		}
	})
}

// C6: a lane's cap is a fixed bucket, whatever is learned: throttles of its calls cut the target's limit and never the
// lane's cap, and calls that end well raise neither. A full lane leaves the other lanes alone. A cap of 0 is none.
func TestGate_LaneCapNeverLearns(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		for _, caps := range []map[llmq.Lane]int{{llmq.LaneBulk: 3, llmq.LaneBG: 5}, {llmq.LaneBulk: 3, llmq.LaneBG: 0}} {
			d, at := open(t, c), target(20)
			at.Name, at.Limits = fmt.Sprint("of-", caps[llmq.LaneBG]), llmq.Limits{BackgroundShare: 1, Lanes: caps}
			now := int64(luatest.Epoch)
			for round := range 4 {
				now += 5000
				d.now = now
				var held []Slot
				granted := map[llmq.Lane]int{}
				for i := range 12 {
					for _, lane := range []llmq.Lane{llmq.LaneBulk, llmq.LaneBG} {
						got := d.admit(Ask{Target: at, Lane: lane, CallID: fmt.Sprint(at.Name, round, lane, i)})
						if got.Granted {
							granted[lane]++
							held = append(held, got.Slot)
						} else if most := caps[lane]; most == 0 || granted[lane] < most || got.Missing != MissingLane {
							t.Fatalf("round %d: %d of %s are held, and %+v", round, granted[lane], lane, got)
						}
					}
				}
				if got := d.admit(rtCall(at, fmt.Sprint(at.Name, round, "rt"))); !got.Granted {
					t.Fatalf("round %d: an rt call beside full lanes got %+v", round, got)
				} else {
					held = append(held, got.Slot)
				}
				if granted[llmq.LaneBulk] != 3 || caps[llmq.LaneBG] > 0 && granted[llmq.LaneBG] != caps[llmq.LaneBG] {
					t.Fatalf("round %d: granted %v of %v", round, granted, caps)
				}
				for i, s := range held {
					o := Outcome{Ending: OK, Tokens: Unknown}
					if round == 1 && i == 0 {
						o.Ending = Throttled
					}
					d.settle(s, o)
				}
			}
		}
	})
}
