package eventsource

import (
	"context"
	"time"
)

// concurrencyCap is AWS's own bound on the concurrent invocations of one mapping.
const concurrencyCap = 1250

// quietAfter is how many empty polls in a row make a mapping quiet: a minute of them.
const quietAfter = 3

// cutEvery is the least time between two reductions of the concurrency, each by a quarter. AWS says that it backs off
// gradually, and no more.
const cutEvery = time.Second

// floorLocked is how many workers there are without load.
func (s *Source) floorLocked() int { return min(s.tuning.Pollers, s.mapping.ceiling()) }

// afterPoll counts a poll and decides how many workers there should be. It reports whether this worker shall leave.
func (s *Source) afterPoll(ctx, work context.Context, got, emptyInARow int) (leave bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling--
	s.countPollLocked(got)
	if got == 0 {
		quiet := s.mapping.MaximumConcurrency == 0 && emptyInARow >= quietAfter && s.workers > s.tuning.QuietPollers
		if s.workers > s.floorLocked() || quiet {
			s.workers-- // here, not when it has left: else two could leave for one that is too many
			return true
		}
		if s.workers < s.floorLocked() && emptyInARow < quietAfter {
			s.growLocked(ctx, work) // failures, or a quiet hour, had taken it away
		}
		return false
	}
	if s.polling == 0 {
		s.growLocked(ctx, work)
	}
	return false
}

// countPollLocked counts a receive that was answered.
func (s *Source) countPollLocked(got int) {
	s.stats.Polls++
	s.stats.Polled += int64(got)
	if s.mapping.EventCount {
		s.stats.Published.Polled += int64(got)
	}
	if got == 0 {
		s.stats.EmptyPolls++
	}
}

// growLocked adds a worker, unless there are enough. It counts as polling from now on, so that no other is added
// meanwhile. The caller is a worker, so group.Wait is not over.
func (s *Source) growLocked(ctx, work context.Context) {
	if s.workers >= s.mapping.ceiling() || s.workers > s.wanted || s.failing || ctx.Err() != nil {
		return
	}
	now := time.Now()
	wait := max(0, s.growFrom.Sub(now))
	s.growFrom = now.Add(wait + s.tuning.GrowEvery)
	s.workers++
	s.polling++
	s.wanted = max(s.wanted, s.workers)
	s.group.Go(func() { s.worker(ctx, work, wait) })
}

// recovered lets the concurrency grow again, because the function succeeded.
func (s *Source) recovered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = false
}

// backOff takes concurrency away because the function failed or was throttled. It grows again when the function succeeds,
// not before wait is over.
func (s *Source) backOff(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.failing = true
	if until := now.Add(wait); until.After(s.growFrom) {
		s.growFrom = until
	}
	if now.Before(s.cutFrom) {
		return
	}
	s.cutFrom = now.Add(cutEvery)
	n := min(s.wanted, s.workers)
	s.wanted = max(min(minConcurrency, n), n-max(1, n/4))
}

// next begins a worker's next poll, once no fault keeps it from that. It is nil, and the worker shall leave, when the
// source ends or when the worker is one too many: there were failures, or the ceiling was lowered. counted says that the
// worker counts as polling already.
func (s *Source) next(ctx, work context.Context, counted bool) *poll {
	for {
		s.mu.Lock()
		leave := ctx.Err() != nil || s.workers > min(s.wanted, s.mapping.ceiling())
		if leave || !s.fault.Hang {
			defer s.mu.Unlock()
			if leave {
				s.workers--
				if counted {
					s.polling--
				}
				return nil
			}
			if !counted {
				s.polling++
			}
			return s.beginLocked(work)
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// enter waits until an invocation may begin. Workers bound the invocations by their number; only after the ceiling was
// lowered can there be more than it allows. It returns the mapping to invoke by; false if ctx ended first.
func (s *Source) enter(ctx context.Context) (Mapping, bool) {
	for {
		s.mu.Lock()
		m, changed := s.mapping, s.changed
		room := s.running < m.ceiling()
		if room {
			s.running++
			s.stats.PeakConcurrency = max(s.stats.PeakConcurrency, s.running)
		}
		s.mu.Unlock()
		if room {
			return m, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return m, false
		}
	}
}

// exit counts an invocation that has ended.
func (s *Source) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.changedLocked()
}
