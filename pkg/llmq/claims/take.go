package claims

import (
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Claim is the right to run one request. All but the fence tells of earlier takes.
type Claim struct {
	Fence     int64
	Takeovers int  // takes of a claim whose lease had lapsed
	Cancelled bool // whoever took it ends it as [llmq.CodeCancelled] and calls nobody
	Kept      bool // its end lives for [Keep]: a large memory is no place for it
	Progress  Progress

	keys     keys.Call
	owner    string
	deadline time.Time
}

// Progress is how far a request has come, over all its takes. A renewal and a deferral note
// it, so that neither a release nor a worker's death gives a request its tries anew; whoever takes a claim over from one who has
// not noted anything yet finds an attempt counted for that one. What
// it counts from is the engine's business: steps are numbers of the request's chain.
type Progress struct {
	Attempts  int           // begun at providers, the running one included
	Step      int           // the current one
	Spent     int           // bit n is set when step n is over
	Tries     int           // attempts at the current step
	Throttled int           // of these, the ones that were refused for load
	Cut       int           // attempts that the end of their process cut off
	Provided  time.Duration // spent waiting for providers, in whole ms
	Failed    int           // attempts that failed at any step, throttles apart
	Last      int           // how the last one failed, as the engine numbers it; 0 is not
}

// text is what the scripts keep of it beside the attempts.
func (p Progress) text() string {
	parts := make([]string, 0, 8)
	for _, n := range []int64{int64(p.Step), int64(p.Spent), int64(p.Tries), int64(p.Throttled), int64(p.Cut), p.Provided.Milliseconds(), int64(p.Failed), int64(p.Last)} {
		parts = append(parts, strconv.FormatInt(max(n, 0), 10))
	}
	return strings.Join(parts, ",")
}

// progress reads what the scripts hand back. A claim of an older release has less.
func progress(attempts int64, kept []int64) Progress {
	at := func(i int) int64 {
		if i >= len(kept) {
			return 0
		}
		return kept[i]
	}
	return Progress{
		Attempts: int(attempts), Step: int(at(0)), Spent: int(at(1)), Tries: int(at(2)), Throttled: int(at(3)), Cut: int(at(4)),
		Provided: time.Duration(at(5)) * time.Millisecond, Failed: int(at(6)), Last: int(at(7)),
	}
}

// TakeState says whether a claim was taken, and if not, why.
type TakeState int

const (
	// Taken means that the caller owns the claim for [Lease].
	Taken TakeState = iota + 1
	// Stored means that the request has ended; nothing is left to do.
	Stored
	// Buried means the same, and that a message of the request lies in the dead-letter queue ([Store.Bury]).
	Buried
	// Busy means that another owner's lease runs for Wait.
	Busy
	// Deferred means that the claim was given back and can't be taken for Wait.
	Deferred
	// Mismatch means that the id was taken for another body, model or operation.
	Mismatch
	// Expired means that the deadline has passed on the store's clock and nobody runs the
	// request. [Store.Expire] ends it.
	Expired
	// Outdated means that a later generation of the request was seen: that one's message carries it now.
	Outdated
)

// Take is the answer to a take.
type Take struct {
	State TakeState
	Claim Claim         // valid when Taken; its counts always
	Wait  time.Duration // Busy and Deferred: when to come back
}

// Take asks for the claim on r. hash is [BodyHash] of it: the body under an id is that of
// its first take, whichever way it came. owner is unique to this take, best from [Stops.Owner].
//
// A generation above the one before begins anew where nobody runs the request: its counts are those of a new one, a dead end
// ([Store.Bury]) is forgotten with its result, and whoever asks again by the id waits until r's deadline. No
// generation takes up what has ended otherwise.
func (s *Store) Take(b *luascript.Batch, r llmq.Request, hash, owner string) luascript.Pending[Take] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.take, []string{k.Claim, k.Result, k.Submission}, "", owner, Lease.Milliseconds(), ms(r.Deadline), Keep.Milliseconds(), hash, r.Generation)
	return func() (Take, error) {
		v, err := call.Ints(6)
		if err != nil {
			return Take{}, err
		}
		t := Take{
			State: Mismatch,
			Claim: Claim{
				Fence: v[1], Takeovers: int(v[3]), Cancelled: v[5]&1 != 0, Kept: v[5]&2 != 0, Progress: progress(v[2], v[6:]),
				keys: k, owner: owner, deadline: r.Deadline,
			},
			Wait: time.Duration(v[4]) * time.Millisecond,
		}
		states := map[int64]TakeState{1: Taken, 0: Stored, -1: Busy, -2: Deferred, -4: Expired, -5: Outdated, -6: Buried}
		if state, known := states[v[0]]; known {
			t.State = state
		}
		return t, nil
	}
}

// Hold is what an owner is told of its claim.
type Hold int

const (
	// Lost means that another owner has the claim, or that the request has ended otherwise.
	Lost Hold = iota
	// Kept means that what was asked for is done.
	Kept
	// Cancelled means that the request is cancelled and the claim still the caller's: the only
	// result that can be stored says so.
	Cancelled
)

func hold(call *luascript.Call) luascript.Pending[Hold] {
	return func() (Hold, error) {
		v, err := call.Ints(1)
		if err != nil {
			return Lost, err
		}
		return Hold(v[0]), nil
	}
}

// Renew keeps a claim for another [Lease] and notes how far its request has come. The lease
// runs on for a cancelled one too. ahead says that another attempt follows which p does not count: should its owner die before the next
// renewal, it is counted.
func (s *Store) Renew(b *luascript.Batch, c Claim, p Progress, ahead bool) luascript.Pending[Hold] {
	return hold(b.Script(&s.renew, []string{c.keys.Claim}, "", c.owner, c.fence(), Lease.Milliseconds(), Keep.Milliseconds(), p.Attempts, p.text(), flag(ahead)))
}

// Defer gives a claim back with its progress; it can't be taken for the given time. One whose
// request is cancelled stays the caller's. One that was wiped is written anew.
func (s *Store) Defer(b *luascript.Batch, c Claim, d time.Duration, p Progress) luascript.Pending[Hold] {
	return hold(b.Script(&s.giveBack, []string{c.keys.Claim}, "", c.owner, c.fence(), max(d, 0).Milliseconds(), p.Attempts, p.text(), Keep.Milliseconds()))
}

func (c Claim) fence() string { return strconv.FormatInt(c.Fence, 10) }
