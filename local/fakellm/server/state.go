package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// maxNames bounds the models, regions and keys that are counted by name; the rest share one.
const (
	maxNames   = 1000
	otherNames = "(others)"
)

// Gauge counts the calls of one model, region or key, those that were refused left out.
type Gauge struct {
	// Calls have begun, and may have ended.
	Calls int
	// InFlight have begun and not ended.
	InFlight int
	// Peak is the largest InFlight so far.
	Peak int
}

func (g *Gauge) begin() {
	g.Calls++
	g.InFlight++
	g.Peak = max(g.Peak, g.InFlight)
}

// Stats are counters since the start or the last Reset.
type Stats struct {
	All     Gauge
	Models  map[string]Gauge
	Regions map[string]Gauge // calls with a region only
	Keys    map[string]Gauge // by KeyHash
}

// state is everything that changes. One mutex guards it all; nothing waits while holding it.
type state struct {
	mu       sync.Mutex
	programs []program
	latency  Latency
	rng      *rand.Rand
	hung     map[*call]struct{}
	log      callLog
	all      Gauge
	models   gauges
	regions  gauges
	keys     gauges
	changed  chan struct{} // closed, and made anew, when a call begins or ends
}

func newState(logCalls int) *state {
	return &state{
		rng:     newRand(0),
		hung:    map[*call]struct{}{},
		log:     callLog{limit: logCalls},
		models:  gauges{},
		regions: gauges{},
		keys:    gauges{},
		changed: make(chan struct{}),
	}
}

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) // latencies are no secrets, and must repeat
}

// begin counts the call, and decides what will happen to it.
func (s *state) begin(c *call) plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.gauges = []*Gauge{&s.all, s.models.of(c.record.Model), s.keys.of(c.record.KeyHash)}
	if c.record.Region != "" {
		c.gauges = append(c.gauges, s.regions.of(c.record.Region))
	}
	for _, g := range c.gauges {
		g.begin()
	}
	p := plan{programmed: s.takeProgram(c.record.Model, c.record.Region)}
	if p.programmed.Delay > 0 {
		p.delay = p.programmed.Delay
	} else {
		p.delay = s.latency.draw(s.rng)
	}
	if p.programmed.Hang {
		c.release = make(chan struct{})
		s.hung[c] = struct{}{}
	}
	s.wake()
	return p
}

// takeProgram takes the first programmed reply that fits. Call it with mu held.
func (s *state) takeProgram(model, region string) Reply {
	for i := range s.programs {
		if !s.programs[i].match.fits(model, region) {
			continue
		}
		r := s.programs[i].reply
		if s.programs[i].left--; s.programs[i].left == 0 {
			s.programs = slices.Delete(s.programs, i, i+1)
		}
		return r
	}
	return Reply{}
}

// end logs the call, with its number, and takes it out of what is in flight if it ever was.
func (s *state) end(c *call) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range c.gauges {
		g.InFlight--
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

func (s *state) program(added []program) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.programs)+len(added) > maxPrograms {
		return fmt.Errorf("program %d replies: at most %d may wait, and %d do", len(added), maxPrograms, len(s.programs))
	}
	s.programs = append(s.programs, added...)
	return nil
}

func (s *state) setLatency(l Latency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.rng = l, newRand(l.Seed)
}

func (s *state) release(m Match) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	released := 0
	for c := range s.hung {
		if m.fits(c.record.Model, c.record.Region) {
			close(c.release)
			delete(s.hung, c)
			released++
		}
	}
	return released
}

func (s *state) reset() {
	s.release(Match{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = nil
	s.latency, s.rng = Latency{}, newRand(0)
	s.log = callLog{limit: s.log.limit, seq: s.log.seq}
	s.all = s.all.afresh()
	for _, g := range []gauges{s.models, s.regions, s.keys} {
		g.reset()
	}
}

// afresh forgets what has ended.
func (g Gauge) afresh() Gauge {
	return Gauge{Calls: g.InFlight, InFlight: g.InFlight, Peak: g.InFlight}
}

// gauges are counted by name.
type gauges map[string]*Gauge

// of finds the gauge of a name.
func (g gauges) of(name string) *Gauge {
	if found := g[name]; found != nil {
		return found
	}
	if len(g) >= maxNames {
		name = otherNames
	}
	if g[name] == nil {
		g[name] = &Gauge{}
	}
	return g[name]
}

// reset keeps the gauges that calls in flight hold on to.
func (g gauges) reset() {
	for name, gauge := range g {
		*gauge = gauge.afresh()
		if gauge.InFlight == 0 {
			delete(g, name)
		}
	}
}

func (g gauges) copy() map[string]Gauge {
	copied := make(map[string]Gauge, len(g))
	for name, gauge := range maps.All(g) {
		copied[name] = *gauge
	}
	return copied
}

// Stats counts what has happened so far.
func (s *Server) Stats() Stats {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return Stats{
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
	return s.state.log.all()
}
