package claims

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Finish stores a result under the claim's fence and wakes whoever waits for it. cancelled
// says that the result tells of a cancellation: a cancelled request takes no other.
// [Lost] means that nothing was stored, and another's result stands.
func (s *Store) Finish(b *luascript.Batch, c Claim, result []byte, cancelled bool) luascript.Pending[Hold] {
	kind := endFinal
	if cancelled {
		kind = endCancelled
	}
	return s.end(b, c, result, kind)
}

// Bury is [Store.Finish] for the end of a request whose message lies in the dead-letter queue. Such an end is dead: a take of
// a later generation begins the request anew, where any other end stands for good.
func (s *Store) Bury(b *luascript.Batch, c Claim, result []byte) luascript.Pending[Hold] {
	return s.end(b, c, result, endDead)
}

// Kinds of an end, as finish.lua knows them.
const (
	endFinal = iota
	endCancelled
	endDead
)

func (s *Store) end(b *luascript.Batch, c Claim, result []byte, kind int) luascript.Pending[Hold] {
	return hold(b.Script(&s.finish, []string{c.keys.Claim, c.keys.Result, c.keys.Submission}, "", c.owner, c.fence(), result,
		ms(c.deadline), ResultLife.Milliseconds(), Keep.Milliseconds(), c.keys.Wake, kind))
}

// ExpireState says whether a request was ended as expired, and if not, why.
type ExpireState int

const (
	// Ended means that the result is stored and the waiters are woken, now or by an earlier try of the same owner.
	Ended ExpireState = iota + 1
	// HasEnded means that another end was stored before.
	HasEnded
	// Running means that another owner's lease runs for Wait.
	Running
	// Early means that the deadline is Wait away on the store's clock.
	Early
	// OtherBody is [Mismatch].
	OtherBody
	// IsCancelled means that the request is cancelled: whoever has its claim stores that, else whoever takes it.
	IsCancelled
	// IsOutdated is [Outdated].
	IsOutdated
)

// Expiry is the answer to [Store.Expire].
type Expiry struct {
	State ExpireState
	Wait  time.Duration // Running and Early: when to come back
}

// Expire ends r with a result that says that its deadline has passed, where it has on
// the store's clock, no other owner runs it and nothing is stored. Nothing else stores that
// end, so workers whose clocks differ can't disagree about it. A later generation's replaces a dead end. owner is that of the
// caller's claim, or unique where it has none.
func (s *Store) Expire(b *luascript.Batch, r llmq.Request, hash, owner string, result []byte) luascript.Pending[Expiry] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.expire, []string{k.Claim, k.Result, k.Submission}, "", owner, result, ms(r.Deadline), ResultLife.Milliseconds(), Keep.Milliseconds(), hash, k.Wake, r.Generation)
	return func() (Expiry, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Expiry{}, err
		}
		states := map[int64]ExpireState{1: Ended, 0: HasEnded, -1: Running, -2: Early, -3: OtherBody, 2: IsCancelled, -5: IsOutdated}
		return Expiry{State: states[v[0]], Wait: time.Duration(v[1]) * time.Millisecond}, nil
	}
}

// CancelState says what a cancellation has done.
type CancelState int

const (
	// CancelLate means that the request had ended otherwise, for good; nothing is changed.
	CancelLate CancelState = iota
	// CancelDone means that it has ended as cancelled, now or before: its waiters are told, and no worker
	// will begin it.
	CancelDone
	// CancelTold means that it runs and its owner is told. Nothing but the cancellation can be stored any more.
	CancelTold
)

// Cancellation is the answer to a cancellation.
type Cancellation struct {
	State CancelState
	Known bool // it was submitted or taken before; one that is not is refused when it comes
}

// Cancel ends the request that a tenant knows as id. result says [llmq.CodeCancelled]. A dead end ([Store.Bury]) is replaced,
// for its message may have been sent again. Repeated after a lost answer it changes nothing more.
func (s *Store) Cancel(b *luascript.Batch, tenant, id string, result []byte) luascript.Pending[Cancellation] {
	k := s.keys.Call(tenant, llmq.NewRID(tenant, id))
	call := b.Script(&s.cancel, []string{k.Claim, k.Result, k.Submission}, "", result, ResultLife.Milliseconds(), Keep.Milliseconds(), k.Wake, s.keys.Stop(""))
	return func() (Cancellation, error) {
		v, err := call.Ints(2)
		if err != nil {
			return Cancellation{}, err
		}
		return Cancellation{State: CancelState(v[0]), Known: v[1] == 1}, nil
	}
}
