package capacity

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
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

// C4: a cap that is cut from 20 to 5 while 20 are held admits nothing until fewer than 5 are, in any lane.
func TestGate_CapThatIsCutAdmitsNothingUntilBelowIt(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d, at := open(t, c), target(20)
		var held []Slot
		for i := range 20 {
			held = append(held, d.admit(rtCall(at, fmt.Sprint("a", i))).Slot)
		}
		at.MaxConcurrency = 5
		for i, s := range held {
			got := d.admit(rtCall(at, fmt.Sprint("b", i)))
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
