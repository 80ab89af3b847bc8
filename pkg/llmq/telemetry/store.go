package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// lostAfter is how many calls in a row must have failed before the state store counts as
// lost: one or two may be a connection that died, or a failover of one node.
const lostAfter = 3

// Store watches the state store by the calls that are made of it anyway, and says once when it is
// lost and once when it is back. It is safe for concurrent use.
type Store struct {
	function string
	rec      *Recorder
	log      *slog.Logger

	mu       sync.Mutex // guards all below; times are on the wall clock, since a frozen process's other one stands still
	failures int        // in a row
	since    time.Time  // when the first of them began
	answered time.Time  // when the store last answered
	back     time.Time  // when it last answered after a failure; zero where none was
	causes   map[string]int
}

// NewStore watches for the process of that name.
func NewStore(function string, rec *Recorder, log *slog.Logger) *Store {
	return &Store{function: function, rec: rec, log: log}
}

// Failed takes down a call that got no answer, or that of a server which can't serve. A call that
// had begun before the store last answered tells nothing new, and only counts as an error.
func (s *Store) Failed(began time.Time, cause string) {
	s.rec.Count(StoreErrors, Labels{Function: s.function, Cause: cause}, 1)
	failures, since := s.fail(began.Round(0), cause)
	if failures >= lostAfter {
		s.rec.Set(StoreDown, Labels{Function: s.function}, 1)
	}
	if failures == lostAfter {
		s.log.Warn("state_store_lost", "cause", cause, "failing_ms", time.Now().Round(0).Sub(since).Milliseconds())
	}
}

// fail returns how many calls in a row have failed, and since when; 0 where this one tells nothing.
func (s *Store) fail(began time.Time, cause string) (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.answered) {
		return 0, time.Time{}
	}
	if s.failures == 0 {
		s.since, s.causes = began, map[string]int{}
	}
	s.failures++
	s.causes[cause]++
	return s.failures, s.since
}

// Answered takes down that the store answered.
func (s *Store) Answered() {
	now := time.Now().Round(0)
	s.mu.Lock()
	failures, since, causes := s.failures, s.since, s.causes
	s.failures, s.causes, s.answered = 0, nil, now
	if failures > 0 {
		s.back = now
	}
	s.mu.Unlock()
	if failures < lostAfter {
		return
	}
	s.rec.Set(StoreDown, Labels{Function: s.function}, 0)
	s.log.Info("state_store_back", "lost_ms", now.Sub(since).Milliseconds(), "failed_calls", failures, "causes", causes)
}

// MixedUp takes down that the answer to one request's question was about another's. Each such case is an error in the log: it must
// never be.
func (s *Store) MixedUp(requestID string) {
	s.rec.Count(StoreErrors, Labels{Function: s.function, Cause: "mixed_up"}, 1)
	s.log.Error("state_store_mixed_up", "request_id", requestID, "next_step", "nothing was shown to anybody; its connections are replaced. If it comes again, look for who writes to the state store")
}

// DownFor is for how long no call has been answered; 0 while the last one was, and for a nil Store.
func (s *Store) DownFor() time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return 0
	}
	return max(0, time.Now().Round(0).Sub(s.since))
}

// BackWithin reports whether the store began to answer again less than d ago, after calls that it did not
// answer. What it was asked for meanwhile may have taken effect late, for callers who had given up. It is
// false while the store is lost, and for a nil Store.
func (s *Store) BackWithin(d time.Duration) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures == 0 && !s.back.IsZero() && time.Now().Round(0).Sub(s.back) < d
}
