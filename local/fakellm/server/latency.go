package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Latency says how long calls take: until the first token a drawn time and the time to read the
// input, and from there on the time to speak. A call that is no stream is answered when all is
// said. The zero value is no wait at all.
type Latency struct {
	// Distribution is Fixed when empty.
	Distribution Distribution
	// Mean is the average time to the first token, before it is cut to Min and Max.
	Mean time.Duration
	// Deviation is the standard deviation of Normal and Lognormal, of the latency itself for both.
	Deviation time.Duration
	// Min and Max bound what is drawn; a Max of 0 means an hour, but for Uniform it is the bound.
	Min, Max time.Duration
	// Speed is in tokens of output a second; 0 says everything at once.
	Speed float64
	// SpeedDeviation is the standard deviation of the calls' speeds, which are lognormal.
	SpeedDeviation float64
	// InputSpeed is in tokens of input a second; 0 reads everything at once.
	InputSpeed float64
	// Seed makes the sequence of latencies the same each time, for SetLatency; in a Rule the
	// rule's own Seed counts. Calls that run side by side share the sequence, in the order in
	// which they begin.
	Seed uint64
}

func (l Latency) spread() Spread {
	s := Spread{
		Distribution: l.Distribution, Mean: l.Mean.Seconds(), Deviation: l.Deviation.Seconds(),
		Min: l.Min.Seconds(), Max: l.Max.Seconds(),
	}
	if s.Max == 0 && s.Distribution != Uniform {
		s.Max = maxDelay.Seconds()
	}
	return s
}

// maxSpeed is in tokens a second.
const maxSpeed = 1e9

func (l Latency) validate() error {
	var faults []error
	for _, v := range []struct {
		name  string
		value time.Duration
	}{{"mean_ms", l.Mean}, {"deviation_ms", l.Deviation}, {"min_ms", l.Min}, {"max_ms", l.Max}} {
		if v.value < 0 || v.value > maxDelay {
			faults = append(faults, at(v.name, fmt.Errorf("%v: want 0 to %v", v.value, maxDelay)))
		}
	}
	if len(faults) == 0 {
		faults = append(faults, l.spread().validateShape())
	}
	for _, v := range []struct {
		name  string
		value float64
	}{{"speed", l.Speed}, {"speed_deviation", l.SpeedDeviation}, {"input_speed", l.InputSpeed}} {
		if v.value != 0 && !(v.value >= 0.001 && v.value <= maxSpeed) {
			faults = append(faults, at(v.name, fmt.Errorf("%v: want 0 or 0.001 to %v tokens a second", v.value, float64(maxSpeed))))
		}
	}
	if l.SpeedDeviation > 0 && l.Speed == 0 {
		faults = append(faults, at("speed_deviation", errors.New("wants a speed")))
	}
	return errors.Join(faults...)
}

// draw returns the next time to the first token of an input, and the time that each token takes.
func (l Latency) draw(rng *rand.Rand, input int) (first, perToken time.Duration) {
	seconds := l.spread().draw(rng)
	if l.InputSpeed > 0 {
		seconds += float64(input) / l.InputSpeed
	}
	first = time.Duration(min(seconds, maxDelay.Seconds()) * float64(time.Second))
	if l.Speed > 0 {
		speed := l.Speed // as it is: a lognormal without a spread is off by a rounding error
		if l.SpeedDeviation > 0 {
			speed = Spread{Distribution: Lognormal, Mean: l.Speed, Deviation: l.SpeedDeviation, Min: 0.001}.draw(rng)
		}
		perToken = time.Duration(float64(time.Second) / speed)
	}
	return first, perToken
}

// stream is the second word of every generator's seed, so that a caller's one number is enough.
const stream = 0x66616b656c6c6d // "fakellm"

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) // latencies and throttles are no secrets, and must repeat
}
