package server

import "time"

const (
	// maxSeconds bounds what a timeline keeps, and maxTimelines the models that have one of their
	// own; the one of all models is apart.
	maxSeconds   = 7200
	maxTimelines = 50
)

// Second is what a model did in one second of the clock. Calls count when they begin, but Good and
// Failed when they end.
type Second struct {
	At                                time.Time
	Calls, Admitted, Throttled        int
	Good, Failed                      int
	Peak                              int // calls in flight
	InputTokens, OutputTokens, Charge int64
}

// timeline keeps the latest seconds in which something happened, oldest first.
type timeline []Second

// at finds or begins a second. A call that ends counts now, so the time only moves on.
func (l *timeline) at(now time.Time) *Second {
	now = now.Truncate(time.Second)
	if n := len(*l); n > 0 && !now.After((*l)[n-1].At) {
		return &(*l)[n-1]
	}
	if len(*l) >= maxSeconds {
		*l = append((*l)[:0], (*l)[maxSeconds/2:]...)
	}
	*l = append(*l, Second{At: now})
	return &(*l)[len(*l)-1]
}

// timelines are those of models; "" is that of all.
type timelines map[string]*timeline

// of gives the seconds in which something of a model happens now.
func (t timelines) of(model string, now time.Time) []*Second {
	seconds := make([]*Second, 0, 2)
	for _, name := range []string{"", model} {
		l := t[name]
		if l == nil && len(t) <= maxTimelines {
			l = new(timeline)
			t[name] = l
		}
		if l != nil {
			seconds = append(seconds, l.at(now))
		}
	}
	return seconds
}

// begin counts a call that has been decided on. inFlight are the calls of all and of its model.
func (t timelines) begin(c *call, now time.Time, inFlight [2]int) {
	for i, s := range t.of(c.record.Model, now) {
		s.Calls++
		if c.admitted {
			s.Admitted++
			s.Peak = max(s.Peak, inFlight[i])
		}
		if c.record.ThrottledBy != "" {
			s.Throttled++
		}
	}
}

// end counts how a call ended.
func (t timelines) end(c Call, now time.Time) {
	for _, s := range t.of(c.Model, now) {
		switch s.Charge += c.ChargedTokens; {
		case c.ThrottledBy != "":
		case c.Status == statusThrottled:
			s.Throttled++
		case c.good():
			s.Good++
			s.InputTokens += int64(c.InputTokens)
			s.OutputTokens += int64(c.OutputTokens)
		default:
			s.Failed++
		}
	}
}

// Timeline tells what a model ("" is all of them) did in each of the latest 3,600 to 7,200 seconds
// in which it did anything, oldest first: goodput over time, and how many calls began in a minute.
// The first 50 models have one.
func (s *Server) Timeline(model string) []Second {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	l := s.state.timelines[model]
	if l == nil {
		return nil
	}
	return append([]Second(nil), *l...)
}
