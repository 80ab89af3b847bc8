package worker

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	// copies is how often a request's body stands in memory at once at most: in the message, cut out of it, as its hash
	// is taken in another order, and on its way to the provider.
	copies = 4
	// replyBytes is what is kept for a reply, whose size nobody knows before it comes. Nearly all are below; for the
	// rest there is the memory that the bodies are not given.
	replyBytes = 1 << 20
	// noRoom is the reason of a release for want of memory.
	noRoom = "no_memory"
)

// weight is what a message takes in memory while it runs. Its offloaded body is counted before it is fetched.
func weight(body []byte, ref *llmq.Ref) int64 {
	n := int64(len(body))
	if ref != nil {
		n += ref.Bytes
	}
	return copies*n + replyBytes
}

// until is how long a message waits for room: as long as another process could still run it, or this one can.
func until(deadline, limit time.Time) time.Time {
	if time.Now().Before(deadline) && (limit.IsZero() || deadline.Before(limit)) {
		return deadline
	}
	return limit
}

// room bounds how many bytes are in memory at once. Who comes first enters first, so that no large message is passed
// by for ever; one that is larger than all the room enters alone.
type room struct {
	size int64
	free *semaphore.Weighted // nil is no bound
}

// newRoom makes one of so many bytes; 0 is no bound.
func newRoom(size int64) room {
	if size <= 0 {
		return room{}
	}
	return room{size, semaphore.NewWeighted(size)}
}

// enter waits for room for so many bytes, not longer than until; zero is no limit. Where there is room, leave gives it back.
func (r room) enter(ctx context.Context, bytes int64, until time.Time) (leave func(), ok bool) {
	if r.free == nil {
		return func() {}, true
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	bytes = min(bytes, r.size)
	if r.free.Acquire(ctx, bytes) != nil {
		return nil, false // ctx has ended
	}
	return func() { r.free.Release(bytes) }, true
}
