package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// RenewEvery is how often claim, slot and message are renewed.
	RenewEvery = 10 * time.Second
	// renewWithin is how long renewals may fail before a worker cancels its own attempt:
	// ten seconds before its claim lapses and another may take it.
	renewWithin = 35 * time.Second
)

var (
	errClaimLost = errors.New("the claim was lost to another owner")
	errUnrenewed = errors.New("the claim could not be renewed in time")
)

// keeper renews a run's claim and slot until it is stopped. Its context ends when the
// claim is lost.
type keeper struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
	quit   chan struct{}
	done   chan struct{}
}

func (r *run) keep(ctx context.Context) *keeper {
	k := &keeper{quit: make(chan struct{}), done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(k.done)
		k.loop(ctx, r)
	}()
	return k
}

// stop ends the renewals and waits for the last one, so that none can come after a
// settle. It is idempotent.
func (k *keeper) stop() {
	k.once.Do(func() { close(k.quit) })
	<-k.done
	k.cancel(context.Canceled)
}

// lost reports why the keeper cancelled the run, or nil.
func (k *keeper) lost() error {
	if cause := context.Cause(k.ctx); errors.Is(cause, errClaimLost) || errors.Is(cause, errUnrenewed) {
		return cause
	}
	return nil
}

func (k *keeper) loop(ctx context.Context, r *run) {
	tick := time.NewTicker(RenewEvery)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-k.quit:
			return
		case <-tick.C:
		}
		began := time.Now() // a lease counts from before the answer
		held, err := r.renew(ctx)
		switch {
		case err == nil && !held:
			k.cancel(errClaimLost)
			return
		case err == nil:
			renewed = began
		case time.Since(renewed) >= renewWithin-RenewEvery:
			// The next tick would come too late.
			k.cancel(errUnrenewed)
			return
		default:
			r.log.Warn("renewal failed", "error", err)
		}
	}
}

// renew keeps the claim, and the slot where one is held, in one round trip that leaves
// time for another try.
func (r *run) renew(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, RenewEvery/2)
	defer cancel()
	var b luascript.Batch
	kept := r.Claims.Renew(&b, r.claim)
	var slotted luascript.Pending[struct{}]
	if slot, held := r.heldSlot(); held {
		slotted = r.Capacity.Renew(&b, slot)
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		return false, err
	}
	if slotted != nil {
		if _, err := slotted(); err != nil {
			r.log.Warn("slot not renewed", "error", err)
		}
	}
	return kept()
}
