package capacity

import (
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Missing is what kept a call from being admitted.
type Missing int

// What may be missing. The numbers are the script's.
const (
	MissingNothing      Missing = iota
	MissingSlots                // a slot of the target: the learned limit, its cap, or the background's share
	MissingRate                 // the learned rate of calls
	MissingTokenRate            // the learned rate of tokens
	MissingOpen                 // the provider refuses everything: nothing starts for a moment
	MissingTurn                 // an rt call has asked just now and goes first
	MissingLane                 // a slot of the lane's cap
	MissingShared               // a slot of the provider's cap
	MissingRPM                  // calls of the target's budget
	MissingTPM                  // tokens of the target's budget
	MissingSharedRPM            // calls of the provider's budget
	MissingSharedTPM            // tokens of the provider's budget
	MissingHealth               // the breaker is open, or its probe is out
	MissingRegistration         // the store was wiped: live workers register first
)

// String is the name in logs and metrics.
func (m Missing) String() string {
	names := [...]string{
		"nothing", "slots", "learned_rate", "learned_token_rate", "closed_by_throttles", "turn", "lane_cap", "shared_cap",
		"rpm", "tpm", "shared_rpm", "shared_tpm", "breaker", "quarantine",
	}
	if m < 0 || int(m) >= len(names) {
		return fmt.Sprintf("missing(%d)", int(m))
	}
	return names[m]
}

// IsRate reports whether a configured budget is used up: the caller is told rate_limited with
// the time to its next token, where all else is no_capacity (FEATURES C8).
func (m Missing) IsRate() bool { return m >= MissingRPM && m <= MissingSharedTPM }

// Admission is the gate's answer.
type Admission struct {
	Granted bool
	Slot    Slot          // valid when Granted
	Missing Missing       // the one that takes longest, where several are
	Retry   time.Duration // when to ask again, at least 50 ms; 0 when Granted
	Tokens  int           // reserved; 0 when not Granted
	InUse   int           // slots held of the target, this one included
	Limit   int           // slots of the target as learned so far
	Place   int           // of a refused rt call among those that wait, from 1; 0 when it does not wait

	// Wait is what a refused rt call is told when it gives up: how long it would have to wait if it came anew, behind all that
	// wait (their number ÷ the learned rate, a minute at most) and not before its tokens are there. Never less than Retry,
	// which has it look in more often; 0 when Granted.
	Wait time.Duration
}

// Admit asks for all that a call needs. What [Gate.Check] refuses is not sent; the answer is
// its error.
//
// It takes everything or nothing, and a repeat after a lost answer takes nothing again.
func (g *Gate) Admit(b *luascript.Batch, a Ask) luascript.Pending[Admission] {
	if err := g.Check(a); err != nil {
		return func() (Admission, error) { return Admission{}, err }
	}
	t := a.Target
	k, p := g.names(t)
	var until int64
	if a.Lane == llmq.LaneRT && !a.Direct && !a.Until.IsZero() {
		until = a.Until.UnixMilli()
	}
	budgets := budgetTexts(t)
	call := b.Script(&g.admit, []string{g.keys.Epoch(), k.State, k.RT, k.BG, k.Bulk, k.Waiting, p.Slots, p.State, g.keys.Callers().Heard},
		g.now, a.CallID, string(a.Lane), g.lease.Milliseconds(), a.Tokens, until, flag(a.Direct), g.lawText(t),
		fmt.Sprintf("%d %d %d", t.MaxConcurrency, t.Limits.Lanes[a.Lane], t.Shared.MaxConcurrency),
		budgets[0], budgets[1], budgets[2], budgets[3])
	return func() (Admission, error) {
		v, err := call.Ints(8)
		if err != nil {
			return Admission{}, err
		}
		got := Admission{Missing: Missing(v[0]), Retry: time.Duration(v[1]) * time.Millisecond, InUse: int(v[2]), Limit: int(v[3]), Place: int(v[6]), Wait: time.Duration(v[7]) * time.Millisecond}
		if got.Missing == MissingNothing {
			got.Granted, got.Tokens, got.Slot = true, a.Tokens, Slot{ask: a, stamp: v[4], at: v[5]}
		}
		return got, nil
	}
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
