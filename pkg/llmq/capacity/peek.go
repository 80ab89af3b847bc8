package capacity

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// None stands for a budget that is not set.
const None = -1

// BreakerState is what the breaker of a target lets through.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // everything
	BreakerOpen     BreakerState = "open"      // nothing
	BreakerHalfOpen BreakerState = "half_open" // one call at a time, to see
)

// State is what the gate knows of a target.
type State struct {
	InUse   int               // slots held, without those that lapsed
	Lanes   map[llmq.Lane]int // the same by lane
	Waiting int               // rt calls that wait for a slot
	Learned Learned           // the limits in force, and which of them binds

	CallsLeft, TokensLeft             int // what an rt call could draw of the budgets now; None
	CallsUsed, TokensUsed             int // of them in this minute of the calendar; None
	SharedInUse                       int // slots held over all targets of the provider, where it has a cap
	SharedCallsLeft, SharedTokensLeft int // of the provider's budgets; None

	Breaker    BreakerState
	OpenFor    time.Duration
	Quarantine time.Duration  // nothing is admitted for so long: the store was wiped, or is not in use yet
	Ended      map[Ending]int // calls by their ending, since the store was new
	Lapsed     int            // slots that nobody returned

	Ran map[llmq.Lane]Ran // what ended, ok or failed, since the store was new
}

// Ran is how many calls of a lane ended at a target, and for how long they held slots, summed.
type Ran struct {
	Calls int
	Busy  time.Duration
}

// Peek reads a target's state and changes nothing.
func (g *Gate) Peek(b *luascript.Batch, t llmq.Target) luascript.Pending[State] {
	k, p := g.names(t)
	budgets := budgetTexts(t)
	call := b.Script(&g.peek, []string{g.keys.Epoch(), k.State, k.RT, k.BG, k.Bulk, k.Waiting, p.Slots, p.State},
		g.now, g.lawText(t), budgets[0], budgets[1], budgets[2], budgets[3])
	return func() (State, error) {
		const own = 25 // integers before the law's
		v, err := call.Ints(own + learnedFacts)
		if err != nil {
			return State{}, err
		}
		learned, err := ReadLearned(v[own:])
		if err != nil {
			return State{}, err
		}
		ms := func(i int) time.Duration { return time.Duration(v[i]) * time.Millisecond }
		st := State{
			Quarantine: ms(0), InUse: int(v[1] + v[2] + v[3]), Waiting: int(v[4]), Learned: learned,
			Lanes:     map[llmq.Lane]int{llmq.LaneRT: int(v[1]), llmq.LaneBG: int(v[2]), llmq.LaneBulk: int(v[3])},
			CallsLeft: int(v[5]), TokensLeft: int(v[6]), CallsUsed: int(v[7]), TokensUsed: int(v[8]),
			SharedInUse: int(v[9]), SharedCallsLeft: int(v[10]), SharedTokensLeft: int(v[11]),
			Breaker: [...]BreakerState{BreakerClosed, BreakerOpen, BreakerHalfOpen}[v[12]], OpenFor: ms(13), Lapsed: int(v[18]),
			Ended: map[Ending]int{},
			Ran: map[llmq.Lane]Ran{
				llmq.LaneRT: {int(v[19]), ms(20)}, llmq.LaneBG: {int(v[21]), ms(22)}, llmq.LaneBulk: {int(v[23]), ms(24)},
			},
		}
		for i, e := range []Ending{OK, Throttled, Failed, Abandoned} {
			if n := int(v[14+i]); n > 0 {
				st.Ended[e] = n
			}
		}
		return st, nil
	}
}
