package eventsource

import (
	"errors"
	"fmt"
	"time"
)

// Limits AWS sets.
const (
	maxBatchSize   = 10_000
	maxWindow      = 300 * time.Second
	minConcurrency = 2
	maxConcurrency = 1000
	maxEventBytes  = 6 << 20 // of one invocation's event
	receiveMax     = 10      // messages per receive
	maxPollWait    = 20 * time.Second
)

// Mapping says which queue feeds which function, and how. The fields are those of CreateEventSourceMapping.
type Mapping struct {
	Function string // name of the function
	QueueURL string
	QueueARN string // told to the function in each record
	Region   string // likewise

	// BatchSize is the most messages per invocation, 1 to 10,000. Over 10 it needs a Window of at least 1s.
	BatchSize int

	// Window is how long a batch may wait to become full, counted from its first message, 0 to 300s in whole seconds. With
	// 0 a batch is what one receive gave.
	Window time.Duration

	// MaximumConcurrency bounds the invocations at once, 2 to 1000. 0 leaves it at AWS's own 1250.
	MaximumConcurrency int

	// ReportBatchItemFailures makes the loop read the function's reply. Without it a reply counts as success of all.
	ReportBatchItemFailures bool

	// EventCount publishes the event counts, as MetricsConfig does on AWS: Stats.Published counts only while it is set.
	EventCount bool
}

// Tuning holds what AWS decides and does not let anyone configure. Start from DefaultTuning.
type Tuning struct {
	// Pollers is how many workers a Source starts with, if MaximumConcurrency allows.
	Pollers int
	// QuietPollers is how many stay after three empty polls in a row, when MaximumConcurrency is not set.
	QuietPollers int
	// PollWait is how long a receive waits for a message, 0 to 20s in whole seconds.
	PollWait time.Duration
	// GrowEvery is the least time between two added workers.
	GrowEvery time.Duration
	// DrainTimeout bounds how long Source.Run, after its context has ended, and Mappings.Close wait for running invocations;
	// then they are abandoned and their messages come back.
	DrainTimeout time.Duration
}

// DefaultTuning returns what AWS documents: 5 pollers, 2 when quiet, 20s polls, 300 more concurrent invocations a minute.
// Only the drain timeout, 10s, is this package's own.
func DefaultTuning() Tuning {
	return Tuning{Pollers: 5, QuietPollers: 2, PollWait: 20 * time.Second, GrowEvery: 200 * time.Millisecond, DrainTimeout: 10 * time.Second}
}

// faults collects what is wrong with a value.
type faults []error

func (f *faults) require(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

func (f *faults) err() error {
	if err := errors.Join(*f...); err != nil {
		return fmt.Errorf("eventsource: %w", err)
	}
	return nil
}

// check reports every fault of the mapping.
func (m Mapping) check() error {
	var f faults
	f.require(m.Function != "" && m.QueueURL != "" && m.QueueARN != "" && m.Region != "", "function, queue URL, queue ARN and region are required")
	f.require(m.BatchSize >= 1 && m.BatchSize <= maxBatchSize, "batch size %d is not within 1 and %d", m.BatchSize, maxBatchSize)
	f.require(m.BatchSize <= receiveMax || m.Window >= time.Second, "batch size %d needs a window of at least 1s", m.BatchSize)
	f.require(m.Window >= 0 && m.Window <= maxWindow && m.Window%time.Second == 0, "window %v is not whole seconds within 0 and %v", m.Window, maxWindow)
	f.require(m.MaximumConcurrency == 0 || m.MaximumConcurrency >= minConcurrency && m.MaximumConcurrency <= maxConcurrency,
		"maximum concurrency %d is not within %d and %d", m.MaximumConcurrency, minConcurrency, maxConcurrency)
	return f.err()
}

// check reports every fault of the tuning.
func (t Tuning) check() error {
	var f faults
	f.require(t.Pollers >= 1 && t.QuietPollers >= 1, "pollers %d and quiet pollers %d must be at least 1", t.Pollers, t.QuietPollers)
	f.require(t.PollWait >= 0 && t.PollWait <= maxPollWait && t.PollWait%time.Second == 0, "poll wait %v is not whole seconds within 0 and %v", t.PollWait, maxPollWait)
	f.require(t.GrowEvery >= 0 && t.DrainTimeout >= 0, "grow interval and drain timeout must not be negative")
	return f.err()
}

// ceiling is the most workers.
func (m Mapping) ceiling() int {
	if m.MaximumConcurrency == 0 {
		return concurrencyCap
	}
	return m.MaximumConcurrency
}
