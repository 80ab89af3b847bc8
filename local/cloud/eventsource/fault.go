package eventsource

import "time"

// Fault makes a Source misbehave, for tests of what depends on it. The zero value is no fault.
type Fault struct {
	// Hang stops polling; invocations that run go on. Messages stay in the queue, visible.
	Hang bool
	// Delay puts off each invocation, with its messages in hand and their visibility timeout running.
	Delay time.Duration
	// Refuse has every invocation refused as for lack of concurrency, without the function being asked.
	Refuse bool
}

// SetFault makes a fault hold from now on, until the next call. Polls under way end first: when they bring messages, those
// are delivered.
func (s *Source) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
	s.changedLocked()
	if f.Hang {
		s.endPollsLocked()
	}
}

func (s *Source) currentFault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}
