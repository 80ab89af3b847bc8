package eventsource

// EventCounts are the metrics that AWS publishes of a mapping when its MetricsConfig asks for EventCount. They count
// messages, not batches.
type EventCounts struct {
	// Polled messages were received from the queue. A message that comes back counts again.
	Polled int64
	// Invoked messages were in an event that the function was invoked with. Each try counts, throttled ones too.
	Invoked int64
	// FailedInvoke messages were in an invocation that was throttled, could not be made or failed as a whole, or were
	// listed by the function as failed.
	FailedInvoke int64
	// Deleted messages were dealt with and taken out of the queue.
	Deleted int64
	// FilteredOut messages did not match the mapping's filters. There are no filters here, so it stays 0.
	FilteredOut int64
}

// Stats counts what a Source has done since New.
type Stats struct {
	EventCounts // always counted

	// Published is the same as AWS would publish it: counted only while Mapping.EventCount is set.
	Published EventCounts

	Polls      int64 // receives that were answered
	EmptyPolls int64 // of these, without a message; AWS bills them
	PollErrors int64 // receives that failed
	Invokes    int64 // batches given to the function, tries after a throttle included
	Throttles  int64 // of these, refused for lack of concurrency
	Failures   int64 // batches that failed as a whole
	Kept       int64 // messages left in the queue

	MostReceives int // of a message, as SQS told with it

	Workers         int // now
	Concurrency     int // invocations now
	PeakConcurrency int // most invocations at once
}

// Stats returns the counters.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Workers, stats.Concurrency = s.workers, s.running
	return stats
}

// tally changes the counters.
func (s *Source) tally(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// count changes the event counts.
func (s *Source) count(change func(*EventCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats.EventCounts)
	if s.mapping.EventCount {
		change(&s.stats.Published)
	}
}
