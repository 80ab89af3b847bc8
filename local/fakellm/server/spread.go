package server

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Distribution names how drawn values are spread.
type Distribution string

// The distributions that a Spread or a Latency may have.
const (
	Fixed       Distribution = "fixed"       // always Mean
	Uniform     Distribution = "uniform"     // from Min to Max
	Normal      Distribution = "normal"      // Mean and Deviation
	Lognormal   Distribution = "lognormal"   // the same, with the long tail that real providers have
	Exponential Distribution = "exponential" // Mean alone
)

// Spread is a random number. All but Uniform are cut to Min and Max; a Max of 0 is none. The zero
// value is always 0.
type Spread struct {
	// Distribution is Fixed when empty.
	Distribution Distribution
	// Mean is the average, before it is cut to Min and Max.
	Mean float64
	// Deviation is the standard deviation of Normal and Lognormal, of the value itself for both.
	Deviation float64
	Min, Max  float64
}

// validate wants everything from 0 to limit.
func (s Spread) validate(limit float64) error {
	faults := []error{s.validateShape()}
	for _, v := range []struct {
		name  string
		value float64
	}{{"mean", s.Mean}, {"deviation", s.Deviation}, {"min", s.Min}, {"max", s.Max}} {
		if !(v.value >= 0 && v.value <= limit) { // NaN is neither
			faults = append(faults, at(v.name, fmt.Errorf("%v: want 0 to %v", v.value, limit)))
		}
	}
	return errors.Join(faults...)
}

func (s Spread) validateShape() error {
	switch s.Distribution {
	case "", Fixed, Normal:
	case Uniform:
		if s.Max < s.Min {
			return at("max", fmt.Errorf("%v: want at least min, %v", s.Max, s.Min))
		}
	case Lognormal, Exponential:
		if s.Mean == 0 {
			return at("mean", fmt.Errorf("0: a spread that is %s needs more", s.Distribution))
		}
	default:
		return at("distribution", fmt.Errorf("%q: want fixed, uniform, normal, lognormal or exponential", s.Distribution))
	}
	if s.Max != 0 && s.Max < s.Min {
		return at("max", fmt.Errorf("%v: want 0 or at least min, %v", s.Max, s.Min))
	}
	return nil
}

// draw returns the next value of a validated s.
func (s Spread) draw(rng *rand.Rand) float64 {
	var v float64
	switch s.Distribution {
	case Uniform:
		return s.Min + (s.Max-s.Min)*rng.Float64()
	case Normal:
		v = s.Mean + s.Deviation*rng.NormFloat64()
	case Lognormal:
		// The parameters of the underlying normal that give this mean and deviation.
		variance := math.Log1p((s.Deviation / s.Mean) * (s.Deviation / s.Mean))
		v = math.Exp(math.Log(s.Mean) - variance/2 + math.Sqrt(variance)*rng.NormFloat64())
	case Exponential:
		v = s.Mean * rng.ExpFloat64()
	case Fixed:
		v = s.Mean
	default: // empty
		v = s.Mean
	}
	v = max(v, s.Min, 0)
	if s.Max > 0 {
		v = min(v, s.Max)
	}
	return v
}
