// Package claims makes each request run once: a submission record says what an id
// stands for, a fenced claim says who runs it, and a result is stored only by the
// claim's last owner.
//
// Every operation is added to a batch, so that its caller decides what shares a
// round trip, and every script is idempotent: a repeat after a lost answer changes
// nothing. The rules are those of docs/DELIVERY.md.
package claims

import (
	_ "embed"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// Lease is how long a claim holds without renewal (DESIGN: claim 45 s, message 55 s,
	// slot 60 s; the claim lapses first, so a message that comes back finds it free).
	Lease = 45 * time.Second
	// ResultLife is how long a result is kept past now and its deadline.
	ResultLife = 300 * time.Second
	// Keep is how long submission records and claims outlive their deadline: a done mark
	// without a result answers result_expired, never a second call.
	Keep = 24 * time.Hour
)

var (
	//go:embed lua/submit.lua
	submitText string
	//go:embed lua/sent.lua
	sentText string
	//go:embed lua/take.lua
	takeText string
	//go:embed lua/renew.lua
	renewText string
	//go:embed lua/defer.lua
	deferText string
	//go:embed lua/finish.lua
	finishText string
)

// Store reads and writes submission records and claims. It holds no connection and
// no mutable state, so it is safe for concurrent use.
type Store struct {
	keys                                        keys.Space
	submit, sent, take, renew, giveBack, finish luascript.Script
}

// New is the store of one environment's claims.
func New(space keys.Space) *Store {
	return &Store{
		keys:     space,
		submit:   luascript.New("submit", submitText),
		sent:     luascript.New("sent", sentText),
		take:     luascript.New("take", takeText),
		renew:    luascript.New("renew", renewText),
		giveBack: luascript.New("defer", deferText),
		finish:   luascript.New("finish", finishText),
	}
}

// Submission is what an id stands for.
type Submission struct {
	Known    bool      // the id was submitted before, with the same operation, model and body
	Sent     bool      // its message is known to be on the queue
	Deadline time.Time // of the message that was sent, or else of the first submission
}

// Submit records r under its id. hash is [BodyHash] of it. An id that stands for
// another body is [llmq.CodeIdempotencyMismatch].
func (s *Store) Submit(b *luascript.Batch, r llmq.Request, hash string) luascript.Pending[Submission] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.submit, []string{k.Submission}, "", hash, ms(r.Deadline), Keep.Milliseconds())
	return func() (Submission, error) {
		v, err := call.Ints(3)
		if err != nil {
			return Submission{}, err
		}
		if v[0] < 0 {
			return Submission{}, llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id %q was used before for another body, model or operation", r.ID)
		}
		return Submission{Known: v[0] == 0, Sent: v[1] == 1, Deadline: time.UnixMilli(v[2])}, nil
	}
}

// MarkSent notes that r's message is on the queue with r's deadline, so that a repeat does
// not send it again and knows how long to wait for its end. False means that the record is gone.
func (s *Store) MarkSent(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	return first(b.Script(&s.sent, []string{s.keys.Call(r.Tenant, r.RID()).Submission}, ms(r.Deadline)))
}

// Done reports whether r has ended, with or without its result still being stored.
func (s *Store) Done(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	call := b.Command("HGET", s.keys.Call(r.Tenant, r.RID()).Claim, "state")
	return func() (bool, error) {
		state, _, err := call.Text()
		return state == "done", err
	}
}

// Claim is the right to run one request. Attempts and Takeovers are those of earlier
// takes.
type Claim struct {
	Fence     int64
	Attempts  int
	Takeovers int

	keys     keys.Call
	owner    string
	deadline time.Time
}

// TakeState says whether a claim was taken, and if not, why.
type TakeState int

const (
	// Taken means that the caller owns the claim for [Lease].
	Taken TakeState = iota + 1
	// Stored means that the request has ended; nothing is left to do.
	Stored
	// Busy means that another owner's lease runs for Wait.
	Busy
	// Deferred means that the claim was given back and can't be taken for Wait.
	Deferred
	// Mismatch means that the id was taken for another body, model or operation.
	Mismatch
)

// Take is the answer to a take.
type Take struct {
	State TakeState
	Claim Claim         // valid when Taken; its counts always
	Wait  time.Duration // Busy and Deferred: when to come back
}

// Take asks for the claim on r. hash is [BodyHash] of it: the body under an id is that of
// its first take, whichever way it came. owner is unique to this take.
func (s *Store) Take(b *luascript.Batch, r llmq.Request, hash, owner string) luascript.Pending[Take] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.take, []string{k.Claim}, "", owner, Lease.Milliseconds(), ms(r.Deadline), Keep.Milliseconds(), hash)
	return func() (Take, error) {
		v, err := call.Ints(5)
		if err != nil {
			return Take{}, err
		}
		t := Take{
			Claim: Claim{Fence: v[1], Attempts: int(v[2]), Takeovers: int(v[3]), keys: k, owner: owner, deadline: r.Deadline},
			Wait:  time.Duration(v[4]) * time.Millisecond,
		}
		switch v[0] {
		case 1:
			t.State = Taken
		case 0:
			t.State = Stored
		case -1:
			t.State = Busy
		case -2:
			t.State = Deferred
		default:
			t.State = Mismatch
		}
		return t, nil
	}
}

// Renew keeps a claim for another [Lease]. False means that it is lost: another owner
// has it, or a result is stored.
func (s *Store) Renew(b *luascript.Batch, c Claim) luascript.Pending[bool] {
	call := b.Script(&s.renew, []string{c.keys.Claim}, "", c.owner, c.fence(), Lease.Milliseconds(), Keep.Milliseconds())
	return first(call)
}

// Defer gives a claim back; it can't be taken for the given time. attempts is the
// number of real attempts so far, those of earlier takes included. False means that
// the claim was not the caller's any more.
func (s *Store) Defer(b *luascript.Batch, c Claim, d time.Duration, attempts int) luascript.Pending[bool] {
	call := b.Script(&s.giveBack, []string{c.keys.Claim}, "", c.owner, c.fence(), max(d, 0).Milliseconds(), attempts)
	return first(call)
}

// Finish stores a result under the claim's fence and wakes whoever waits for it.
// False means that the claim was lost to another owner: nothing was stored, and the
// other's result stands.
func (s *Store) Finish(b *luascript.Batch, c Claim, result []byte) luascript.Pending[bool] {
	call := b.Script(&s.finish, []string{c.keys.Claim, c.keys.Result}, "", c.owner, c.fence(), result,
		ms(c.deadline), ResultLife.Milliseconds(), Keep.Milliseconds(), c.keys.Wake)
	return first(call)
}

func (c Claim) fence() string { return strconv.FormatInt(c.Fence, 10) }

func first(call *luascript.Call) luascript.Pending[bool] {
	return func() (bool, error) {
		v, err := call.Ints(1)
		if err != nil {
			return false, err
		}
		return v[0] == 1, nil
	}
}

func ms(t time.Time) int64 { return t.UnixMilli() }
