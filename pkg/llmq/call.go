package llmq

import "time"

// State says where a call stands, for those who ask by its id.
type State string

// The states. A call goes from queued to running and back as often as it is handed back, and ends in one of the others.
const (
	StateQueued    State = "queued"    // it waits: for a worker, a slot, or its next try
	StateRunning   State = "running"   // a worker has it
	StateDone      State = "done"      // there is a reply
	StateFailed    State = "failed"    // there is an error
	StateCancelled State = "cancelled" // nothing but that can come of it any more
	StateExpired   State = "expired"   // its deadline passed before there was an outcome
	StateDead      State = "dead"      // it failed, and its message lies in the dead-letter queue: an operator may have it run again
)

// States lists every state, in the order of a call's life.
func States() []State {
	return []State{StateQueued, StateRunning, StateDone, StateFailed, StateCancelled, StateExpired, StateDead}
}

// Over reports whether the call has ended.
func (s State) Over() bool { return s != StateQueued && s != StateRunning }

// Call is what is known of a call by its id.
type Call struct {
	ID       string
	State    State
	Created  time.Time      // when it was submitted; zero: it came over a queue
	Deadline time.Time      // zero: likewise
	Attempts int            // begun at providers, as far as it was noted: a running one tells every 10 s
	Next     time.Time      // queued: it is not tried again before; zero where it may be at once
	Reply    *Reply         // done
	Eta      *time.Duration // how long it was expected to wait for its start, as told by its submission; nil where nobody knows
	Err      *Error         // over, and not done
}
