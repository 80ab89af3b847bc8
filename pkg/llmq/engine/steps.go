package engine

import (
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// nextStep is the step after the current one that is not over yet, in a ring: one that was passed by for
// want of a slot may still serve.
func (r *run) nextStep() (int, bool) {
	p := r.come()
	for i := 1; i < len(r.chain); i++ {
		n := (p.Step + i) % len(r.chain)
		if p.Spent>>n&1 == 0 {
			return n, true
		}
	}
	return 0, false
}

// enter makes n the current step. The one that is left is over where it is spent, or has been
// tried: no step gets its tries twice.
func (r *run) enter(n int, spent bool) {
	r.advance(func(p *claims.Progress) {
		if spent || p.Tries > 0 {
			p.Spent |= 1 << p.Step
		}
		p.Step, p.Tries, p.Throttled = n, 0, 0
	})
	r.log.Debug("fallback", "to", r.target().String())
}

// turn ends an attempt that another follows, in one round trip: the slot goes back with its ending, and
// the claim notes how far the request has come. With also, more is asked in it. What fails is made up for: a slot
// lapses, a renewal is repeated by the keeper, an admission by whoever waits for it.
func (r *run) turn(ctx context.Context, e capacity.Ending, also func(b *luascript.Batch) func()) {
	var b luascript.Batch
	slot, held := r.dropSlot()
	var settled luascript.Pending[struct{}]
	if held {
		settled = r.gate.settle(&b, slot, e)
	}
	kept := r.Claims.Renew(&b, r.claim, r.come())
	var done func()
	if also != nil {
		done = also(&b)
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		r.log.Warn("state store failed", "doing", "turn", "error", err)
		return
	}
	if hold, err := kept(); err == nil && hold != claims.Kept {
		r.look() // what that means is the keeper's business
	}
	if settled != nil {
		if _, err := settled(); err != nil {
			r.log.Warn("slot left to lapse", "error", err)
		}
	}
	if done != nil {
		done()
	}
}

// admitNow asks for a slot of the current step as part of a batch.
func (r *run) admitNow(b *luascript.Batch) func() {
	pending := r.gate.admit(b, r.ask())
	return func() {
		if a, err := pending(); err == nil {
			r.answer = r.admit(a)
		}
	}
}

func (r *run) ask() ask {
	if r.givesUp.IsZero() {
		r.givesUp = r.bound(time.Now().Add(r.cfg.RTCapacityWait))
	}
	return ask{target: r.target(), request: r.Request, callID: r.callID(), until: r.givesUp}
}
