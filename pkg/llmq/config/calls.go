package config

import (
	"cmp"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Number is a number of which zero is a value like any other. The zero value is none given.
type Number struct {
	Of    float64
	Given bool
}

// or is the first of n and others that is given.
func (n Number) or(others ...Number) Number {
	for _, o := range others {
		if n.Given {
			break
		}
		n = o
	}
	return n
}

// Tries are settings of how a target is tried. They stand at providers, models and targets; the
// nearest to the target wins, and what none of them gives is Timing's. A zero value is none given.
type Tries struct {
	AttemptTimeout        time.Duration
	ThrottleRetryAttempts int
	RetryBase             time.Duration
	RetryMultiplier       float64
	RetrySpread           float64
	RetryMax              time.Duration
	ThrottleRetryMax      time.Duration
}

// LaneTimes are times by lane; zero is none given.
type LaneTimes struct{ RT, BG, Bulk time.Duration }

func (t LaneTimes) of(l llmq.Lane) time.Duration {
	switch l {
	case llmq.LaneBG:
		return t.BG
	case llmq.LaneBulk:
		return t.Bulk
	default:
		return t.RT
	}
}

// Calls are settings of a model's calls, whatever serves them. They stand at providers and models, whose wins; of a
// model's providers that of its first target counts. A zero value is none given.
type Calls struct {
	Timeout, EmbedTimeout LaneTimes
	RTCapacityWait        Number // seconds
	Routing               RoutingMode
	RTQueuePercent        Number
}

// RoutingMode is how a live call reaches its provider while all is well.
type RoutingMode string

// The modes.
const (
	RoutingAuto   RoutingMode = "auto"   // where its caller waits, where a slot is free at once; else by the queue
	RoutingDirect RoutingMode = "direct" // where its caller waits, at any target of its chain that has a slot; else by the queue
	RoutingQueue  RoutingMode = "queue"  // by the queue
)

// pace is how a target is tried: its own settings, then its model's, its provider's, and those of all.
func (c *Config) pace(m Model, t Target, p Provider) llmq.Pace {
	own, model, of, all := t.Tries, m.Tries, p.Tries, c.Timing
	return llmq.Pace{
		AttemptTimeout:   cmp.Or(own.AttemptTimeout, model.AttemptTimeout, of.AttemptTimeout, all.AttemptTimeout),
		ThrottleAttempts: cmp.Or(own.ThrottleRetryAttempts, model.ThrottleRetryAttempts, of.ThrottleRetryAttempts, all.ThrottleRetryAttempts),
		RetryBase:        cmp.Or(own.RetryBase, model.RetryBase, of.RetryBase, all.RetryBase),
		RetryMultiplier:  cmp.Or(own.RetryMultiplier, model.RetryMultiplier, of.RetryMultiplier, all.RetryMultiplier),
		RetrySpread:      cmp.Or(own.RetrySpread, model.RetrySpread, of.RetrySpread, all.RetrySpread),
		RetryMax:         cmp.Or(own.RetryMax, model.RetryMax, of.RetryMax, all.RetryMax),
		ThrottleRetryMax: cmp.Or(own.ThrottleRetryMax, model.ThrottleRetryMax, of.ThrottleRetryMax, all.ThrottleRetryMax),
		CapacityWait:     c.capacityWait(m),
	}
}

// firstProvider is the one that settings of a model's calls may come from.
func (c *Config) firstProvider(m Model) Provider {
	if len(m.Targets) == 0 {
		return Provider{}
	}
	return c.provider(m.Targets[0].Provider)
}

// capacityWait is how long a received rt call of a model waits for a slot.
func (c *Config) capacityWait(m Model) time.Duration {
	if n := m.Calls.RTCapacityWait.or(c.firstProvider(m).Calls.RTCapacityWait); n.Given {
		return time.Duration(n.Of * float64(time.Second))
	}
	return c.Timing.RTCapacityWait
}

// timeouts are the deadlines of a model's calls that name none.
func (c *Config) timeouts(m Model) map[llmq.Lane]time.Duration {
	out := map[llmq.Lane]time.Duration{}
	for _, l := range llmq.Lanes() {
		out[l] = cmp.Or(m.Calls.Timeout.of(l), c.firstProvider(m).Calls.Timeout.of(l), c.Lanes[l].Timeout)
	}
	return out
}

// embedTimeouts are those of its embeddings.
func (c *Config) embedTimeouts(m Model) map[llmq.Lane]time.Duration {
	out, of := c.timeouts(m), c.firstProvider(m).Calls.EmbedTimeout
	for l, lanes := range out {
		out[l] = cmp.Or(m.Calls.EmbedTimeout.of(l), of.of(l), c.Lanes[l].EmbedTimeout, lanes)
	}
	return out
}

// Route is how a model's live calls reach their providers while all is well: a mode, and the part of sessions, 0 to 100, that queue
// nonetheless.
func (c *Config) Route(m Model) (mode RoutingMode, queuePercent float64) {
	of := c.firstProvider(m).Calls
	return cmp.Or(m.Calls.Routing, of.Routing, c.Routing.RT), m.Calls.RTQueuePercent.or(of.RTQueuePercent, c.Routing.RTQueuePercent).Of
}
