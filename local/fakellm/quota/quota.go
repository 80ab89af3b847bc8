// Package quota counts calls and tokens as LLM providers do, as a pure function of the times it is
// told: calls in flight, calls a minute and tokens a minute, each by a token bucket, by calendar
// minute or over the last 60 s, with Bedrock's reservation of tokens and burndown of output or
// with OpenAI's estimate.
//
// A [Meter] has no clock and no lock. It is given the limits with each call, so they may change
// from one to the next, as phases and ramps of a schedule do.
package quota

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Window says over which time a Rate is counted.
type Window string

// The windows that a Rate may have.
const (
	// Bucket refills evenly and holds Burst at most. It is what an empty Window means.
	Bucket Window = "bucket"
	// Minute counts from each full minute of the provider's clock, as many gateways do: the whole
	// quota may go in its first second.
	Minute Window = "minute"
	// Sliding counts the last 60 s.
	Sliding Window = "sliding"
)

// Rate is a quota per minute. The zero value limits nothing.
type Rate struct {
	// PerMinute is the quota; 0 is none.
	PerMinute float64
	// Burst is what a Bucket holds; 0 means a whole minute's quota. The bucket is full at first.
	Burst float64
	// Window is Bucket when empty.
	Window Window
	// Skew is how far the provider's clock is ahead of ours, for Minute.
	Skew time.Duration
	// CountRefused charges refused calls too, as OpenAI does: whoever asks as often as the quota
	// allows without ever pausing is not let in any more.
	CountRefused bool
}

func (r Rate) burst() float64 {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.PerMinute
}

// capacity is the most that one call may ask for.
func (r Rate) capacity() float64 {
	if r.Window == Minute || r.Window == Sliding {
		return r.PerMinute
	}
	return r.burst()
}

// Charge says how the tokens of a call are counted.
type Charge string

// The ways of counting tokens.
const (
	// Reserve takes the input and max_tokens at the start, and settles to the input and the output
	// times Burndown at the end, as Bedrock does. It is what an empty Charge means.
	Reserve Charge = "reserve"
	// Estimate takes the larger of the input and max_tokens at the start, and settles nothing, as
	// OpenAI does.
	Estimate Charge = "estimate"
)

// Limits are all quotas of one model. The zero value limits nothing.
type Limits struct {
	// Concurrency is the number of calls in flight; 0 is no limit.
	Concurrency int
	// Requests and Tokens are per minute.
	Requests, Tokens Rate
	// Charge is Reserve when empty.
	Charge Charge
	// Burndown is how many tokens one token of output costs at settlement; 0 means 1.
	Burndown float64
	// DefaultMaxTokens is reserved for a call that names no max_tokens; 0 reserves none.
	DefaultMaxTokens int
}

// Validate joins all that is wrong.
func (l Limits) Validate() error {
	var faults []error
	if l.Concurrency < 0 {
		faults = append(faults, fmt.Errorf("concurrency %d: want 0 (no limit) or more", l.Concurrency))
	}
	if l.Burndown < 0 || math.IsNaN(l.Burndown) || math.IsInf(l.Burndown, 0) {
		faults = append(faults, fmt.Errorf("burndown %v: want 0 or more", l.Burndown))
	}
	if l.DefaultMaxTokens < 0 {
		faults = append(faults, fmt.Errorf("default_max_tokens %d: want 0 or more", l.DefaultMaxTokens))
	}
	switch l.Charge {
	case "", Reserve, Estimate:
	default:
		faults = append(faults, fmt.Errorf("charge %q: want reserve or estimate", l.Charge))
	}
	for _, each := range []struct {
		name string
		rate Rate
	}{{"rpm", l.Requests}, {"tpm", l.Tokens}} {
		if err := each.rate.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", each.name, err))
		}
	}
	return errors.Join(faults...)
}

// Validate joins all that is wrong.
func (r Rate) Validate() error {
	var faults []error
	for name, v := range map[string]float64{"quota": r.PerMinute, "burst": r.Burst} {
		if v < 0 || math.IsNaN(v) || v > 1e15 {
			faults = append(faults, fmt.Errorf("%s %v: want 0 to 1e15", name, v))
		}
	}
	if r.Skew < -time.Minute || r.Skew > time.Minute {
		faults = append(faults, fmt.Errorf("skew %v: want at most a minute", r.Skew))
	}
	switch r.Window {
	case "", Bucket, Minute, Sliding:
	default:
		faults = append(faults, fmt.Errorf("window %q: want bucket, minute or sliding", r.Window))
	}
	if r.Burst > 0 && (r.Window == Minute || r.Window == Sliding) {
		faults = append(faults, fmt.Errorf("burst %v: a quota by %s has none", r.Burst, r.Window))
	}
	if r.PerMinute == 0 && r != (Rate{}) {
		faults = append(faults, errors.New("limits nothing without a quota: want a quota of more than 0 a minute"))
	}
	return errors.Join(faults...)
}

// Scale multiplies every quota, as in a slow recovery. A limit that was there is never scaled to
// none: at least one call may be in flight, and rates keep a millionth.
func (l Limits) Scale(factor float64) Limits {
	if l.Concurrency > 0 {
		l.Concurrency = max(1, int(float64(l.Concurrency)*factor))
	}
	factor = max(factor, 1e-6)
	for _, r := range []*Rate{&l.Requests, &l.Tokens} {
		r.PerMinute *= factor
		r.Burst *= factor
	}
	if l.Requests.PerMinute > 0 && l.Requests.Burst > 0 {
		l.Requests.Burst = max(1, l.Requests.Burst) // a bucket below one call would never give one
	}
	return l
}

// Need is what a call asks for.
type Need struct {
	// Input tokens.
	Input int
	// MaxTokens that the answer may have; 0 if the call doesn't say.
	MaxTokens int
}

// Used is what a call has used up when it ends.
type Used struct{ Input, Output int }

func (l Limits) reserve(n Need) float64 {
	limit := n.MaxTokens
	if limit == 0 {
		limit = l.DefaultMaxTokens
	}
	if l.Charge == Estimate {
		return float64(max(limit, n.Input))
	}
	return float64(n.Input + limit)
}

// charged is what a call that reserved so much costs in the end.
func (l Limits) charged(reserved float64, u Used) float64 {
	if l.Charge == Estimate {
		return reserved
	}
	burndown := l.Burndown
	if burndown == 0 {
		burndown = 1
	}
	return float64(u.Input) + burndown*float64(u.Output)
}
