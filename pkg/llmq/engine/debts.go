package engine

import (
	"context"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// mostDebts bounds what a process remembers; what is older lapses by itself.
	mostDebts = 256
	// mostOwedBytes is the largest result that is kept in memory for a later try.
	mostOwedBytes = 256 << 10
	payWithin     = 2 * time.Second
)

// duty is something that a run has to say to the state store. It adds it to a batch; once that has run, the
// answer is for what is to be said next, or nil.
type duty func(b *luascript.Batch) func() duty

// debt is a duty that the store did not hear.
type debt struct {
	say   duty
	until time.Time // nothing is owed any more: its leases have lapsed
}

// debts are those of one process, over all its runs. A call that got no answer may have taken effect all the same, even
// long after its caller gave up: a link that hung delivers late. A slot of nobody would then hold up others for its
// whole lease, and a claim of nobody its request. So the first run that hears the store again says all of it. A
// process that gets no more runs owes in vain, and everything lapses as it would have.
type debts struct {
	paying chan struct{} // capacity 1: a token for whoever says them

	mu   sync.Mutex // guards all below
	owed []debt
	last time.Time // when some were said
}

func newDebts() *debts { return &debts{paying: make(chan struct{}, 1)} }

func (d *debts) owe(say duty) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = append(d.owed, debt{say, time.Now().Add(capacity.Lease)})
	if extra := len(d.owed) - mostDebts; extra > 0 {
		d.owed = append([]debt(nil), d.owed[extra:]...)
	}
}

// take empties the list, and tells when some were said last.
func (d *debts) take() ([]debt, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed := d.owed
	d.owed = nil
	return owed, d.last
}

func (d *debts) said() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
}

// keep puts back what could not be said.
func (d *debts) keep(owed []debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = append(owed, d.owed...)
	if extra := len(d.owed) - mostDebts; extra > 0 {
		d.owed = append([]debt(nil), d.owed[extra:]...)
	}
}

// payDebts says what is owed, to a store that has just answered. It reports whether any was said since began, by this run or
// by one beside it, which it waits for. Where nothing is owed, which is ever but after an outage, it costs no round trip.
func (r *run) payDebts(ctx context.Context, began time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, payWithin)
	defer cancel()
	select {
	case r.debts.paying <- struct{}{}:
		defer func() { <-r.debts.paying }()
	case <-ctx.Done():
		return false
	}
	owed, last := r.debts.take()
	if len(owed) == 0 {
		return last.After(began)
	}
	for len(owed) > 0 {
		next, err := r.say(ctx, owed)
		if err != nil {
			r.debts.keep(owed)
			r.storeFailed("debts", err)
			return false
		}
		owed = next
	}
	r.debts.said()
	return true
}

// say is one round trip of what is owed. It returns what follows from the answers.
func (r *run) say(ctx context.Context, owed []debt) ([]debt, error) {
	var b luascript.Batch
	var said []debt
	var heard []func() duty
	for _, d := range owed {
		if time.Now().Before(d.until) {
			said, heard = append(said, d), append(heard, d.say(&b))
		}
	}
	if len(said) == 0 {
		return nil, nil
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		return nil, err
	}
	r.log().Debug("debts_paid", "count", len(said))
	var next []debt
	for i, answer := range heard {
		if more := answer(); more != nil {
			next = append(next, debt{more, said[i].until})
		}
	}
	return next, nil
}

// oweBegin notes that a take and an admission may have taken effect. Both are undone by their names: the claim where
// its owner is still this run, the slot by its call id.
func (r *run) oweBegin() {
	r.oweSlots(nil, cutOff())
	req, hash, owner, store := r.Request, r.hash, r.owner, r.Claims
	req.Body = nil
	req.Deadline = time.UnixMilli(0) // nothing is taken past the deadline: this take only tells who has it
	r.debts.owe(func(b *luascript.Batch) func() duty {
		looked := store.Take(b, req, hash, owner)
		return func() duty {
			got, err := looked()
			if err != nil || got.State != claims.Expired || got.Claim.Fence == 0 {
				return nil // another runs it, it has ended, or nobody ever took it
			}
			return func(b *luascript.Batch) func() duty {
				store.Defer(b, got.Claim, 0, got.Claim.Progress) // refused where the owner is another
				return paid
			}
		}
	})
}

// oweSlots notes that h, and whatever was asked for without an answer, could not be returned.
func (r *run) oweSlots(h *held, o capacity.Outcome) {
	gate, open := r.gate, r.waiting()
	if h == nil && len(open) == 0 {
		return
	}
	r.debts.owe(func(b *luascript.Batch) func() duty {
		if h != nil {
			returned(gate, b, h, o)
		}
		for _, a := range open {
			gate.abandon(b, a)
		}
		return paid
	})
}

// oweSlot is oweSlots for a run that goes on: what it waits for is its own business.
func (r *run) oweSlot(h *held, o capacity.Outcome) {
	if h == nil {
		return
	}
	gate := r.gate
	r.debts.owe(func(b *luascript.Batch) func() duty {
		returned(gate, b, h, o)
		return paid
	})
}

// returned adds the return of a slot to a batch.
func returned(g gate, b *luascript.Batch, h *held, o capacity.Outcome) {
	if h.begun {
		g.settle(b, h.slot, o)
		return
	}
	g.abandon(b, h.ask)
}

// oweDefer notes that the claim was not given back. It can't be taken before the given time.
func (r *run) oweDefer(free time.Time) {
	claim, come, store := r.claim, r.come(), r.Claims
	r.debts.owe(func(b *luascript.Batch) func() duty {
		store.Defer(b, claim, time.Until(free), come)
		return paid
	})
}

// oweResult notes that a result was not stored. Its claim's fence still decides.
func (r *run) oweResult(stored []byte, isCancel bool) {
	if len(stored) > mostOwedBytes {
		return
	}
	claim, store, buried := r.claim, r.Claims, r.buried && !isCancel
	r.debts.owe(func(b *luascript.Batch) func() duty {
		if buried {
			store.Bury(b, claim, stored)
		} else {
			store.Finish(b, claim, stored, isCancel)
		}
		return paid
	})
}

func paid() duty { return nil }

// storeFailed says that a call of the state store failed. In an outage every call of every run does, and the process says
// so once ([telemetry.Store]); what else the store refuses is a fault of ours.
func (r *run) storeFailed(doing string, err error) {
	if llmq.AsError(err).Code == llmq.CodeQueueUnavailable {
		r.log().Debug("state store failed", "doing", doing, "error", err)
		return
	}
	r.log().Warn("state store failed", "doing", doing, "error", err)
}
