package capacity

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Ending is how a call that held a slot ended. Only OK and Throttled say anything
// about the target's capacity.
type Ending string

// The endings.
const (
	OK        Ending = "ok"        // the provider answered
	Throttled Ending = "throttled" // the provider refused it for load
	Failed    Ending = "failed"    // anything else went wrong
	Abandoned Ending = "abandoned" // we cut the attempt off ourselves
)

// undone is the script's word for [Gate.Abandon].
const undone = "undone"

// Unknown is an Outcome's Tokens where nobody knows what the call cost: it stays charged as it
// was reserved.
const Unknown = -1

// Outcome is how a call ended and what it cost.
type Outcome struct {
	Ending Ending

	// Tokens is what the provider charged: [Cost] of its usage, 0 for a failure that it
	// reported, [Unknown] for an attempt that was cut off. A throttled call costs none.
	Tokens int

	RetryAfter time.Duration // what a throttled call was told to wait; 0 is nothing
	Broken     bool          // a failure of the target's own, a 5xx or a time-out: the breaker counts it
}

// Settled is what a settle found.
type Settled struct {
	Returned bool          // the slot was held until now; false for a repeat and for one that lapsed
	Open     time.Duration // the target's breaker is open for so long: another try there is in vain; 0 is not
}

// Settle returns a slot, charges what the call cost, and teaches the gate. It is idempotent.
// The caller stops renewing first.
func (g *Gate) Settle(b *luascript.Batch, s Slot, o Outcome) luascript.Pending[Settled] {
	used := min(o.Tokens, mostTokens)
	switch {
	case o.Ending == Throttled:
		used = 0
	case used < 0:
		used = s.ask.Tokens
	}
	return g.end(b, s, string(o.Ending), used, o.RetryAfter, o.Ending == Failed && o.Broken)
}

// Abandon undoes an admission whose call was never attempted, and ends its waiting where it
// was refused. It needs no answer of Admit: what was granted and then lost is given back
// all the same. It is idempotent.
func (g *Gate) Abandon(b *luascript.Batch, a Ask) luascript.Pending[Settled] {
	return g.end(b, Slot{ask: a}, undone, 0, 0, false)
}

// Ask is what the slot was asked for with.
func (s Slot) Ask() Ask { return s.ask }

func (g *Gate) end(b *luascript.Batch, s Slot, ending string, used int, retryAfter time.Duration, broken bool) luascript.Pending[Settled] {
	t := s.ask.Target
	k, p := g.names(t)
	budgets := budgetTexts(t)
	call := b.Script(&g.settle, []string{k.State, k.RT, k.BG, k.Bulk, k.Waiting, p.Slots, p.State},
		g.now, s.ask.CallID, string(s.ask.Lane), ending, s.stamp, s.at, s.ask.Tokens, used, max(0, retryAfter.Milliseconds()), flag(broken),
		g.lawText(t), budgets[0], budgets[1], budgets[2], budgets[3], breakerConfig(t.Limits.Breaker),
		g.lease.Milliseconds(), flag(t.Shared.MaxConcurrency > 0))
	return func() (Settled, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Settled{}, err
		}
		return Settled{Returned: v[0] == 1, Open: time.Duration(v[1]) * time.Millisecond}, nil
	}
}
