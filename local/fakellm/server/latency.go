package server

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Distribution names how latencies are spread.
type Distribution string

// The distributions that a Latency may have.
const (
	Fixed     Distribution = "fixed"     // always Mean
	Uniform   Distribution = "uniform"   // from Min to Max
	Normal    Distribution = "normal"    // Mean and Deviation, cut to Min and Max
	Lognormal Distribution = "lognormal" // the same, with the long tail that real providers have
)

// Latency says how long calls take. The zero value is no wait at all.
type Latency struct {
	// Distribution is Fixed when empty.
	Distribution Distribution
	// Mean is the average, before it is cut to Min and Max.
	Mean time.Duration
	// Deviation is the standard deviation of Normal and Lognormal, of the latency itself for both.
	Deviation time.Duration
	// Min and Max bound what is drawn; a Max of 0 means an hour, but for Uniform it is the bound.
	Min, Max time.Duration
	// Seed makes the sequence of latencies the same each time. Calls that run side by side share
	// the sequence, in the order in which they begin.
	Seed uint64
}

func (l Latency) validate() error {
	var faults []error
	for name, d := range map[string]time.Duration{"mean": l.Mean, "deviation": l.Deviation, "min": l.Min, "max": l.Max} {
		if d < 0 || d > maxDelay {
			faults = append(faults, fmt.Errorf("%s %v: want 0 to %v", name, d, maxDelay))
		}
	}
	switch l.Distribution {
	case "", Fixed, Normal:
	case Uniform:
		if l.Max < l.Min {
			faults = append(faults, fmt.Errorf("max %v: want at least min, %v", l.Max, l.Min))
		}
	case Lognormal:
		if l.Mean == 0 {
			faults = append(faults, errors.New("mean 0: a lognormal latency needs more"))
		}
	default:
		faults = append(faults, fmt.Errorf("distribution %q: want fixed, uniform, normal or lognormal", l.Distribution))
	}
	if l.Max != 0 && l.Max < l.Min && l.Distribution != Uniform {
		faults = append(faults, fmt.Errorf("max %v: want 0 or at least min, %v", l.Max, l.Min))
	}
	return errors.Join(faults...)
}

// stream is the second word of every generator's seed, so that a caller's one number is enough.
const stream = 0x66616b656c6c6d // "fakellm"

// draw returns the next latency of a validated l.
func (l Latency) draw(rng *rand.Rand) time.Duration {
	mean, deviation := l.Mean.Seconds(), l.Deviation.Seconds()
	var seconds float64
	switch l.Distribution {
	case Uniform:
		return l.Min + time.Duration(rng.Int64N(int64(l.Max-l.Min)+1))
	case Normal:
		seconds = mean + deviation*rng.NormFloat64()
	case Lognormal:
		// The parameters of the underlying normal that give this mean and deviation.
		variance := math.Log1p((deviation / mean) * (deviation / mean))
		seconds = math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*rng.NormFloat64())
	case Fixed:
		return l.cut(l.Mean)
	default: // empty
		return l.cut(l.Mean)
	}
	limit := maxDelay.Seconds()
	return l.cut(time.Duration(min(max(seconds, 0), limit) * float64(time.Second)))
}

func (l Latency) cut(d time.Duration) time.Duration {
	ceiling := l.Max
	if ceiling == 0 {
		ceiling = maxDelay
	}
	return min(max(d, l.Min), ceiling)
}
