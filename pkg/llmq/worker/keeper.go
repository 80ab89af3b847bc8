package worker

import (
	"context"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// keeper keeps the messages of a batch hidden while they are worked on: their
// visibility is cut to a lease at once and renewed with the claims.
type keeper struct {
	w    *Worker
	msgs []queue.Message
	end  time.Time // no renewal outlives it, since the process ends soon after; zero is no limit
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex    // guards all below
	working []bool        // by message
	round   chan struct{} // closed when the renewal under way has ended; nil between renewals
}

func (w *Worker) keep(ctx context.Context, msgs []queue.Message) *keeper {
	k := &keeper{w: w, msgs: msgs, quit: make(chan struct{}), done: make(chan struct{}), working: make([]bool, len(msgs))}
	for i := range k.working {
		k.working[i] = true
	}
	if d, ok := ctx.Deadline(); ok {
		k.end = d.Add(-time.Second)
	}
	first := k.begin() // before anything is done, so that it has every message
	go func() {
		defer close(k.done)
		k.loop(context.WithoutCancel(ctx), first)
	}()
	return k
}

// forget stops the renewals of a message.
func (k *keeper) forget(i int) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.working[i] = false
	return k.round
}

// settle is forget, and waits for a renewal under way: one that came after a release
// would hide the message again.
func (k *keeper) settle(i int) {
	if round := k.forget(i); round != nil {
		<-round
	}
}

// stop ends the renewals and waits for the one under way.
func (k *keeper) stop() {
	close(k.quit)
	<-k.done
}

func (k *keeper) loop(ctx context.Context, leases map[queue.Name][]queue.Lease) {
	tick := time.NewTicker(engine.RenewEvery)
	defer tick.Stop()
	for {
		k.renew(ctx, leases)
		select {
		case <-k.quit:
			return
		case <-tick.C:
		}
		leases = k.begin()
	}
}

// begin opens a renewal of what is still worked on.
func (k *keeper) begin() map[queue.Name][]queue.Lease {
	byQueue := map[queue.Name][]queue.Lease{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range k.msgs {
		if k.working[i] {
			byQueue[m.Queue] = append(byQueue[m.Queue], queue.Lease{Receipt: m.Receipt, For: Lease})
		}
	}
	k.round = make(chan struct{})
	return byQueue
}

// renew makes the renewal that begin has opened, and ends it.
func (k *keeper) renew(ctx context.Context, byQueue map[queue.Name][]queue.Lease) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		close(k.round)
		k.round = nil
	}()
	until := time.Now().Add(engine.RenewEvery / 2)
	if !k.end.IsZero() && k.end.Before(until) {
		until = k.end
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for q, leases := range byQueue {
		for _, err := range k.w.Queue.Extend(ctx, q, leases) {
			if err != nil {
				k.w.Log.Warn("lease of a message not renewed", "queue", string(q), "error", err)
			}
		}
	}
}
