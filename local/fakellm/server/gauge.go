package server

import "maps"

// maxNames bounds the models, regions and keys that are counted by name; the rest share one.
const (
	maxNames   = 1000
	otherNames = "(others)"
)

// Gauge counts the calls of one model, region or key, those left out that were refused for their
// key, their form or their model.
type Gauge struct {
	// Calls were understood. Each is admitted, throttled, or answered with an error at the door.
	Calls int
	// InFlight were admitted and have not ended.
	InFlight int
	// Peak is the largest InFlight so far.
	Peak int
	// Admitted were let in by the quotas, if there are any.
	Admitted int
	// Throttled were refused by a quota or by chance, or answered 429 as programmed.
	Throttled int
	// Failed ended otherwise without a whole answer: an error, a broken answer, a client that left.
	Failed int
	// Good were answered, whole.
	Good int
	// Repeats are admitted calls whose body was admitted before: calls that are paid for twice.
	Repeats int
	// RepeatedKeys are admitted calls whose Idempotency-Key was admitted before.
	RepeatedKeys int
	// InputTokens and OutputTokens are those of good calls.
	InputTokens, OutputTokens int64
	// ChargedTokens are what quotas were charged, also for calls that were broken off.
	ChargedTokens int64
}

func (g *Gauge) enter() {
	g.Admitted++
	g.InFlight++
	g.Peak = max(g.Peak, g.InFlight)
}

// end counts how a call ended.
func (g *Gauge) end(c Call) {
	switch {
	case c.ThrottledBy != "" || c.Status == statusThrottled:
		g.Throttled++
	case c.good():
		g.Good++
		g.InputTokens += int64(c.InputTokens)
		g.OutputTokens += int64(c.OutputTokens)
	default:
		g.Failed++
	}
	g.ChargedTokens += c.ChargedTokens
}

// afresh forgets what has ended.
func (g Gauge) afresh() Gauge {
	return Gauge{Calls: g.InFlight, Admitted: g.InFlight, InFlight: g.InFlight, Peak: g.InFlight}
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
