package results

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/pubsub"
)

// SweepEvery is when the result of a new waiter is read at the latest without its having
// been woken: pub/sub is at most once, and this bounds what a lost wake costs.
const SweepEvery = 5 * time.Second

// sweepMost is how far apart the sweeps of one waiter get, each pause twice the one before: a
// wake is rarely lost, and ten thousand that wait for minutes must not read all the while.
const sweepMost = 30 * time.Second

// confirmWithin bounds how long a subscription may take to stand: nothing has been sent by
// then, so that giving up costs a repeat and no more.
const confirmWithin = 2 * time.Second

// readMost bounds one read of many results.
const readMost = 1000

// Hub wakes waiters. One connection carries every subscription of the process, and
// one goroutine reads what became ready, all of it in one pipeline; both run only
// while somebody waits, since a Lambda's process is frozen between calls.
//
// A Hub is safe for concurrent use. The zero value is not usable.
type Hub struct {
	store *Store
	spare pubsub.Spare // between sessions

	mu      sync.Mutex           // guards all below
	waiting map[string][]*Waiter // by channel
	due     []*Waiter            // to be read next; some may be closed by now
	session *session             // nil while nobody waits
}

// NewHub is a hub over a store's connection.
func NewHub(s *Store) *Hub { return &Hub{store: s, waiting: map[string][]*Waiter{}} }

// Waiter is one caller waiting for one result.
type Waiter struct {
	hub     *Hub
	channel string
	key     string
	ready   chan struct{} // closed once the subscription stands
	got     chan []byte   // capacity 1; the stored result
	poke    chan struct{} // capacity 1: there may be something to read. Nil but of a [Follower], who reads by itself
	due     bool          // is in hub.due; guarded by hub.mu
	sweep   time.Time     // read by the first sweep from then on; guarded by hub.mu
	pause   time.Duration // until the sweep after that; guarded by hub.mu
	standby bool          // ready is closed; guarded by hub.mu
	over    bool          // has its result or is closed; guarded by hub.mu
}

// Subscribe registers a waiter for r and returns once its wake can't be missed, or after
// two seconds an error, [llmq.CodeQueueUnavailable]. The caller must call [Waiter.Close].
func (h *Hub) Subscribe(ctx context.Context, r llmq.Request) (*Waiter, error) {
	k := h.store.keys.Call(r.Tenant, r.RID())
	return h.wait(ctx, &Waiter{hub: h, channel: k.Wake, key: k.Result, ready: make(chan struct{}), got: make(chan []byte, 1)})
}

// wait registers w and returns it once its subscription stands.
func (h *Hub) wait(ctx context.Context, w *Waiter) (*Waiter, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	s, isFirst := h.add(w) //nolint:contextcheck // a session is not one waiter's: it ends with the last
	if isFirst {
		if err := s.subscribe(ctx, w.channel); err != nil {
			w.Close() //nolint:contextcheck // a session is not one waiter's: it ends with the last
			return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the state store can't be reached").Because(err)
		}
	}
	select {
	case <-w.ready:
		return w, nil
	case <-ctx.Done():
		w.Close() //nolint:contextcheck // a session is not one waiter's: it ends with the last
		return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the state store did not answer in time").Because(ctx.Err())
	}
}

// add registers w and starts the session for the first waiter. It reports whether w's
// channel has yet to be subscribed.
func (h *Hub) add(w *Waiter) (*session, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		h.session = newSession(h)
	}
	others := h.waiting[w.channel]
	h.waiting[w.channel] = append(others, w)
	if len(others) == 0 {
		return h.session, true
	}
	if others[0].standby {
		w.standby = true
		close(w.ready)
	}
	return h.session, false
}

// Result waits for the stored result.
func (w *Waiter) Result(ctx context.Context) ([]byte, error) {
	select {
	case stored := <-w.got:
		return stored, nil
	case <-ctx.Done():
	}
	select {
	case stored := <-w.got: // both were ready: a paid result is worth more than the clock
		return stored, nil
	default:
		return nil, ctx.Err()
	}
}

// Close ends the wait, and is idempotent. The last waiter's Close ends the session and returns only when
// its goroutines have.
func (w *Waiter) Close() {
	s, left := w.hub.remove(w)
	switch left {
	case noneAtAll:
		s.stop(w.channel)
	case noneHere:
		s.unsubscribe(w.channel)
	default:
	}
}

// Close drops the connection that is kept for the next waiter. No waiter may be left.
func (h *Hub) Close() error { return h.spare.Close() }

type left int

const (
	others    left = iota // somebody else waits on the channel
	noneHere              // nobody waits on the channel
	noneAtAll             // nobody waits
)

func (h *Hub) remove(w *Waiter) (*session, left) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.session
	if !slices.Contains(h.waiting[w.channel], w) {
		return s, others // closed before
	}
	w.over = true
	h.waiting[w.channel] = slices.DeleteFunc(h.waiting[w.channel], func(o *Waiter) bool { return o == w })
	if len(h.waiting[w.channel]) > 0 {
		return s, others
	}
	delete(h.waiting, w.channel)
	if len(h.waiting) > 0 {
		return s, noneHere
	}
	h.session, h.due = nil, nil
	return s, noneAtAll
}

// setDue puts w down to be read. The caller holds h.mu.
func (h *Hub) setDue(w *Waiter) {
	if !w.due && !w.over {
		w.due = true
		h.due = append(h.due, w)
	}
}

// swept puts w down for a sweep where it is time for that. The caller holds h.mu.
func (h *Hub) swept(w *Waiter, now time.Time) {
	if now.Before(w.sweep) {
		return
	}
	h.setDue(w)
	w.pause = min(max(2*w.pause, SweepEvery), sweepMost)
	w.sweep = now.Add(w.pause)
}

// end reports whether w still waits, and makes it wait no more.
func (h *Hub) end(w *Waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := !w.over
	w.over = true
	return waits
}
