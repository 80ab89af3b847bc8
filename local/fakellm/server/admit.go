package server

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// Chance is the cause of a call that was throttled by its phase's ThrottleShare.
const Chance quota.Cause = "chance"

// chanceWait is the wait that is told where no quota knows a better one.
const chanceWait = time.Second

// plan is what will happen to a call that has begun.
type plan struct {
	refused   *fault         // it does not fit into the model
	throttled *quota.Refusal // by a quota or by chance
	reply     Reply          // programmed, or a fault's; zero: the normal answer
	phase     Phase
	first     time.Duration // until the first token, or the refusal
	perToken  time.Duration
	length    int           // tokens that the answer is made; 0 is as it comes
	left      [2]quota.Left // of requests and of tokens
}

// begin counts the call, and decides what will happen to it.
func (s *state) begin(c *call, a ask, wi wire, now time.Time) plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.decide(c, a, wi, now)
	if p.refused != nil {
		return p
	}
	c.gauges = []*Gauge{&s.all, s.models.of(a.model), s.keys.of(c.who.keyHash)}
	if c.who.region != "" {
		c.gauges = append(c.gauges, s.regions.of(c.who.region))
	}
	for _, g := range c.gauges {
		g.Calls++
		if c.admitted {
			g.enter()
		}
	}
	if c.admitted {
		s.noteRepeats(c)
	}
	if p.throttled != nil {
		c.record.ThrottledBy = p.throttled.Cause
	}
	c.record.Fail = p.reply.Fail
	s.timelines.begin(c, now, [2]int{s.all.InFlight, s.models.of(a.model).InFlight})
	if p.reply.Hang || p.reply.Fail == FailStall {
		c.release = make(chan struct{})
		s.hung[c] = struct{}{}
	}
	s.wake()
	return p
}

func (s *state) noteRepeats(c *call) {
	c.record.Repeat = s.seen.note(c.bodyMark)
	repeatedKey := c.keyMark != (mark{}) && s.seen.note(c.keyMark)
	for _, g := range c.gauges {
		if c.record.Repeat {
			g.Repeats++
		}
		if repeatedKey {
			g.RepeatedKeys++
		}
	}
}

// ruleFor finds the rule of a call, or nil. Call it with mu held.
func (s *state) ruleFor(model string, who identity) *liveRule {
	for _, r := range s.rules {
		if r.Match.fits(model, who) {
			return r
		}
	}
	return nil
}

// decide goes the way of a call through a provider: its door, chance, the quotas, the model. Call
// it with mu held.
func (s *state) decide(c *call, a ask, wi wire, now time.Time) plan {
	p, rng, factor := plan{phase: Phase{Latency: s.latency}}, s.rng, 1.0
	rule := s.ruleFor(a.model, c.who)
	if rule != nil {
		p.phase, c.record.Phase, factor = rule.at(now.Sub(rule.since))
		rng = rule.rng
	}
	if p.phase.ContextTokens > 0 && !a.silent && a.input+a.maxTokens > p.phase.ContextTokens {
		f := wi.tooLong(a, p.phase.ContextTokens)
		p.refused = &f
		return p
	}
	next := slices.IndexFunc(s.queue, func(q queued) bool { return q.match.fits(a.model, c.who) })
	var reply Reply
	if next >= 0 {
		reply = s.queue[next].reply
	} else {
		reply = p.phase.drawFault(rng)
	}
	if !reply.isInstant() {
		if next < 0 && p.phase.ThrottleShare > 0 && rng.Float64() < p.phase.ThrottleShare {
			p.throttled = &quota.Refusal{Cause: Chance, After: chanceWait}
		} else if rule != nil {
			p.throttled = s.meterCall(c, a, rule, p.phase.limits(factor, wi.charge()), &p, now)
		}
		c.admitted = p.throttled == nil
	}
	if p.throttled != nil {
		p.first = p.phase.RefuseDelay
		return p
	}
	if next >= 0 {
		if s.queue[next].left--; s.queue[next].left == 0 {
			s.queue = slices.Delete(s.queue, next, next+1)
		}
	}
	p.reply = reply
	if !c.admitted {
		p.first = p.phase.RefuseDelay
		return p
	}
	if p.length = int(p.phase.OutputTokens.draw(rng)); reply.Text != nil || a.silent {
		p.length = 0
	}
	if p.first = reply.Delay; p.first == 0 {
		p.first, p.perToken = p.phase.Latency.draw(rng, a.input)
		p.perToken /= time.Duration(max(1, a.choices)) // they are said side by side
	}
	return p
}

// limits are the phase's, multiplied, and with the wire's own way of counting tokens.
func (p Phase) limits(factor float64, charge quota.Charge) quota.Limits {
	l := p.Limits
	if l.Charge == "" {
		l.Charge = charge
	}
	if factor != 1 {
		l = l.Scale(factor)
	}
	return l
}

// drawFault draws what goes wrong with the next call; mostly nothing.
func (p Phase) drawFault(rng *rand.Rand) Reply {
	if len(p.Faults) == 0 {
		return Reply{}
	}
	u := rng.Float64()
	for _, f := range p.Faults {
		if u < f.Share {
			return f.Reply
		}
		u -= f.Share
	}
	return Reply{}
}

// meterCall asks the quotas. Call it with mu held.
func (s *state) meterCall(c *call, a ask, rule *liveRule, limits quota.Limits, p *plan, now time.Time) *quota.Refusal {
	c.scope, c.limits = rule.scope(a.model, c.who), limits
	m := s.meters[c.scope]
	if m == nil && len(s.meters) >= maxNames {
		c.scope = scope{match: rule.Match}
		m = s.meters[c.scope]
	}
	if m == nil {
		m = &quota.Meter{}
		s.meters[c.scope] = m
	}
	maxTokens := a.maxTokens * max(1, a.choices)
	grant, refusal := m.Start(now, limits, quota.Need{Input: a.input, MaxTokens: maxTokens})
	if refusal == nil {
		c.meter, c.grant = m, grant
	}
	p.left[0], p.left[1] = m.Left(now, limits)
	return refusal
}
