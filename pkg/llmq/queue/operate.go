package queue

import (
	"context"
	"errors"
	"time"
)

// Why an event source was not changed. Both pass; the next minute's try may do.
var (
	// ErrBusy means that another change of the source is under way.
	ErrBusy = errors.New("another change of the event source is under way")
	// ErrThrottled means that the account has asked for too much of late.
	ErrThrottled = errors.New("the account's requests about event sources are throttled")
	// ErrNoSource means that the source is gone: a deploy has replaced it.
	ErrNoSource = errors.New("the event source is gone")
)

// Fetch says how messages are received.
type Fetch struct {
	Max  int           // messages at most, 1 to 10
	Hide time.Duration // for how long no other receive gets them, 0 to 12 h; rounded up to whole seconds
	Wait time.Duration // for how long to wait for the first, 0 to 20 s, whole seconds
}

// Operator is what operators do with queues. Workers and callers have no right to it, nor a
// use for it. Implementations are safe for concurrent use.
type Operator interface {
	BatchSender
	// Receive hands out messages that are visible, none when Wait is over without one.
	Receive(ctx context.Context, q Name, f Fetch) ([]Message, error)
	// Delete removes received messages. Result i belongs to receipt i and is nil when it is gone.
	Delete(ctx context.Context, q Name, receipts []string) []error
	// Purge begins to remove every message, also those that workers hold. A queue that was purged in the
	// last minute is [llmq.CodeRateLimited].
	Purge(ctx context.Context, q Name) error
}

// SourceState is where an event source is in its life. Only a steady one can be changed.
type SourceState string

// The states of an event source.
const (
	SourceCreating  SourceState = "Creating"
	SourceEnabling  SourceState = "Enabling"
	SourceEnabled   SourceState = "Enabled" // steady
	SourceUpdating  SourceState = "Updating"
	SourceDisabling SourceState = "Disabling"
	SourceDisabled  SourceState = "Disabled" // steady
	SourceDeleting  SourceState = "Deleting"
)

// Paused reports whether the source hands out nothing, or soon won't.
func (s SourceState) Paused() bool { return s == SourceDisabling || s == SourceDisabled }

// Source is what feeds a queue's messages to its worker.
type Source struct {
	ID             string
	Queue          Name
	State          SourceState
	MaxConcurrency int       // invocations at once; 0 is no bound
	BatchSize      int       // messages that an invocation gets at most
	Changed        time.Time // when it was last changed, by whomever
}

// Sources are the event sources of worker functions. A change is asked for, not made: the
// answer tells the state on the way there, which takes seconds to minutes, and a second change
// meanwhile is [ErrBusy]. Implementations are safe for concurrent use.
type Sources interface {
	// List tells the sources of a function.
	List(ctx context.Context, function string) ([]Source, error)
	// SetMaxConcurrency asks for a bound of at least 2.
	SetMaxConcurrency(ctx context.Context, id string, most int) (Source, error)
	// SetEnabled asks for a source to run or to stop.
	SetEnabled(ctx context.Context, id string, enabled bool) (Source, error)
}

// Attributes that say why a message is a dead letter. Workers write them.
const (
	AttrReason   = "llmq_reason"   // an error code
	AttrError    = "llmq_error"    // the error's message
	AttrTenant   = "llmq_tenant"   // whose it is, where its sender told; see [Senders]
	AttrAttempts = "llmq_attempts" // made at providers; left out where none was
	AttrClass    = "llmq_class"    // of the last attempt that failed: throttle, retryable, timeout, target_fatal; left out where none did
)

// TellsOfDeath reports whether an attribute is one of these. A message that is sent again has none.
func TellsOfDeath(name string) bool {
	switch name {
	case AttrReason, AttrError, AttrTenant, AttrAttempts, AttrClass:
		return true
	}
	return false
}

// Shape is how a queue is made.
type Shape struct {
	Visibility  time.Duration // of a message that was received: whole seconds, up to 12 h
	MaxReceives int           // of a message, before the queue itself makes it a dead letter: 1 to 1000
	Retention   time.Duration // of a message: whole seconds, 60 s to 14 days. A dead letter has 14 days
}

// Creator makes queues where no infrastructure code does. Implementations are safe for concurrent use.
type Creator interface {
	// Create makes a queue with its dead-letter queue. One that there is stays as it is, whatever its shape, and made is false.
	Create(ctx context.Context, q Name, s Shape) (made bool, err error)
}
