// Package pubsub keeps the connection of one round of subscriptions for the next. A Lambda function's process is
// frozen between its invocations, so that subscriptions end with each of them; dialling anew would cost every
// one three round trips.
package pubsub

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// TrustedFor is how long a connection without subscriptions is kept: the process may have been frozen since, and the
// server may have given it up.
const TrustedFor = 30 * time.Second

// Spare holds at most one connection that has no subscription left. It is safe for concurrent use; the zero
// value is empty.
type Spare struct {
	mu    sync.Mutex    // guards all below
	sub   *redis.PubSub // nil: none
	since time.Time     // on the wall clock, which goes on while a process is frozen
}

// Take returns the kept connection, or a new one of client's, which dials at its first subscription. Whoever takes
// it closes it or gives it back by [Spare.Keep].
func (s *Spare) Take(ctx context.Context, client redis.UniversalClient) *redis.PubSub {
	s.mu.Lock()
	sub, since := s.sub, s.since
	s.sub = nil
	s.mu.Unlock()
	if sub != nil && time.Now().Round(0).Sub(since) <= TrustedFor {
		return sub
	}
	drop(sub)
	return client.Subscribe(ctx)
}

// Keep puts a connection aside whose server has confirmed that no subscription is left.
func (s *Spare) Keep(sub *redis.PubSub) {
	s.mu.Lock()
	extra := s.sub
	s.sub, s.since = sub, time.Now().Round(0)
	s.mu.Unlock()
	drop(extra)
}

// Close drops what is kept.
func (s *Spare) Close() error {
	s.mu.Lock()
	sub := s.sub
	s.sub = nil
	s.mu.Unlock()
	if sub == nil {
		return nil
	}
	return sub.Close()
}

func drop(sub *redis.PubSub) {
	if sub != nil {
		_ = sub.Close() // nothing is left to be told
	}
}
