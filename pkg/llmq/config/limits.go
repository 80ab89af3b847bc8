package config

import (
	"cmp"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Share is a part of a whole, 0 to 1. The zero value is none given, which is not 0.
type Share struct {
	Of    float64
	Given bool
}

// or is the first of s and others that is given.
func (s Share) or(others ...Share) Share {
	for _, o := range others {
		if s.Given {
			break
		}
		s = o
	}
	return s
}

// RateWindow is how a budget per minute is handed out.
type RateWindow string

// The windows.
const (
	RateSmooth RateWindow = "smooth" // spread over the minute, with a burst
	RateFixed  RateWindow = "fixed"  // whole, at each minute of the calendar
)

// Limits are settings of calls in flight and of budgets. They stand at providers, models and
// targets; the nearest to the target wins, and what none of them gives is the
// Limiter's and the Breaker's. A zero value is none given.
type Limits struct {
	Initial          int   // slots to begin with; beyond the cap it is the cap
	BackgroundShare  Share // part of the slots that bg and bulk may use
	RT, BG, Bulk     int   // slots that a lane may use
	RPM, TPM         int   // calls that may start, and tokens, per minute
	RateWindow       RateWindow
	RateBurst        int   // calls that may start back to back in a smooth window; the same fraction of tokens
	RTRateShare      Share // part of a budget that only rt may use
	BreakerThreshold int
	BreakerCooldown  time.Duration
}

// Limiter is how the limit of each target is learned, shared by all of them.
type Limiter struct {
	Max             int           // ceiling of every learned limit; default 2000
	BackgroundShare Share         // default 0.8
	RateWindow      RateWindow    // default smooth
	RTRateShare     Share         // default 0.2
	Window          time.Duration // default 1 s
	MinThrottles    int           // default 2
	LossTolerance   Share         // default 0.05
	PauseRatio      Share         // default 0.5
	Pause           time.Duration // default 1 s
	Lease           time.Duration // of a slot; default 60 s
}

// Breaker is when a target that fails is left alone.
type Breaker struct {
	Threshold int           // default 5
	Window    time.Duration // default 60 s
	Cooldown  time.Duration // default 30 s
}

// limits is what holds for a target: its own settings, then its model's, its provider's, and
// those of all.
func (c *Config) limits(m Model, t Target, p Provider) llmq.Limits {
	own, model, of := t.Limits, m.Limits, p.Limits
	lanes := map[llmq.Lane]int{}
	for lane, most := range map[llmq.Lane]int{
		llmq.LaneRT: cmp.Or(own.RT, model.RT, of.RT), llmq.LaneBG: cmp.Or(own.BG, model.BG, of.BG), llmq.LaneBulk: cmp.Or(own.Bulk, model.Bulk, of.Bulk),
	} {
		if most > 0 {
			lanes[lane] = most
		}
	}
	if len(lanes) == 0 {
		lanes = nil
	}
	return llmq.Limits{
		Initial:         cmp.Or(own.Initial, model.Initial, of.Initial),
		BackgroundShare: own.BackgroundShare.or(model.BackgroundShare, of.BackgroundShare, c.Limiter.BackgroundShare).Of,
		Lanes:           lanes,
		Rates: c.rates(
			cmp.Or(own.RPM, model.RPM, of.RPM), cmp.Or(own.TPM, model.TPM, of.TPM), cmp.Or(own.RateBurst, model.RateBurst, of.RateBurst),
			cmp.Or(own.RateWindow, model.RateWindow, of.RateWindow), own.RTRateShare.or(model.RTRateShare, of.RTRateShare)),
		Breaker: llmq.Breaker{
			Threshold: cmp.Or(own.BreakerThreshold, model.BreakerThreshold, of.BreakerThreshold, c.Breaker.Threshold),
			Window:    c.Breaker.Window,
			Cooldown:  cmp.Or(own.BreakerCooldown, model.BreakerCooldown, of.BreakerCooldown, c.Breaker.Cooldown),
		},
	}
}

// shared is what holds for a provider over all its targets.
func (c *Config) shared(p Provider) llmq.SharedLimits {
	return llmq.SharedLimits{MaxConcurrency: p.SharedMaxConcurrency, Rates: c.rates(p.SharedRPM, p.SharedTPM, 0, p.Limits.RateWindow, p.Limits.RTRateShare)}
}

// rates is a budget, or nothing where none is set.
func (c *Config) rates(rpm, tpm, burst int, window RateWindow, rt Share) llmq.Rates {
	if rpm == 0 && tpm == 0 {
		return llmq.Rates{}
	}
	return llmq.Rates{
		RPM: rpm, TPM: tpm, Burst: burst, Fixed: cmp.Or(window, c.Limiter.RateWindow) == RateFixed, RTShare: rt.or(c.Limiter.RTRateShare).Of,
	}
}

// provider is the one of that name, or a zero one.
func (c *Config) provider(name string) Provider {
	for _, p := range c.Providers {
		if p.Name == name {
			return p
		}
	}
	return Provider{}
}
