package claims

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// StreamKept is how many bytes of a stream are kept for those who read it: the last ones, and a piece more at
// most. Who is further behind, or comes later, gets the rest from the result.
const StreamKept = 2 << 20

// Append keeps a piece of a reply that is on its way, whole events, and wakes whoever reads it. at is the offset of the
// piece's first byte in the reply. Said again after a lost answer, with more behind it even, nothing is kept twice. From the
// first piece on the request is nobody's to run anew (FEATURES A22).
func (s *Store) Append(b *luascript.Batch, c Claim, at int64, piece []byte) luascript.Pending[Hold] {
	return hold(b.Script(&s.append, []string{c.keys.Claim, c.keys.Stream}, c.owner, c.fence(), at, piece,
		StreamKept, ms(c.deadline.Add(ResultLife)), c.keys.Wake))
}

// Streamed reports whether r's reply has begun to come, under whichever owner.
func (s *Store) Streamed(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	call := b.Command("HGET", s.keys.Call(r.Tenant, r.RID()).Claim, "streamed")
	return func() (bool, error) {
		_, there, err := call.Text()
		return there, err
	}
}

// StreamBroken is how a request ends whose owner died in the midst of its reply.
func StreamBroken() *llmq.Error {
	return llmq.Errorf(llmq.CodeStreamBroken, "the worker that passed the reply on has ended; what came is not the whole of it")
}

// BreakState says whether a stream was ended as broken, and if not, why.
type BreakState int

const (
	// Broken means that the result is stored and the readers are woken.
	Broken BreakState = iota + 1
	// OverBefore means that the request had ended before.
	OverBefore
	// Alive means that its owner's lease runs for Wait.
	Alive
	// Unbegun means that nobody has it, or that nothing has come so far, or that it is cancelled: whoever takes it
	// decides.
	Unbegun
)

// Break is the answer to [Store.Break].
type Break struct {
	State BreakState
	Wait  time.Duration // Alive: when to ask again
}

// Break ends r with a result that says [llmq.CodeStreamBroken], where its reply has begun to come and its owner's lease
// has lapsed on the store's clock. Anybody may ask: who reads the stream, before the next worker does.
func (s *Store) Break(b *luascript.Batch, r llmq.Request, result []byte) luascript.Pending[Break] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.broken, []string{k.Claim, k.Result, k.Submission}, "", result, ms(r.Deadline), ResultLife.Milliseconds(), Keep.Milliseconds(), k.Wake)
	return func() (Break, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Break{}, err
		}
		states := map[int64]BreakState{1: Broken, 0: OverBefore, -1: Alive, -2: Unbegun}
		return Break{State: states[v[0]], Wait: time.Duration(v[1]) * time.Millisecond}, nil
	}
}
