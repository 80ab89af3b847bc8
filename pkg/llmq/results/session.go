package results

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

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

func newSession(h *Hub) *session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{hub: h, sub: h.spare.Take(ctx, h.store.client), wake: make(chan struct{}, 1), quiet: make(chan struct{}), cancel: cancel}
	s.done.Go(func() { defer close(s.quiet); s.listen(ctx) })
	s.done.Go(func() { s.read(ctx) })
	return s
}

// subscribe asks twice: a kept connection may have died while the process was frozen, and
// the library, which notices at the first try, dials another for the second.
func (s *session) subscribe(ctx context.Context, channel string) error {
	err := s.sub.Subscribe(ctx, channel)
	if err != nil && ctx.Err() == nil {
		err = s.sub.Subscribe(ctx, channel)
	}
	return err
}

// unsubscribe drops a channel that nobody waits on. Somebody may have begun to
// meanwhile, perhaps in a session that took over the connection, and the two commands
// may have crossed: then it subscribes again, and the confirmation makes the newcomer
// look.
func (s *session) unsubscribe(channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	_ = s.sub.Unsubscribe(ctx, channel) // at worst a wake comes for nobody
	s.hub.mu.Lock()
	wanted := len(s.hub.waiting[channel]) > 0 && s.hub.session != nil && s.hub.session.sub == s.sub
	s.hub.mu.Unlock()
	if wanted {
		_ = s.subscribe(ctx, channel) // the sweep reads what a failed one misses
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
		_ = s.sub.Close() // nothing is left to be told
	}
	s.done.Wait()
	if clean {
		s.hub.spare.Keep(s.sub)
	}
}

// listen turns the server's messages into due waiters, and sweeps between them.
func (s *session) listen(ctx context.Context) {
	swept, silent := time.Now(), false
	for ctx.Err() == nil {
		if time.Since(swept) >= SweepEvery {
			swept = time.Now()
			s.markAll(swept)
		}
		msg, err := s.receive(ctx, silent)
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
		timedOut := err != nil && isTimeout(err)
		silent = timedOut && !silent
		if err == nil || timedOut {
			continue
		}
		pause(ctx, 100*time.Millisecond) // the connection is down; the library dials again on the next receive
	}
}

// receive waits for the server's next word for [SweepEvery]. After a silence of that
// length it asks for a sign of life, and takes a second silence for a dead connection: a
// peer that vanished says nothing, and no new subscription would ever stand on it.
func (s *session) receive(ctx context.Context, silent bool) (any, error) {
	if !silent {
		return s.sub.ReceiveTimeout(ctx, SweepEvery)
	}
	ctx, cancel := context.WithTimeout(ctx, SweepEvery)
	defer cancel()
	_ = s.sub.Ping(ctx)       // what the receive says counts
	return s.sub.Receive(ctx) // bounded by ctx alone, and then the library gives the connection up
}

// mark makes a channel's waiters due. A confirmed subscription lets those that wait for
// it go; they look by themselves.
func (s *session) mark(channel string, subscribed bool) {
	s.hub.mu.Lock()
	for _, w := range s.hub.waiting[channel] {
		if subscribed && !w.standby {
			w.standby = true
			close(w.ready)
			continue
		}
		s.hub.setDue(w)
		w.sweep, w.pause = time.Time{}, 0 // should it find nothing, it looks again soon
	}
	s.hub.mu.Unlock()
	s.nudge()
}

// markAll makes those due whose turn it is to be read without a wake.
func (s *session) markAll(now time.Time) {
	s.hub.mu.Lock()
	for _, ws := range s.hub.waiting {
		for _, w := range ws {
			if w.standby {
				s.hub.swept(w, now)
			}
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

// When many requests end at once, their wakes take some time to be heard. Where several became due
// during a read, the next waits while more do, in steps of gatherStep and for gatherMost
// at most: so a thousand are read in two pipelines. A lone waiter never waits.
const (
	gatherStep = 3 * time.Millisecond
	gatherMost = 15 * time.Millisecond
)

func (s *session) gather(ctx context.Context) {
	before := s.countDue()
	for waited := time.Duration(0); before > 1 && before < readMost && waited < gatherMost; waited += gatherStep {
		pause(ctx, gatherStep)
		now := s.countDue()
		if now == before {
			return
		}
		before = now
	}
}

func (s *session) countDue() int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return len(s.hub.due)
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
			if s.deliver(ctx, due) {
				s.gather(ctx)
			} else {
				pause(ctx, 100*time.Millisecond)
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
}

func (s *session) takeDue() []*Waiter {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s {
		return nil // the next session's are not ours to read
	}
	var due []*Waiter
	for len(h.due) > 0 && len(due) < readMost {
		w := h.due[0]
		h.due = h.due[1:]
		w.due = false
		switch {
		case w.over:
		case w.poke != nil:
			select {
			case w.poke <- struct{}{}:
			default:
			}
		default:
			due = append(due, w)
		}
	}
	if len(h.due) == 0 {
		h.due = nil // lets go of what the slice has passed
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
	_, _ = pipe.Exec(ctx) // it repeats one command's error; each is looked at below
	ok := true
	for i, w := range due {
		stored, err := cmds[i].Bytes()
		switch {
		case err == nil:
			if s.hub.end(w) {
				w.got <- stored // has room: it is sent to once
			}
		case !errors.Is(err, redis.Nil):
			ok = false
			s.again(w)
		}
	}
	return ok
}

func (s *session) again(w *Waiter) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.session == s {
		s.hub.setDue(w)
	}
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
