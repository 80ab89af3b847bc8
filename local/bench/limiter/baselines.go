package main

import "github.com/llm-queue/llmq/pkg/llmq/capacity"

const (
	baselineStart = 20
	baselineMost  = 2000
	busyShare     = 0.75 // of the limit: below it, success says nothing
)

// aimd is the plain rule: a slot more for each limit-ful of answers, half at a throttle,
// at most once a second.
type aimd struct {
	*leases
	limit float64
	cutAt int64
}

func newAIMD(*provider) limiter { return &aimd{leases: newLeases(), limit: baselineStart} }

func (a *aimd) admit(now int64, c *call) (bool, int64) {
	a.expire(now)
	if !a.fits(a.limit, c.lane) {
		return false, 0
	}
	a.add(now, c.id, lease{lane: c.lane})
	return true, 0
}

func (a *aimd) settle(now, id int64, e capacity.Ending, _, _ int64) {
	busy := float64(len(a.held)) >= busyShare*a.limit
	if _, ok := a.remove(id); !ok {
		return
	}
	switch {
	case e == capacity.OK && busy:
		a.limit = min(baselineMost, a.limit+1/a.limit)
	case e == capacity.Throttled && now-a.cutAt >= 1000:
		a.limit, a.cutAt = max(1, a.limit/2), now
	}
}

// clustered is the law of the queue that this one follows, as far as its description
// tells: a limit on slots that grows by a tenth, slowly near the last cut; cuts of a tenth
// on clustered throttles (two, and 5 % of a 1 s window), once a window; a pause when half
// of a window is refused; and no cut below the start where the last one did not help.
type clustered struct {
	*leases
	limit       float64
	peak        float64 // the limit at the last cut; it fades upwards
	peakAt      int64
	windowAt    int64
	ended       int // in this window
	throttled   int
	cut         bool
	pausedUntil int64
	probedAt    int64
	ratio       float64 // of throttles, smoothed
	ratioAtCut  float64
}

func newClustered(*provider) limiter { return &clustered{leases: newLeases(), limit: baselineStart} }

func (s *clustered) roll(now int64) {
	if now-s.windowAt < 1000 {
		return
	}
	if s.ended > 0 {
		s.ratio += 0.3 * (float64(s.throttled)/float64(s.ended) - s.ratio)
	}
	s.windowAt, s.ended, s.throttled, s.cut = now, 0, 0, false
}

func (s *clustered) admit(now int64, c *call) (bool, int64) {
	s.expire(now)
	s.roll(now)
	if now < s.pausedUntil {
		return false, s.pausedUntil - now
	}
	if !s.fits(s.limit, c.lane) {
		return false, 0
	}
	s.add(now, c.id, lease{lane: c.lane})
	return true, 0
}

func (s *clustered) settle(now, id int64, e capacity.Ending, _, retryAfter int64) {
	s.roll(now)
	busy := float64(len(s.held)) >= busyShare*s.limit
	if _, ok := s.remove(id); !ok {
		return
	}
	switch e {
	case capacity.OK:
		s.ended++
		if busy {
			s.grow(now)
		}
	case capacity.Throttled:
		s.ended++
		s.throttled++
		ratio := float64(s.throttled) / float64(s.ended)
		if s.throttled >= 2 && ratio >= 0.05 && !s.cut {
			s.lower(now)
		}
		if s.throttled >= 2 && ratio >= 0.5 {
			s.pausedUntil = now + max(1000, min(retryAfter, 5000))
		}
	case capacity.Failed, capacity.Abandoned:
	}
}

func (s *clustered) grow(now int64) {
	peak := s.peak * (1 + 0.05*float64(now-s.peakAt)/30_000)
	if peak > 0 && s.limit >= peak*0.95 && s.limit <= peak*1.05 {
		if now-s.probedAt >= 5000 {
			s.limit++
			s.probedAt = now
		}
	} else {
		s.limit += 0.1 + 1/s.limit
	}
	s.limit = min(baselineMost, s.limit)
}

func (s *clustered) lower(now int64) {
	least := 1.0
	if s.ratioAtCut > 0 && s.ratio >= 0.8*s.ratioAtCut {
		least = min(baselineStart, s.limit)
	}
	s.ratioAtCut = s.ratio
	s.peak, s.peakAt = s.limit, now
	s.limit = max(least, s.limit*0.9)
	s.cut, s.probedAt = true, now
}
