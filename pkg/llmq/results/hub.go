package results

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// SweepEvery is how often results that somebody waits for are read without having
// been woken: pub/sub is at most once, and this bounds what a lost wake costs.
const SweepEvery = 5 * time.Second

// readMost bounds one read of many results.
const readMost = 1000

// Hub wakes waiters. One connection carries every subscription of the process, and
// one goroutine reads what became ready, all of it in one pipeline; both run only
// while somebody waits, since a Lambda's process is frozen between calls.
//
// A Hub is safe for concurrent use. The zero value is not usable.
type Hub struct {
	store *Store

	mu      sync.Mutex           // guards all below
	waiting map[string][]*Waiter // by channel
	session *session             // nil while nobody waits
	idle    *redis.PubSub        // a connection without subscriptions, kept for the next session
	since   time.Time            // when idle was put aside, on the wall clock: the process may have been frozen
}

// idleFor is how long an unused connection is trusted.
const idleFor = 30 * time.Second

// NewHub is a hub over a store's connection.
func NewHub(s *Store) *Hub { return &Hub{store: s, waiting: map[string][]*Waiter{}} }

// Waiter is one caller waiting for one result.
type Waiter struct {
	hub     *Hub
	channel string
	key     string
	ready   chan struct{} // closed once the subscription stands
	got     chan []byte   // capacity 1; the stored result
	due     bool          // to be read; guarded by hub.mu
	standby bool          // ready is closed; guarded by hub.mu
}

// Subscribe registers a waiter for r and returns once its wake can't be missed. The
// caller must call [Waiter.Close].
func (h *Hub) Subscribe(ctx context.Context, r llmq.Request) (*Waiter, error) {
	h.dropStale()
	k := h.store.keys.Call(r.Tenant, r.RID())
	w := &Waiter{hub: h, channel: k.Wake, key: k.Result, ready: make(chan struct{}), got: make(chan []byte, 1)}
	s, isFirst := h.add(w)
	if isFirst {
		if err := s.subscribe(ctx, w.channel); err != nil {
			w.Close()
			return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the state store can't be reached").Because(err)
		}
	}
	select {
	case <-w.ready:
		return w, nil
	case <-ctx.Done():
		w.Close()
		return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the state store did not answer in time").Because(ctx.Err())
	}
}

// add registers w and starts the session for the first waiter. It reports whether w's
// channel has yet to be subscribed.
func (h *Hub) add(w *Waiter) (*session, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		h.session = newSession(h, h.takeIdle())
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
		return nil, ctx.Err()
	}
}

// Close ends the wait. The last waiter's Close ends the session and returns only when
// its goroutines have.
func (w *Waiter) Close() {
	s, left := w.hub.remove(w)
	switch {
	case left == noneAtAll:
		s.stop(w.channel)
	case left == noneHere:
		s.unsubscribe(w.channel)
	}
}

// Close drops the connection that is kept for the next waiter. No waiter may be left.
func (h *Hub) Close() error {
	h.mu.Lock()
	idle := h.idle
	h.idle = nil
	h.mu.Unlock()
	if idle == nil {
		return nil
	}
	return idle.Close()
}

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
	h.waiting[w.channel] = slices.DeleteFunc(h.waiting[w.channel], func(o *Waiter) bool { return o == w })
	if len(h.waiting[w.channel]) > 0 {
		return s, others
	}
	delete(h.waiting, w.channel)
	if len(h.waiting) > 0 {
		return s, noneHere
	}
	h.session = nil
	return s, noneAtAll
}

// takeIdle hands over the kept connection. The caller holds h.mu.
func (h *Hub) takeIdle() *redis.PubSub {
	sub := h.idle
	h.idle = nil
	return sub
}

// dropStale closes a kept connection that has been idle for too long to be trusted
// after a freeze.
func (h *Hub) dropStale() {
	h.mu.Lock()
	var stale *redis.PubSub
	if h.idle != nil && time.Now().Round(0).Sub(h.since) > idleFor {
		stale = h.takeIdle()
	}
	h.mu.Unlock()
	if stale != nil {
		_ = stale.Close() //nolint:errcheck // nothing is left to be told
	}
}

func (h *Hub) keepIdle(sub *redis.PubSub) {
	h.mu.Lock()
	extra := h.idle
	h.idle, h.since = sub, time.Now().Round(0)
	h.mu.Unlock()
	if extra != nil {
		_ = extra.Close() //nolint:errcheck // nothing is left to be told
	}
}

// session is the life of the subscriptions and goroutines while somebody waits.
type session struct {
	hub    *Hub
	sub    *redis.PubSub
	wake   chan struct{} // capacity 1: something is due
	quiet  chan struct{} // closed by listen when it ends
	ending atomic.Bool   // listen ends at the next confirmation that no subscription is left
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newSession(h *Hub, sub *redis.PubSub) *session {
	ctx, cancel := context.WithCancel(context.Background())
	if sub == nil {
		sub = h.store.client.Subscribe(ctx)
	}
	s := &session{hub: h, sub: sub, wake: make(chan struct{}, 1), quiet: make(chan struct{}), cancel: cancel}
	s.done.Go(func() { defer close(s.quiet); s.listen(ctx) })
	s.done.Go(func() { s.read(ctx) })
	return s
}

func (s *session) subscribe(ctx context.Context, channel string) error {
	return s.sub.Subscribe(ctx, channel)
}

// unsubscribe drops a channel that nobody waits on. Somebody may have begun to
// meanwhile, and the two commands may have crossed: then it subscribes again, and the
// confirmation makes the newcomer look.
func (s *session) unsubscribe(channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	_ = s.sub.Unsubscribe(ctx, channel) //nolint:errcheck // at worst a wake comes for nobody
	s.hub.mu.Lock()
	wanted := len(s.hub.waiting[channel]) > 0 && s.hub.session == s
	s.hub.mu.Unlock()
	if wanted {
		_ = s.subscribe(ctx, channel) //nolint:errcheck // the sweep reads what a failed one misses
	}
}

// stopWithin bounds how long the end of a session waits for the server.
const stopWithin = 500 * time.Millisecond

// stop ends the session. The connection is kept where the server confirms that it has
// no subscription left, else it is closed.
func (s *session) stop(channel string) {
	s.ending.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	clean := s.sub.Unsubscribe(ctx, channel) == nil
	if clean {
		select {
		case <-s.quiet:
		case <-ctx.Done():
			clean = false
		}
	}
	s.cancel()
	if !clean {
		_ = s.sub.Close() //nolint:errcheck // nothing is left to be told
	}
	s.done.Wait()
	if clean {
		s.hub.keepIdle(s.sub)
	}
}

// listen turns the server's messages into due waiters.
func (s *session) listen(ctx context.Context) {
	swept := time.Now()
	for ctx.Err() == nil {
		if time.Since(swept) >= SweepEvery {
			swept = time.Now()
			s.markAll()
		}
		msg, err := s.sub.ReceiveTimeout(ctx, SweepEvery)
		if ctx.Err() != nil {
			return
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			// Also sent anew after the library has reconnected: a wake may have been missed.
			if m.Kind == "subscribe" {
				s.mark(m.Channel, true)
			}
			if m.Count == 0 && s.ending.Load() {
				return
			}
		case *redis.Message:
			s.mark(m.Channel, false)
		}
		if err == nil || isTimeout(err) {
			continue
		}
		pause(ctx, 100*time.Millisecond) // the connection is down; the library dials again on the next receive
	}
}

func (s *session) mark(channel string, subscribed bool) {
	s.hub.mu.Lock()
	for _, w := range s.hub.waiting[channel] {
		w.due = true
		if subscribed && !w.standby {
			w.standby = true
			w.due = false // its caller looks by itself after it has subscribed
			close(w.ready)
		}
	}
	s.hub.mu.Unlock()
	s.nudge()
}

func (s *session) markAll() {
	s.hub.mu.Lock()
	for _, ws := range s.hub.waiting {
		for _, w := range ws {
			w.due = w.standby
		}
	}
	s.hub.mu.Unlock()
	s.nudge()
}

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// read fetches what is due, everything that became due meanwhile in one go.
func (s *session) read(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for {
			due := s.takeDue()
			if len(due) == 0 {
				break
			}
			if !s.deliver(ctx, due) {
				pause(ctx, 100*time.Millisecond)
				if ctx.Err() != nil {
					return
				}
			}
		}
	}
}

func (s *session) takeDue() []*Waiter {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	var due []*Waiter
	for _, ws := range s.hub.waiting {
		for _, w := range ws {
			if w.due && len(due) < readMost {
				w.due = false
				due = append(due, w)
			}
		}
	}
	return due
}

// deliver reads many results in one pipeline. A read that failed is due again.
func (s *session) deliver(ctx context.Context, due []*Waiter) bool {
	pipe := s.hub.store.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(due))
	for i, w := range due {
		cmds[i] = pipe.Get(ctx, w.key)
	}
	_, _ = pipe.Exec(ctx) //nolint:errcheck // it repeats one command's error; each is looked at below
	ok := true
	for i, w := range due {
		stored, err := cmds[i].Bytes()
		switch {
		case err == nil:
			select {
			case w.got <- stored:
			default: // it has one already
			}
		case !errors.Is(err, redis.Nil):
			ok = false
			s.hub.mu.Lock()
			w.due = true
			s.hub.mu.Unlock()
		}
	}
	return ok
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
