// Package governor decides how many invocations each event source of a background lane may
// have at once: about as many as the calls in flight that its model's limit leaves to the lane,
// so that the backlog stays in SQS and is not received in vain (FEATURES C11, B3).
//
// It is an outer loop, once a minute, and holds nothing up: what is admitted is decided by the
// capacity script alone, and a source that is too wide for a minute costs receives, never a
// breach. This package only decides; package admin reads the facts and asks for the changes.
package governor

import (
	"math"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Least is what an SQS event source takes at least.
const Least = 2

// Target is one target of a model's chain.
type Target struct {
	Limit  float64 // calls in flight that may be: the learned limit with every cap on it
	Share  float64 // part of it that background lanes may use, above 0 to 1
	Lane   int     // cap of the lane at this target; 0 is none
	Closed bool    // its breaker is open, or it refused nearly everything
}

// headroom is how many calls of the lane it lets run at once.
func (t Target) headroom() float64 {
	n := t.Share * t.Limit
	if t.Lane > 0 {
		n = min(n, float64(t.Lane))
	}
	return n
}

// Facts are what a decision is made from.
type Facts struct {
	Chain   []Target // the model's targets and those that stand in for them, in the order in which they are tried
	Batch   int      // messages that an invocation gets at most, at least 1
	Ceiling int      // what the deployment gave the source; a decision never goes beyond it
	Now     int      // what the source has; 0 is no bound
	Steady  bool     // no change of the source is under way
	Paused  bool     // it is disabled, or on its way there
	Blind   bool     // the limits are not known: the state store is down, or was emptied and fills again
}

// Reason says in a word why a decision is as it is; from a short list, for logs and status.
type Reason string

// The reasons.
const (
	Raised   Reason = "raised"       // there is room for more
	Lowered  Reason = "lowered"      // there is room for less
	Over     Reason = "over_ceiling" // the source is wider than it was deployed
	Close    Reason = "close_enough" // the move is too small to be worth a request
	Changing Reason = "changing"     // another change is under way; the next minute looks again
	Held     Reason = "paused"       // it hands out nothing, so its width does not matter
	Unknown  Reason = "limits_unknown"
)

// Decision is what a source should have.
type Decision struct {
	Want   int // what the rule gives; 0 where the limits are unknown
	Move   bool
	Reason Reason
}

// Decide applies the rule: clamp(ceil(share × limit ÷ batch), 2, ceiling), moved by at least
// 20 % or by at least 2.
//
// The limit is that of the first target of the chain that is open, since a background call waits there for
// its slot and does not go on to the next target. With none open it is [Least]: somebody has
// to ask whether one has opened.
func Decide(f Facts) Decision {
	if f.Blind {
		return Decision{Reason: Unknown}
	}
	d := Decision{Want: f.want()}
	step := d.Want - f.Now
	switch {
	case f.Paused:
		d.Reason = Held
	case !f.Steady:
		d.Reason = Changing
	case f.Now == 0 || f.Now > f.ceiling():
		d.Move, d.Reason = true, Over
	case step == 0 || !worthwhile(step, f.Now):
		d.Reason = Close
	case step > 0:
		d.Move, d.Reason = true, Raised
	default:
		d.Move, d.Reason = true, Lowered
	}
	return d
}

func (f Facts) ceiling() int { return max(f.Ceiling, Least) }

func (f Facts) want() int {
	for _, t := range f.Chain {
		if t.Closed {
			continue
		}
		// Limits are thousandths and shares have three decimals: what is less than that above a whole number is the
		// noise of a float, and no reason for one more invocation.
		n := math.Ceil(t.headroom()/float64(max(f.Batch, 1)) - 1e-6)
		return int(min(max(n, Least), float64(f.ceiling())))
	}
	return Least
}

// worthwhile reports whether a move is at least a fifth of now, or at least two.
func worthwhile(step, now int) bool {
	if step < 0 {
		step = -step
	}
	return step >= 2 || 5*step >= now
}

// Lanes lists the lanes that are governed: rt is not, for it waits for no backlog.
func Lanes() []llmq.Lane { return []llmq.Lane{llmq.LaneBG, llmq.LaneBulk} }
