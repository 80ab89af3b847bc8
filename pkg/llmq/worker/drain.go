package worker

import (
	"context"
	"sync"
	"time"
)

// draining is the reason of a release because the process is to end.
const draining = "draining"

// drain is a worker's way to its end: first nothing more begins, then what still runs is cut.
type drain struct {
	within time.Duration
	begin  func() // idempotent
	begun  chan struct{}
}

func newDrain(within time.Duration) drain {
	begun := make(chan struct{})
	return drain{within, sync.OnceFunc(func() { close(begun) }), begun}
}

// Drain tells the worker that its process is to end. From now on it begins nothing: what waits, for memory, a slot or its
// next try, is handed back, and what runs may come to its end within Config.Drain, or within its invocation's time, before
// it is cut and handed back as well (FEATURES E11). The batches' Handle calls then return. Drain itself does not
// wait, and may be called more than once.
func (w *Worker) Drain() { w.drain.begin() }

func (d drain) hasBegun() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// watch gives a batch its part of the drain: waiting is a context for what has not begun, running for what has. end is to be
// called when nothing of the batch is left.
func (d drain) watch(ctx context.Context) (running, waiting context.Context, end func()) {
	running, cut := context.WithCancel(ctx)
	waiting, stop := context.WithCancel(running)
	if d.hasBegun() {
		stop() // before anything begins
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-running.Done():
			return
		case <-d.begun:
		}
		stop()
		timer := time.NewTimer(d.within)
		defer timer.Stop()
		select {
		case <-running.Done():
		case <-timer.C:
			cut()
		}
	})
	return running, waiting, func() { cut(); stop(); wg.Wait() }
}

// either ends with a or with b.
func either(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a)
	unwatch := context.AfterFunc(b, cancel)
	return ctx, func() { unwatch(); cancel() }
}
