package engine

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// held is a slot in a run's hands.
type held struct {
	slot  capacity.Slot
	ask   ask
	begun bool // an attempt was made under it: from then on it is settled, before it is abandoned
}

// ask is what the current step is asked for. It is noted as open until its answer is known to leave nothing
// behind.
func (r *run) ask() ask {
	a := ask{target: r.limited(), lane: r.Request.Lane, callID: r.callID(), load: r.load(), most: mostOf(r.Request.Op), direct: r.Direct}
	if !r.Direct {
		if r.givesUp.IsZero() {
			r.givesUp = r.bound(time.Now().Add(r.capacityWait()))
		}
		a.until = r.givesUp
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.open, a.same) {
		r.open = append(r.open, a)
	}
	return a
}

func (a ask) same(b ask) bool { return a.callID == b.callID }

// callID names the next admission. It stays until one was granted, so that who asks again keeps its place,
// and one whose answer was lost is found; what was settled under an id is settled.
func (r *run) callID() string {
	return r.owner + "." + strconv.Itoa(r.asked) + "." + strconv.Itoa(r.come().Step)
}

// load is what an attempt at the current step asks of a budget of tokens. Each step's provider is asked once.
func (r *run) load() provider.Load {
	step := r.come().Step
	if load, known := r.loads[step]; known {
		return load
	}
	req := r.attemptOf(r.target())
	load := provider.Load{InputChars: len(req.Body), NoOutput: req.Op == llmq.OpEmbeddings}
	if m, ok := r.Providers[r.target().Provider].(provider.Measurer); ok {
		load = m.Measure(req)
	}
	r.loads[step] = load
	return load
}

// admit takes an admission's answer in. It returns nil where that is a slot.
func (r *run) admit(of ask, a admission) *admission {
	r.mu.Lock()
	defer r.mu.Unlock()
	waits := !a.granted && a.never == nil && of.lane == llmq.LaneRT && !of.direct
	if !waits {
		r.open = slices.DeleteFunc(r.open, of.same)
	}
	if !a.granted {
		return &a
	}
	r.slot = &held{slot: a.slot, ask: of}
	r.asked++ // what is asked for after this slot is another admission
	if len(r.open) > 0 {
		r.look() // it waits nowhere else any more: the keeper says so
	}
	return nil
}

// heldSlot is the slot in hand, or nil.
func (r *run) heldSlot() *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slot
}

// useSlot notes that an attempt is made.
func (r *run) useSlot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slot != nil {
		r.slot.begun = true
	}
}

// dropSlot is heldSlot for the one who returns it. It waits for a renewal under way, for one that came
// after the return would take the slot anew.
func (r *run) dropSlot() *held {
	r.renewing <- struct{}{}
	defer func() { <-r.renewing }()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.slot
	r.slot = nil
	return h
}

// give adds the return of h to a batch. The answer is for how long the target's breaker is open.
func (r *run) give(b *luascript.Batch, h *held, o capacity.Outcome) func() time.Duration {
	if h == nil {
		return func() time.Duration { return 0 }
	}
	lapses := func(err error) {
		if err != nil {
			r.storeFailed("return of slot", err)
		}
	}
	if !h.begun {
		abandoned := r.gate.abandon(b, h.ask)
		return func() time.Duration { _, err := abandoned(); lapses(err); return 0 }
	}
	settled := r.gate.settle(b, h.slot, o)
	return func() time.Duration { open, err := settled(); lapses(err); return open }
}

// waiting are the asks that may have left something behind at the gate.
func (r *run) waiting() []ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.open)
}

// leave adds the end of all waiting to a batch: rt calls that wait are counted, and what was granted with its
// answer lost is held. The answer is to be asked for once the batch has run.
func (r *run) leave(b *luascript.Batch) func() {
	open := r.waiting()
	for _, a := range open {
		r.gate.abandon(b, a)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open = slices.DeleteFunc(r.open, func(a ask) bool { return slices.ContainsFunc(open, a.same) })
	}
}

// abandonSlot returns a slot under which nothing was attempted, and ends all waiting.
func (r *run) abandonSlot(ctx context.Context) { r.settleSlot(ctx, cutOff()) }

// settleSlot returns a slot by itself, and ends all waiting. What can't be returned is owed.
func (r *run) settleSlot(ctx context.Context, o capacity.Outcome) {
	h := r.dropSlot()
	if h == nil && len(r.waiting()) == 0 {
		return
	}
	var b luascript.Batch
	given, left := r.give(&b, h, o), r.leave(&b)
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.storeFailed("return of slot", err)
		r.oweSlots(h, o)
		return
	}
	given()
	left()
}

// turn ends an attempt that another follows, in one round trip: the slot goes back with its outcome, and
// the claim notes how far the request has come. With also, more is asked in it. What fails is made up for: a slot
// is owed, a renewal is repeated by the keeper, an admission by whoever waits for it. The answer is for
// how long the breaker of the slot's target is open.
func (r *run) turn(ctx context.Context, o capacity.Outcome, also func(b *luascript.Batch) func()) time.Duration {
	var b luascript.Batch
	h := r.dropSlot()
	given := r.give(&b, h, o)
	kept := r.Claims.Renew(&b, r.claim, r.come(), true)
	var done func()
	if also != nil {
		done = also(&b)
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.storeFailed("turn", err)
		r.oweSlot(h, o)
		return 0
	}
	r.ahead.Store(true)
	if hold, err := kept(); err == nil && hold != claims.Kept {
		r.look() // what that means is the keeper's business
	}
	open := given()
	if done != nil {
		done()
	}
	return open
}

// admitNow asks for a slot of the current step as part of a batch.
func (r *run) admitNow(b *luascript.Batch) func() {
	a := r.ask()
	pending := r.gate.admit(b, a)
	return func() {
		if got, err := pending(); err == nil {
			r.answer = r.admit(a, got)
		}
	}
}
