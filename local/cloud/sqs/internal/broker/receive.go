package broker

import (
	"context"
	"time"
)

const maxReceive = 10

// Poll is one request for messages. A nil field takes the default: one message, and the queue's wait and visibility timeout.
type Poll struct {
	Max               *int // 1 to 10
	WaitSeconds       *int // 0 to 20
	VisibilitySeconds *int // 0 to 43,200; 0 leaves the messages visible
	Fate              Fate // Kept but under a test's fault
}

// Message is a message as a receive hands it out. The map and the bytes in it are shared with the queue and must not be changed.
type Message struct {
	Outgoing
	ID              string
	Handle          string // what Delete and ChangeVisibility ask for
	SenderID        string
	SourceARN       string // of the queue it is a dead letter of; "" for none
	SentAt          time.Time
	FirstReceivedAt time.Time
	Receives        int // this one included, by all queues

	key uint64 // of the handle
}

func (p Poll) check() error {
	if n := p.Max; n != nil && (*n < 1 || *n > maxReceive) {
		return invalidValue("MaxNumberOfMessages", *n, "Must be between 1 and 10, if provided.")
	}
	if n := p.WaitSeconds; n != nil && (*n < 0 || *n > MaxWait) {
		return invalidValue("WaitTimeSeconds", *n, "Must be >= 0 and <= 20, if provided.")
	}
	if n := p.VisibilitySeconds; n != nil && (*n < 0 || *n > MaxVisibility) {
		return invalidValue("VisibilityTimeout", *n, "Must be >= 0 and <= 43200, if provided.")
	}
	return nil
}

// Receive returns up to p.Max messages as soon as there is one, or none when the wait is over or the broker closes. While the queue
// has as many messages in flight as it may, a call that doesn't wait fails with OverLimit and one that waits goes on waiting.
//
// When ctx ends first, nothing is taken from the queue: whatever would have come to this poll goes to another. The error then is
// Unavailable, and nobody is left to read it.
func (b *Broker) Receive(ctx context.Context, name string, p Poll) ([]Message, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, callerLeft()
	}
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	if p.Fate == Lost {
		b.leave(q)
		return nil, nil
	}
	got := b.take(q, p, time.Now())
	wait := time.Duration(orDefault(p.WaitSeconds, q.settings.wait)) * time.Second
	if len(got) > 0 || wait == 0 {
		over := len(got) == 0 && q.full()
		b.leave(q)
		if over {
			return nil, Fail(OverLimit, "Too many messages in flight, limit is %d", q.max)
		}
		return withHandles(q, got), nil
	}
	w := q.join()
	b.running.Add(1)
	defer b.running.Done()
	b.leave(q)
	return b.await(ctx, q, w, p, wait)
}

// await waits until w is woken to find a message, or something ends the poll.
func (b *Broker) await(ctx context.Context, q *queue, w *waiter, p Poll, wait time.Duration) ([]Message, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for ended := false; ; {
		select {
		case <-w.wake:
		case <-over.C:
			ended = true // but look once more: the message may have come in the same instant
		case <-b.closing:
			return nil, nil
		case <-q.gone:
			return nil, noSuchQueue()
		case <-ctx.Done():
		}
		if got, done := b.retake(ctx, q, w, p, ended); done {
			if ctx.Err() != nil && len(got) == 0 {
				return nil, callerLeft()
			}
			return withHandles(q, got), nil
		}
	}
}

// withHandles gives messages their handles, which would take long under the lock.
func withHandles(q *queue, got []Message) []Message {
	for i := range got {
		got[i].Handle = handleOf(q, got[i].key, got[i].Receives)
	}
	return got
}

// retake looks for messages for a waiting poll, and tells whether the poll is done. A poll whose caller has left takes nothing, and
// leaving wakes the next poll in its place.
func (b *Broker) retake(ctx context.Context, q *queue, w *waiter, p Poll, ended bool) (got []Message, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || q.isGone() {
		return nil, ended
	}
	now := time.Now()
	q.refresh(now)
	w.woken = false
	left := ctx.Err() != nil
	if !left {
		got = b.take(q, p, now)
	}
	done = left || ended || len(got) > 0
	if done {
		q.quit(w)
	}
	q.settle()
	return got, done
}

// take receives what is ready, moving dead letters away. The messages still lack their handles.
func (b *Broker) take(q *queue, p Poll, now time.Time) []Message {
	most := orDefault(p.Max, 1)
	visibility := time.Duration(orDefault(p.VisibilitySeconds, q.settings.visibility)) * time.Second
	var (
		room  [maxReceive]*message // so that taken needs no memory of its own
		taken = room[:0]
	)
	for len(taken) < most && !q.full() {
		m := q.next()
		if m == nil {
			break
		}
		if b.deadLetter(q, m) {
			continue
		}
		m.receives++
		m.receivesHere++
		m.receivedAt = now
		if m.firstReceivedAt.IsZero() {
			m.firstReceivedAt = now
		}
		q.hide(m, inFlight, now.Add(visibility))
		taken = append(taken, m)
	}
	if len(taken) == 0 {
		return nil
	}
	got := make([]Message, 0, len(taken))
	for _, m := range taken {
		if visibility == 0 || p.Fate == Doubled { // only now, or this very call would receive it again
			q.show(m)
		}
		got = append(got, Message{
			Outgoing: m.Outgoing, ID: m.id, SenderID: m.senderID, SourceARN: m.sourceARN,
			SentAt: m.sentAt, FirstReceivedAt: m.firstReceivedAt, Receives: m.receives, key: m.key,
		})
	}
	return got
}

func callerLeft() error { return Fail(Unavailable, "The caller has left.") }

func orDefault(value *int, fallback int) int {
	if value == nil {
		return fallback
	}
	return *value
}
