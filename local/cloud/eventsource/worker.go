package eventsource

import (
	"context"
	"time"
)

// Pauses, doubled from the first to the last.
const (
	pauseFirst = 100 * time.Millisecond
	pauseLast  = 10 * time.Second
)

// worker polls, invokes and settles until ctx ends or it is one too many. It counts as polling when it starts.
func (s *Source) worker(ctx, work context.Context, wait time.Duration) {
	sleep(ctx, wait)
	counted := true
	faults, empty, failed := 0, 0, 0 // in a row: receives in error, receives without message, failed invocations
	for {
		p := s.next(ctx, work, counted)
		if p == nil {
			return
		}
		messages, err := s.receive(p, s.tuning.PollWait, min(p.mapping.BatchSize, receiveMax))
		counted = err != nil
		if err != nil {
			if !p.ended {
				faults++
				sleep(ctx, pause(faults))
			}
			continue
		}
		faults = 0
		if empty++; len(messages) > 0 {
			empty = 0
		}
		if s.afterPoll(ctx, work, len(messages), empty) {
			return
		}
		m := p.mapping
		for len(messages) > 0 {
			// What did not fit into the last batch is the beginning of the next.
			var batch []message
			batch, messages = cut(s.gather(ctx, work, m, messages), m.BatchSize, maxEventBytes)
			if s.deliver(work, batch) {
				failed = 0
				continue
			}
			failed++
			s.backOff(pause(failed))
		}
		sleep(ctx, pause(failed))
	}
}

// pause returns the n-th pause; there is none for 0.
func pause(n int) time.Duration {
	if n == 0 {
		return 0
	}
	d := pauseFirst
	for i := 1; i < n && d < pauseLast; i++ {
		d *= 2
	}
	return min(d, pauseLast)
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
