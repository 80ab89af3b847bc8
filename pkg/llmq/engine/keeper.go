package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// RenewEvery is how often claim, slot and message are renewed.
	RenewEvery = 10 * time.Second
	// renewWithin is how long renewals may fail before a worker cancels its own attempt:
	// ten seconds before its claim lapses and another may take it.
	renewWithin = 35 * time.Second
)

// Why the work on a request is stopped before it has come to an end.
var (
	errClaimLost = errors.New("the claim was lost to another owner")
	errUnrenewed = errors.New("the claim could not be renewed in time")
	errCancelled = errors.New("the request was cancelled")
)

// stopOf reports which of these stopped the work, or nil.
func stopOf(work context.Context) error {
	cause := context.Cause(work)
	for _, why := range []error{errClaimLost, errUnrenewed, errCancelled} {
		if errors.Is(cause, why) {
			return why
		}
	}
	return nil
}

// keeper renews a run's claim and slot until it is stopped. It cancels the work when the
// claim is lost or the request is cancelled.
type keeper struct {
	cancel context.CancelCauseFunc
	once   sync.Once
	quit   chan struct{}
	done   chan struct{}
}

func (r *run) keep(ctx context.Context, cancel context.CancelCauseFunc) *keeper {
	k := &keeper{cancel: cancel, quit: make(chan struct{}), done: make(chan struct{})}
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
		case <-r.nudge:
		}
		began := time.Now() // a lease counts from before the answer
		hold, err := r.renew(ctx)
		switch {
		case err == nil && hold == claims.Lost:
			k.cancel(errClaimLost)
			return
		case err == nil:
			renewed = began
			if hold == claims.Cancelled {
				k.cancel(errCancelled) // renewed all the same, until that is stored
			}
		case time.Since(renewed) >= renewWithin-RenewEvery:
			// The next tick would come too late.
			k.cancel(errUnrenewed)
			return
		default:
			r.storeFailed("renewal", err)
		}
	}
}

// renew keeps the claim, and the slot where one is held, in one round trip that leaves
// time for another try. Who has a slot waits for no other.
func (r *run) renew(ctx context.Context) (claims.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, RenewEvery/2)
	defer cancel()
	r.renewing <- struct{}{}
	defer func() { <-r.renewing }()
	var b luascript.Batch
	kept := r.Claims.Renew(&b, r.claim, r.come(), false)
	var slotted luascript.Pending[struct{}]
	left := func() {}
	if h := r.heldSlot(); h != nil {
		slotted, left = r.gate.renew(&b, h.slot), r.leave(&b)
	}
	if err := b.Run(ctx, r.Valkey); err != nil {
		return claims.Lost, err
	}
	r.ahead.Store(false)
	left()
	if slotted != nil {
		if _, err := slotted(); err != nil {
			r.storeFailed("renewal of slot", err)
		}
	}
	return kept()
}
