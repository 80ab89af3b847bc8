package main

import (
	"math"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// oracle knows the provider's state and is never refused. Windowed quotas it spreads over
// their minute, else all of it would go at once.
type oracle struct {
	*leases
	p          *provider
	rtAskedAt  int64
	asked      int64
	startLevel float64
	tokenLevel float64
}

func newOracle(p *provider) limiter { return &oracle{leases: newLeases(), p: p} }

func (o *oracle) admit(now int64, c *call) (bool, int64) {
	if c.lane != laneRT && now-o.rtAskedAt < 300 {
		return false, 0
	}
	if o.p.slots != nil && c.lane != laneRT &&
		float64(o.background+1) > math.Max(1, o.p.slots(now-runStart)*backgroundShare)+1e-9 {
		return false, 0
	}
	if o.p.outage != nil && o.p.outage(now-runStart) != noOutage {
		return false, 500
	}
	elapsed := float64(now - o.asked)
	o.asked = now
	if o.p.starts != nil && o.p.startsBy != bucket && !o.paced(&o.startLevel, o.p.starts(now-runStart), 1, elapsed, c) {
		return o.refuse(now, c, 50)
	}
	if o.p.tokens != nil && o.p.tokensBy != bucket && !o.paced(&o.tokenLevel, o.p.tokens(now-runStart), 0, elapsed, c) {
		return o.refuse(now, c, 50)
	}
	if ok, wait := o.p.takes(now, c.reserved()); !ok {
		return o.refuse(now, c, min(wait, 2000))
	}
	if c.lane == laneRT {
		o.rtAskedAt = 0
	}
	o.startLevel--
	o.tokenLevel -= float64(c.reserved())
	o.add(now, c.id, lease{lane: c.lane, tokens: c.reserved(), started: now})
	return true, 0
}

// paced refills a level and tells whether it suffices; background leaves a fifth.
func (o *oracle) paced(level *float64, quota, need, elapsed float64, c *call) bool {
	*level = math.Min(quota*0.03, *level+quota/minute*elapsed)
	if c.lane != laneRT {
		need += quota * 0.006
	}
	return *level >= need
}

func (o *oracle) refuse(now int64, c *call, wait int64) (bool, int64) {
	if c.lane == laneRT {
		o.rtAskedAt = now
	}
	return false, wait
}

func (o *oracle) settle(_, id int64, e capacity.Ending, tokens, _ int64) {
	if l, ok := o.remove(id); ok && e == capacity.OK {
		o.tokenLevel += float64(l.tokens - tokens)
	}
}
