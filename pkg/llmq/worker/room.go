package worker

import (
	"context"
	"slices"
	"sync"
	"time"

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
	size int64 // 0 is no bound

	mu      sync.Mutex // guards all below
	taken   int64
	waiting []*guest
}

// guest is who waits for room.
type guest struct {
	bytes int64
	in    chan struct{} // closed once there is room
}

// enter waits for room for so many bytes, not longer than until; zero is no limit. Where there is room, leave gives it back.
func (r *room) enter(ctx context.Context, bytes int64, until time.Time) (leave func(), ok bool) {
	if r.size <= 0 {
		return func() {}, true
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	g := &guest{min(bytes, r.size), make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, g)
	r.admit()
	r.mu.Unlock()
	select {
	case <-g.in:
	case <-ctx.Done():
		if r.goAway(g) {
			return nil, false
		}
	}
	return func() { r.give(g.bytes) }, true
}

// goAway takes back a wait. It returns false where room was given meanwhile.
func (r *room) goAway(g *guest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting, g)
	if i < 0 {
		return false
	}
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.admit() // whoever stood behind may be smaller
	return true
}

func (r *room) give(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= bytes
	r.admit()
}

// admit lets in whom there is room for; the lock is held.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken+r.waiting[0].bytes <= r.size {
		g := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.taken += g.bytes
		close(g.in)
	}
}
