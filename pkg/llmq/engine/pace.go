package engine

import (
	"cmp"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

// limited is the current step's target with the limits that hold now.
func (r *run) limited() llmq.Target {
	t := r.target()
	if now, there := r.limits.Target(t.Model, t.Name); there {
		return now
	}
	return t
}

// paced is the current target's pace, and whether it has one of its own.
func (r *run) paced() (llmq.Pace, bool) {
	p := r.target().Pace
	return p, p.AttemptTimeout > 0
}

func (r *run) attemptTimeout() time.Duration {
	if p, own := r.paced(); own {
		return p.AttemptTimeout
	}
	return r.cfg.AttemptTimeout
}

// capacityWait is how long an rt request waits here for a slot, in all.
func (r *run) capacityWait() time.Duration {
	if p := r.chain[0].Target.Pace; p.AttemptTimeout > 0 {
		return p.CapacityWait
	}
	return r.cfg.RTCapacityWait
}

// policy is how often the current target is tried, and how far apart.
func (r *run) policy() retry.Policy {
	out := r.cfg.Retry
	if p, own := r.paced(); own {
		out.Curve.Base, out.Curve.Multiplier, out.Curve.Spread, out.Curve.Max = p.RetryBase, p.RetryMultiplier, p.RetrySpread, p.RetryMax
		out.Attempts = cmp.Or(p.Attempts, out.Attempts)
		out.ThrottleMax, out.ThrottleAttempts, out.SleepMost = p.ThrottleRetryMax, p.ThrottleAttempts, p.RetryMax
	}
	return out
}
