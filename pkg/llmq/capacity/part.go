package capacity

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Part is what one of several callers may use by itself while the store is lost and nobody counts for all: of all that bounds
// calls, what was last heard of it ÷ the callers (FEATURES C9). Their parts together are never more than the whole. The zero
// value has no part of anything. It is not safe for concurrent use.
type Part struct {
	callers int
	since   time.Time
	inUse   map[string]int     // slots, by what bounds them
	budgets map[string]*filled // by name
}

// Taken is what a call has of a part.
type Taken struct {
	since time.Time // the outage whose budgets it drew on
	at    time.Time
	slots []string
	draws []draw
}

// Share begins an outage: so many callers share, and nobody was admitted after since. Budgets are empty then, for nobody knows
// what was drawn of them, and fill from then on. Calls that are still in flight count on.
func (p *Part) Share(callers int, since time.Time) {
	p.callers, p.since, p.budgets = callers, since, map[string]*filled{}
	if p.inUse == nil {
		p.inUse = map[string]int{}
	}
}

// Take takes all that a call needs of this caller's part, or nothing: then it is nil. learned is what was last heard of the target.
func (p *Part) Take(a Ask, learned Learned, now time.Time) *Taken {
	if p.callers < 1 || now.Before(p.since) {
		return nil
	}
	taken := &Taken{since: p.since, at: now, draws: p.draws(a, learned)}
	for _, b := range slotsOf(a, learned) {
		if p.inUse[b.of] >= b.most/p.callers {
			return nil
		}
		taken.slots = append(taken.slots, b.of)
	}
	for _, d := range taken.draws {
		if p.level(d, now) < float64(d.cost) {
			return nil
		}
	}
	for _, name := range taken.slots {
		p.inUse[name]++
	}
	for _, d := range taken.draws {
		p.budgets[d.of].level -= float64(d.cost)
	}
	return taken
}

// Give returns what a call had that has ended. used is what it cost in tokens, or [Unknown]: then it stays charged as it
// was reserved. To a later outage's budgets, and to a later minute's of the calendar, nothing goes back, for it drew nothing of them.
func (p *Part) Give(t *Taken, used int) {
	for _, name := range t.slots {
		p.inUse[name]--
	}
	for _, d := range t.draws {
		b, back := p.budgets[d.of], d.cost-used
		if b == nil || !d.tokens || used == Unknown {
			continue
		}
		earlier := !t.since.Equal(p.since) || d.fixed && b.at.Truncate(time.Minute).After(t.at)
		if !earlier || back < 0 { // more than was reserved is charged whenever it is known
			b.level += float64(back)
		}
	}
}

// bound is a number of slots, and what has them.
type bound struct {
	of   string
	most int
}

func slotsOf(a Ask, learned Learned) []bound {
	t := a.Target
	most := int(learned.Slots.Limit)
	if t.MaxConcurrency > 0 {
		most = min(most, t.MaxConcurrency)
	}
	bounds := []bound{{t.String(), most}}
	if lane := t.Limits.Lanes[a.Lane]; lane > 0 {
		bounds = append(bounds, bound{t.String() + " " + string(a.Lane), lane})
	}
	if t.Shared.MaxConcurrency > 0 {
		bounds = append(bounds, bound{"@" + t.Provider, t.Shared.MaxConcurrency})
	}
	return bounds
}

// draw is what a call draws of this caller's part of a budget.
type draw struct {
	of     string
	cost   int
	tokens bool
	rate   float64 // per minute
	burst  float64 // at most at once
	fixed  bool    // the whole of rate at each minute of the calendar
}

// draws are those on the budgets of a call's target and of its provider, and on the rates that were learned.
func (p *Part) draws(a Ask, learned Learned) []draw {
	t := a.Target
	var out []draw
	add := func(of string, cost int, tokens bool, b budget) {
		if b.limit > 0 {
			out = append(out, draw{of, cost, tokens, float64(b.limit) / float64(p.callers), float64(b.burst / p.callers), b.fixed})
		}
	}
	of := func(name string, r llmq.Rates) {
		calls, tokens := budgetsOf(r)
		add(name+" calls", 1, false, calls)
		add(name+" tokens", a.Tokens, true, tokens)
	}
	of(t.String(), t.Limits.Rates)
	of("@"+t.Provider, t.Shared.Rates)
	of(t.String()+" learned", llmq.Rates{RPM: int(learned.Starts.Limit), TPM: int(learned.Tokens.Limit)})
	return out
}

// filled is a part of a budget as it was at a time.
type filled struct {
	at    time.Time
	level float64
}

// level brings a part of a budget up to now and tells what may be drawn of it.
func (p *Part) level(d draw, now time.Time) float64 {
	b := p.budgets[d.of]
	if b == nil {
		b = &filled{at: p.since}
		p.budgets[d.of] = b
	}
	switch {
	case !d.fixed:
		b.level += d.rate * max(0, now.Sub(b.at).Minutes())
		b.level = min(b.level, d.burst)
	case now.Truncate(time.Minute).After(b.at):
		b.level = float64(int(d.rate))
	}
	b.at = now
	return b.level
}
