package main

import (
	"math"

	"github.com/llm-queue/llmq/local/percentile"
)

// score is what an outcome is worth next to the oracle's on the same calls. Ratios are
// from 0; a wait is in virtual ms.
type score struct {
	Goodput   float64 // accepted in the steady part (where the provider is stocked, in all) / the oracle's
	Throttled float64 // part of the attempts of the steady part
	To90      float64 // s from the start until 20 s carry 90 % of the oracle's
	Back90    float64 // the same from the step on; 0 where there is none
	RTWait    float64 // p95 from arrival to start
	OracleRT  float64
	RTLost    float64 // rt calls that gave up, of those that came
	Skew      float64 // how far the lanes' parts of the calls lie from the oracle's, most of the three
	BulkGap   float64 // s, the longest time without a start of bg or bulk
}

func sum[T int | float64](v []T) (t T) {
	for _, x := range v {
		t += x
	}
	return t
}

func rate(sc *scenario, got, ideal *outcome) score {
	from, to := sc.steady/second, sc.length/second
	counted := from
	if sc.stocked {
		counted = 0
	}
	s := score{
		Goodput:   sum(got.accepted[counted:to]) / sum(ideal.accepted[counted:to]),
		Throttled: float64(sum(got.throttled[from:to])) / math.Max(1, float64(sum(got.attempts[from:to]))),
		To90:      reaches90(got, ideal, 0, to),
		RTWait:    p95(got.rtWaits),
		OracleRT:  p95(ideal.rtWaits),
		RTLost:    float64(got.rtLost) / math.Max(1, float64(got.started[laneRT]+got.rtLost)),
		BulkGap:   float64(got.bulkGap) / second,
	}
	if sc.stepAt > 0 {
		s.Back90 = reaches90(got, ideal, sc.stepAt/second, to)
	}
	for l := range got.started {
		s.Skew = math.Max(s.Skew, math.Abs(part(got.started, l)-part(ideal.started, l)))
	}
	return s
}

func part(started [3]int, of int) float64 {
	return float64(started[of]) / math.Max(1, float64(sum(started[:])))
}

// reaches90 is how many seconds after from it takes until 20 s carry 90 % of the oracle's
// calls; a run that never does gives +Inf.
func reaches90(got, ideal *outcome, from, to int64) float64 {
	const span = 20
	for i := from; i+span < to; i++ {
		if sum(got.accepted[i:i+span]) >= 0.9*sum(ideal.accepted[i:i+span]) {
			return float64(i - from)
		}
	}
	return math.Inf(1)
}

// p95 is the wait that one in twenty exceeds; 0 where nobody came.
func p95(waits []float64) float64 {
	v, _ := percentile.Of(waits, 95)
	return v
}

// mean is the mean of several seeds; of times it is the median, since one may be endless.
func mean(of []score) score {
	var m score
	n := float64(len(of))
	median := func(get func(score) float64) float64 {
		var v []float64
		for _, s := range of {
			v = append(v, get(s))
		}
		m, _ := percentile.Of(v, 50)
		return m
	}
	for _, s := range of {
		m.Goodput += s.Goodput / n
		m.Throttled += s.Throttled / n
		m.RTWait += s.RTWait / n
		m.OracleRT += s.OracleRT / n
		m.RTLost += s.RTLost / n
		m.Skew += s.Skew / n
		m.BulkGap = math.Max(m.BulkGap, s.BulkGap)
	}
	m.To90 = median(func(s score) float64 { return s.To90 })
	m.Back90 = median(func(s score) float64 { return s.Back90 })
	return m
}
