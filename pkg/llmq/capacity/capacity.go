// Package capacity answers one question: may this call start now? It is asked of one
// place for all workers, by a script that decides everything at once. In this
// release it holds a fixed cap per target.
package capacity

import (
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// Lease is how long a slot holds without renewal: a killed worker's slots are back
	// within it.
	Lease = 60 * time.Second
	// RetryFull is when to ask again for a slot of a full target.
	RetryFull = 100 * time.Millisecond
)

// Ending is how a call that held a slot ended. Only OK and Throttled say anything
// about the target's capacity.
type Ending string

// The endings.
const (
	OK        Ending = "ok"        // the provider answered
	Throttled Ending = "throttled" // the provider refused it for load
	Failed    Ending = "failed"    // anything else went wrong
	Abandoned Ending = "abandoned" // no attempt was made, or we cut it off ourselves
)

var (
	//go:embed lua/admit.lua
	admitText string
	//go:embed lua/renew.lua
	renewText string
	//go:embed lua/settle.lua
	settleText string
)

// Gate decides admissions. It holds no connection and no mutable state, so it is safe
// for concurrent use.
type Gate struct {
	keys                 keys.Space
	admit, renew, settle luascript.Script
}

// New is the gate of one environment.
func New(space keys.Space) *Gate {
	return &Gate{
		keys:   space,
		admit:  luascript.New("admit", admitText),
		renew:  luascript.New("renew", renewText),
		settle: luascript.New("settle", settleText),
	}
}

// Slot is the right to have one call in flight at a target. It lapses after [Lease]
// unless renewed; every path out of a call settles it or lets it lapse.
type Slot struct {
	target keys.Target
	callID string
}

// Admission is the gate's answer.
type Admission struct {
	Granted bool
	Slot    Slot          // valid when Granted
	InUse   int           // slots held now, this one included
	Retry   time.Duration // when to ask again; 0 when Granted
}

// Admit asks for a slot of t. callID is unique to this admission; a repeat with it,
// after a lost answer, gives the same slot.
func (g *Gate) Admit(b *luascript.Batch, t llmq.Target, callID string) luascript.Pending[Admission] {
	k := g.keys.Target(t)
	call := b.Script(&g.admit, []string{k.Slots}, "", callID, Lease.Milliseconds(), t.MaxConcurrency)
	return func() (Admission, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Admission{}, err
		}
		if v[0] != 1 {
			return Admission{InUse: int(v[1]), Retry: RetryFull}, nil
		}
		return Admission{Granted: true, Slot: Slot{target: k, callID: callID}, InUse: int(v[1])}, nil
	}
}

// Renew keeps a slot for another [Lease]. The caller stops renewing before it settles.
func (g *Gate) Renew(b *luascript.Batch, s Slot) luascript.Pending[struct{}] {
	call := b.Script(&g.renew, []string{s.target.Slots}, "", Lease.Milliseconds(), s.callID)
	return func() (struct{}, error) {
		_, err := call.Ints(1)
		return struct{}{}, err
	}
}

// Settle returns a slot. It is idempotent.
func (g *Gate) Settle(b *luascript.Batch, s Slot, e Ending) luascript.Pending[struct{}] {
	call := b.Script(&g.settle, []string{s.target.Slots, s.target.Tally}, s.callID, string(e))
	return func() (struct{}, error) {
		_, err := call.Ints(1)
		return struct{}{}, err
	}
}

// State is what the gate knows of a target.
type State struct {
	InUse int            // slots held; one that lapsed counts until the next admission
	Ended map[Ending]int // calls by their ending, since the store was new
}

// Peek reads a target's state and changes nothing.
func (g *Gate) Peek(b *luascript.Batch, t llmq.Target) luascript.Pending[State] {
	k := g.keys.Target(t)
	inUse, tally := b.Command("ZCARD", k.Slots), b.Command("HGETALL", k.Tally)
	return func() (State, error) {
		n, err := inUse.Int()
		if err != nil {
			return State{}, err
		}
		m, err := tally.Map()
		if err != nil {
			return State{}, err
		}
		st := State{InUse: int(n), Ended: map[Ending]int{}}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if n, err := strconv.Atoi(m[k]); err == nil {
				st.Ended[Ending(k)] = n
			}
		}
		return st, nil
	}
}
