package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// keeper keeps the messages of a batch hidden while they are worked on: their
// visibility is cut to a lease at once and renewed with the claims. What has come to its end by such a tick is
// deleted then, since a batch is as slow as its slowest message; a batch that ends before needs no
// request for that, for the function's reply deletes.
type keeper struct {
	w     *Worker
	ds    []*delivery
	end   time.Time // no request of the keeper's outlives it, since the process ends soon after; zero is no limit
	leave context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex    // guards all below
	state []state       // by delivery
	round chan struct{} // closed when the renewal under way has ended; nil between renewals
}

// state is what a tick has to do with a delivery.
type state int

const (
	working state = iota // renew its lease
	ended                // delete it
	deleted              // nothing more
	gone                 // nothing: it is not to be deleted, or can't be
)

func (w *Worker) keep(invocation context.Context, ds []*delivery) *keeper {
	ctx := context.WithoutCancel(invocation)
	k := &keeper{w: w, ds: ds, done: make(chan struct{}), state: make([]state, len(ds))}
	quit, leave := context.WithCancel(ctx)
	k.leave = leave
	if end, ok := invocation.Deadline(); ok {
		k.end = end.Add(-time.Second)
	}
	first := k.begin() // before anything is done, so that it has every message
	go func() {
		defer close(k.done)
		k.loop(ctx, quit, first)
	}()
	return k
}

// settle ends the renewals of a delivery and waits for one under way: if that came after a release, it
// would hide the message again.
func (k *keeper) settle(i int) {
	if round := k.forget(i, gone); round != nil {
		<-round
	}
}

// over ends the renewals of a delivery, whose message is to be deleted if it is acknowledged.
func (k *keeper) over(i int, acked bool) {
	if acked {
		k.forget(i, ended)
	} else {
		k.forget(i, gone)
	}
}

func (k *keeper) forget(i int, s state) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state[i] = s
	return k.round
}

// stop ends the ticks and waits for the renewal under way. A deletion under way is given up, for the reply does the same.
func (k *keeper) stop() {
	k.leave()
	<-k.done
}

// loop works until quit ends.
func (k *keeper) loop(ctx, quit context.Context, first map[queue.Name][]queue.Lease) {
	tick := time.NewTicker(engine.RenewEvery)
	defer tick.Stop()
	k.renew(ctx, first)
	for {
		select {
		case <-quit.Done():
			return
		case <-tick.C:
		}
		k.renew(ctx, k.begin())
		k.delete(quit, func(*delivery) bool { return true })
	}
}

// begin opens a renewal of what is still worked on.
func (k *keeper) begin() map[queue.Name][]queue.Lease {
	byQueue := map[queue.Name][]queue.Lease{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, d := range k.ds {
		if k.state[i] == working {
			byQueue[d.Queue] = append(byQueue[d.Queue], d.leases(Lease)...)
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
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	for q, leases := range byQueue {
		for _, err := range k.w.Queue.Extend(ctx, q, leases) {
			if err != nil {
				k.w.faulty(q, "lease")
				k.w.Log.Warn("lease of a message not renewed", "queue", string(q), "error", err)
			}
		}
	}
}

// delete removes those that have ended and are wanted. What fails is tried at the next tick, for which the
// last lease leaves time; what never succeeds is deleted by the function's reply.
func (k *keeper) delete(ctx context.Context, wanted func(*delivery) bool) {
	receipts, owners := map[queue.Name][]string{}, map[queue.Name][]int{}
	k.mu.Lock()
	for i, d := range k.ds {
		if k.state[i] == ended && wanted(d) {
			for _, r := range d.receipts {
				receipts[d.Queue], owners[d.Queue] = append(receipts[d.Queue], r), append(owners[d.Queue], i)
			}
		}
	}
	k.mu.Unlock()
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	for q, some := range receipts {
		k.told(ctx, q, owners[q], k.w.Queue.Delete(ctx, q, some))
	}
}

// told notes what became of deletions: errs[i] is that of a copy of delivery owners[i].
func (k *keeper) told(ctx context.Context, q queue.Name, owners []int, errs []error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range owners {
		k.state[i] = deleted
	}
	for j, err := range errs {
		i := owners[j]
		switch {
		case err == nil:
		case errors.Is(err, llmq.CodeQueueUnavailable):
			k.state[i] = ended
		case k.state[i] == deleted:
			k.state[i] = gone
		}
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // else the reply deletes it right now
			k.w.faulty(q, "delete")
			k.w.Log.Warn("finished message not deleted yet", "queue", string(q), "error", err)
		}
	}
}

// bounded is ctx for a request that must not take the next tick's time, nor any after the end.
func (k *keeper) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(engine.RenewEvery / 2)
	if !k.end.IsZero() && k.end.Before(until) {
		until = k.end
	}
	return context.WithDeadline(ctx, until)
}

// retire removes the offloaded bodies of what has come to its end, after the messages that name them: a message
// whose body is gone can't be run again (FEATURES B9). The function's reply would come too late for that, for it is the
// last that the process does. What can't be removed now goes by the bucket's lifecycle.
func (k *keeper) retire(ctx context.Context) {
	offloaded := func(d *delivery) bool { return d.body != "" }
	if !slices.ContainsFunc(k.ds, offloaded) {
		return
	}
	ctx, cancel := k.bounded(context.WithoutCancel(ctx))
	defer cancel()
	k.delete(ctx, offloaded)
	var wg sync.WaitGroup
	for i, d := range k.ds {
		if k.state[i] == deleted && offloaded(d) {
			wg.Go(func() {
				if err := k.w.Bodies.Delete(ctx, d.body); err != nil {
					k.w.Log.Warn("body of a finished request not removed", "message_id", d.ID, "error", err)
				}
			})
		}
	}
	wg.Wait()
}
