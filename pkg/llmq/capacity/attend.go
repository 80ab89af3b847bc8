package capacity

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// AttendEvery is how often a process says that it lives, which may run calls without the store.
	AttendEvery = 10 * time.Second
	// Away is for how long it may be silent: then the others count it no more. Where all of them were, the store
	// was lost to them, and nothing that has a cap or a budget is admitted for a [Quarantine] (FEATURES C9).
	Away = 30 * time.Second
)

// Attending is what a process says of itself as it attends.
type Attending string

// What it may say.
const (
	Joins  Attending = "joins"  // it is new: the others may not know it yet
	May    Attending = "may"    // it has been there for longer than [Away], so that all others know it
	Leaves Attending = "leaves" // it runs nothing any more
)

// Attendance is who there is.
type Attendance struct {
	Callers int  // processes that may run calls without the store, or are to in a while; this one too, unless it leaves
	Anew    bool // this one was not among them: it is new, was silent for too long, or the store was wiped
}

// Attend says that a process lives, one of those that may run calls should the store be lost, and what it is up to; the answer
// is who there is to share with.
func (g *Gate) Attend(b *luascript.Batch, process string, says Attending) luascript.Pending[Attendance] {
	k := g.keys.Callers()
	call := b.Script(&g.attend, []string{g.keys.Epoch(), k.Heard, k.Alive}, g.now, process, string(says))
	return func() (Attendance, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Attendance{}, err
		}
		return Attendance{Callers: int(v[0]), Anew: v[1] == 1}, nil
	}
}

// Uncounted is the slot of a call that runs though nobody admitted it, since the store was lost. It is renewed and
// returned as any other, so that the call counts once the store is back; no budget is charged for it.
func Uncounted(a Ask) Slot {
	a.Tokens = 0
	return Slot{ask: a}
}
