package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// state is everything that changes. One mutex guards it all; nothing waits while holding it.
type state struct {
	mu        sync.Mutex
	queue     []queued
	latency   Latency // of calls that no rule is for
	rng       *rand.Rand
	rules     []*liveRule
	meters    map[scope]*quota.Meter
	hung      map[*call]struct{}
	log       callLog
	seen      *repeats
	since     time.Time // of all counters
	all       Gauge
	models    gauges
	regions   gauges
	keys      gauges
	timelines timelines
	changed   chan struct{} // closed, and made anew, when a call begins or ends
}

// queued is a reply that waits for its calls.
type queued struct {
	match Match
	reply Reply
	left  int
}

// liveRule is a rule with its clock and its chance.
type liveRule struct {
	Rule
	since time.Time
	rng   *rand.Rand
}

func newState(logCalls int) *state {
	return &state{
		rng:       newRand(0),
		meters:    map[scope]*quota.Meter{},
		hung:      map[*call]struct{}{},
		log:       callLog{limit: logCalls},
		seen:      newRepeats(),
		since:     time.Now(),
		models:    gauges{},
		regions:   gauges{},
		keys:      gauges{},
		timelines: timelines{},
		changed:   make(chan struct{}),
	}
}

// end logs the call, with its number, and takes it out of what is in flight if it ever was.
func (s *state) end(c *call, now time.Time) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.meter != nil {
		limits := c.limits
		if r := s.ruleFor(c.record.Model, c.who); r != nil && r.scope(c.record.Model, c.who) == c.scope {
			phase, _, factor := r.at(now.Sub(r.since))
			limits = phase.limits(factor, c.limits.Charge)
		}
		used := quota.Used{Input: c.record.InputTokens, Output: c.record.OutputTokens}
		c.record.ChargedTokens = int64(c.meter.End(now, limits, c.grant, used))
		c.meter = nil
	}
	for _, g := range c.gauges {
		if c.admitted {
			g.InFlight--
		}
		g.end(c.record)
	}
	if c.gauges != nil {
		s.timelines.end(c.record, now)
	}
	c.gauges = nil
	delete(s.hung, c)
	record := s.log.add(c.record)
	s.wake()
	return record
}

// wake tells those who await a number of calls to look again. Call it with mu held.
func (s *state) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *state) enqueue(added []queued) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue)+len(added) > maxQueued {
		return fmt.Errorf("queue %d replies: at most %d may wait, and %d do", len(added), maxQueued, len(s.queue))
	}
	s.queue = append(s.queue, added...)
	return nil
}

func (s *state) setLatency(l Latency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.rng = l, newRand(l.Seed)
}

// load replaces what is programmed, and starts its meters afresh.
func (s *state) load(rules []Rule, queue []queued, keepQueue bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = make([]*liveRule, 0, len(rules))
	for _, r := range rules {
		s.rules = append(s.rules, &liveRule{Rule: r, since: now, rng: newRand(r.Seed)})
	}
	s.renewMeters()
	if !keepQueue {
		s.queue = queue
	}
}

// renewMeters forgets what quotas have counted, but for the calls in flight, which are in flight
// whatever the rules say. Call it with mu held.
func (s *state) renewMeters() {
	for scope, m := range s.meters {
		if m.Renew(); m.InFlight() == 0 {
			delete(s.meters, scope)
		}
	}
}

func (s *state) hanging(m Match) int {
	m = m.hashed()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.hung {
		if m.fits(c.record.Model, c.who) {
			n++
		}
	}
	return n
}

func (s *state) release(m Match) int {
	m = m.hashed()
	s.mu.Lock()
	defer s.mu.Unlock()
	released := 0
	for c := range s.hung {
		if m.fits(c.record.Model, c.who) {
			close(c.release)
			delete(s.hung, c)
			released++
		}
	}
	return released
}

// resetCounters forgets the log, the counters and what was seen.
func (s *state) resetCounters(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = callLog{limit: s.log.limit, seq: s.log.seq}
	s.seen = newRepeats()
	s.timelines = timelines{}
	s.since = now
	s.all = s.all.afresh()
	for _, g := range []gauges{s.models, s.regions, s.keys} {
		g.reset()
	}
}

// resetProgram forgets all that was programmed, and what quotas had counted.
func (s *state) resetProgram() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.rules = nil, nil
	s.latency, s.rng = Latency{}, newRand(0)
	s.renewMeters()
}

// gauge must be called with mu held.
func (s *state) gauge(model string) Gauge {
	if model == "" {
		return s.all
	}
	if g := s.models[model]; g != nil {
		return *g
	}
	return Gauge{}
}

// Stats are counters since the start or the last Reset.
type Stats struct {
	Since   time.Time
	All     Gauge
	Models  map[string]Gauge
	Regions map[string]Gauge // calls with a region only
	Keys    map[string]Gauge // by KeyHash
}

// Stats counts what has happened so far.
func (s *Server) Stats() Stats {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return Stats{
		Since:   s.state.since,
		All:     s.state.all,
		Models:  s.state.models.copy(),
		Regions: s.state.regions.copy(),
		Keys:    s.state.keys.copy(),
	}
}

// Peak is the largest number of calls of a model that were in flight together; "" means of all
// models.
func (s *Server) Peak(model string) int { return s.gauge(model).Peak }

// InFlight is the number of calls of a model that are in flight now; "" means of all models.
func (s *Server) InFlight(model string) int { return s.gauge(model).InFlight }

func (s *Server) gauge(model string) Gauge {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.gauge(model)
}

// AwaitInFlight waits until at least n calls of a model ("" means all) are in flight, or until
// exactly none are if n is 0. It returns ctx's error if that does not happen in time.
func (s *Server) AwaitInFlight(ctx context.Context, model string, n int) error {
	for {
		s.state.mu.Lock()
		now, changed := s.state.gauge(model).InFlight, s.state.changed
		s.state.mu.Unlock()
		if now >= n && (n > 0 || now == 0) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("await %d calls in flight, %d are: %w", n, now, ctx.Err())
		}
	}
}

// Calls returns the calls in the log, oldest first.
func (s *Server) Calls() []Call {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return slices.Clone(s.state.log.calls)
}
