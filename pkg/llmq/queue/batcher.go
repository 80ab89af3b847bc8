package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// batchMessages is how many a request carries on SQS.
const batchMessages = 10

// Batcher is a Queue whose sends wait a little for each other and share requests: what
// costs one request each would cost a tenth (FEATURES B8). It is for programs that run on; in a
// function that is frozen when its handler returns there is nobody to wait for.
//
// It is safe for concurrent use.
type Batcher struct {
	BatchSender
	window time.Duration
	bytes  int

	mu      sync.Mutex
	open    map[Name]*batch // those that still take messages
	closed  bool
	sending sync.WaitGroup
}

// batch is messages of one queue that will be sent together.
type batch struct {
	ms    []Outgoing
	outs  []chan error // each of capacity 1
	size  int          // bytes
	timer *time.Timer
}

// Batched makes sends through q wait up to window for others. A batch goes before that once it has ten messages or so
// many bytes together. Close ends it; q stays open.
func Batched(q BatchSender, window time.Duration, bytes int) *Batcher {
	return &Batcher{BatchSender: q, window: window, bytes: bytes, open: map[Name]*batch{}}
}

// ErrNotSent is the cause of a send's error where the message is certainly not on the queue.
var ErrNotSent = errors.New("the message was not sent")

// Send implements Queue. Where the caller's context ends while the batch still waits,
// the error's cause is [ErrNotSent]; later nobody knows.
func (b *Batcher) Send(ctx context.Context, q Name, m Outgoing) error {
	out := make(chan error, 1)
	if ctx.Err() != nil || !b.join(q, m, out) { //nolint:contextcheck // the request belongs to no caller
		return b.BatchSender.Send(ctx, q, m)
	}
	select {
	case err := <-out:
		return err
	case <-ctx.Done():
	}
	if b.leave(q, out) {
		return llmq.Errorf(llmq.CodeQueueUnavailable, "the call ended before its message was sent").Because(errors.Join(ErrNotSent, context.Cause(ctx)))
	}
	select {
	case err := <-out:
		return err
	default:
		return llmq.Errorf(llmq.CodeQueueUnavailable, "the wait for the queue's answer ended").Because(context.Cause(ctx))
	}
}

// join adds a message to its queue's batch. It returns false where there is none any more.
func (b *Batcher) join(q Name, m Outgoing, out chan error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.window <= 0 {
		return false
	}
	if open := b.open[q]; open != nil && open.size+m.Size() > b.bytes {
		b.flush(q, open)
	}
	open := b.open[q]
	if open == nil {
		open = &batch{}
		open.timer = time.AfterFunc(b.window, func() { b.expire(q, open) })
		b.open[q] = open
	}
	open.ms, open.outs, open.size = append(open.ms, m), append(open.outs, out), open.size+m.Size()
	if len(open.ms) == batchMessages {
		b.flush(q, open)
	}
	return true
}

// leave takes a message out of a batch that is not on its way yet.
func (b *Batcher) leave(q Name, out chan error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.open[q]
	if open == nil {
		return false
	}
	i := slices.Index(open.outs, out)
	if i < 0 {
		return false
	}
	open.size -= open.ms[i].Size()
	open.ms, open.outs = slices.Delete(open.ms, i, i+1), slices.Delete(open.outs, i, i+1)
	return true
}

func (b *Batcher) expire(q Name, due *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[q] == due {
		b.flush(q, due)
	}
}

// flush sends a batch; the lock is held. The request belongs to no caller: the first to
// go must not take the others' send with it. The queue bounds its time.
func (b *Batcher) flush(q Name, due *batch) {
	delete(b.open, q)
	due.timer.Stop()
	if len(due.ms) == 0 {
		return
	}
	b.sending.Go(func() {
		errs := b.SendAll(context.Background(), q, due.ms)
		for i, out := range due.outs {
			out <- errs[i]
		}
	})
}

// Close sends what waits and returns when all is told. Later sends go straight through.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	for q, open := range b.open {
		b.flush(q, open)
	}
	b.mu.Unlock()
	b.sending.Wait()
}
