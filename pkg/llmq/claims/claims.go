// Package claims makes each request run once: a submission record says what an id
// stands for, a fenced claim says who runs it, and a result is stored only by the
// claim's last owner.
//
// Every operation is added to a batch, so that its caller decides what shares a
// round trip, and every script is idempotent: a repeat after a lost answer changes
// nothing. The rules are those of docs/DELIVERY.md.
package claims

import (
	"cmp"
	_ "embed"
	"errors"
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
	// ResultLife is how long a result is kept past now and its deadline, where nobody has asked for longer ([llmq.Request.Kept]).
	ResultLife = 300 * time.Second
	// Keep is how long submission records and claims outlive their deadline: a done mark
	// without a result answers result_expired, never a second call. The end of a request that is kept lives as long.
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
	//go:embed lua/expire.lua
	expireText string
	//go:embed lua/cancel.lua
	cancelText string
	//go:embed lua/append.lua
	appendText string
	//go:embed lua/broken.lua
	brokenText string
)

// Store reads and writes submission records and claims. It holds no connection and
// no mutable state, so it is safe for concurrent use.
type Store struct {
	keys                          keys.Space
	submit, sent                  luascript.Script
	take, renew, giveBack, finish luascript.Script
	expire, cancel                luascript.Script
	append, broken                luascript.Script
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
		expire:   luascript.New("expire", expireText),
		cancel:   luascript.New("cancel", cancelText),
		append:   luascript.New("append", appendText),
		broken:   luascript.New("broken", brokenText),
	}
}

// Submission is what an id stands for.
type Submission struct {
	Known    bool      // the id was submitted before, with the same operation, model and body
	Sent     bool      // its message is known to be on the queue
	Deadline time.Time // of the message that was sent, or else of the first submission
}

// Submit records r under its id. hash is [BodyHash] of it. An id that stands for
// another body, by its record or by a claim on what came over a queue, is
// [llmq.CodeIdempotencyMismatch], and nothing is recorded.
func (s *Store) Submit(b *luascript.Batch, r llmq.Request, hash string) luascript.Pending[Submission] {
	k := s.keys.Call(r.Tenant, r.RID())
	call := b.Script(&s.submit, []string{k.Submission, k.Claim}, "", hash, ms(r.Deadline), Keep.Milliseconds(), flag(r.Kept))
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

// Stands is the hash of the body that r's id stands for, of its first take or else of its submission; "" where neither was.
func (s *Store) Stands(b *luascript.Batch, r llmq.Request) luascript.Pending[string] {
	k := s.keys.Call(r.Tenant, r.RID())
	taken, submitted := b.Command("HGET", k.Claim, "hash"), b.Command("HGET", k.Submission, "hash")
	return func() (string, error) {
		first, _, err := taken.Text()
		sent, _, sentErr := submitted.Text()
		return cmp.Or(first, sent), errors.Join(err, sentErr)
	}
}

// Begun reports whether r may have been tried: somebody runs it or has died over it, or attempts are counted.
func (s *Store) Begun(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	claim := s.keys.Call(r.Tenant, r.RID()).Claim
	state, attempts, takeovers := b.Command("HGET", claim, "state"), b.Command("HGET", claim, "attempts"), b.Command("HGET", claim, "takeovers")
	return func() (bool, error) {
		is, _, err := state.Text()
		tried, _, triedErr := attempts.Text()
		died, _, diedErr := takeovers.Text()
		return is == "running" || counts(tried) || counts(died), errors.Join(err, triedErr, diedErr)
	}
}

// counts reports whether the text is a number above 0.
func counts(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0
}

// Over reports whether a message of r has nothing left to run: r has ended, and not as a dead letter that r's generation
// begins anew.
func (s *Store) Over(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	done, claim := s.Done(b, r), s.keys.Call(r.Tenant, r.RID()).Claim
	dead, gen := b.Command("HGET", claim, "dead"), b.Command("HGET", claim, "gen")
	return func() (bool, error) {
		ended, err := done()
		isDead, _, deadErr := dead.Text()
		of, _, genErr := gen.Text()
		if err := errors.Join(err, deadErr, genErr); err != nil {
			return false, err
		}
		generation, _ := strconv.Atoi(of) // none is 0
		return ended && (isDead != "1" || generation >= r.Generation), nil
	}
}

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

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}
