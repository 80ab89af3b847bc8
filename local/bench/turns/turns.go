// Package turns measures one thing beside another: a benchmark and its baseline take turns in one process, so that whatever else the
// machine does falls on both, and what is told is the ratio of the two.
package turns

import (
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// Rounds are as many as give a median that one disturbed round does not move.
const Rounds = 5

// Ratio is how ours and a baseline compare. Make it by [Compare].
type Ratio struct {
	Time   float64 // ours ÷ the baseline's, the median of the rounds
	Allocs float64 // of one call of ours, in the whole process: a whole number, the least of the rounds, since all else only adds
}

// Compare runs calls of ours and of the baseline, calls each in a round, one after the other. Each is given a number that no other
// call has. A first round, which is not counted, warms up.
func Compare(b *testing.B, calls int, ours, baseline func(i int)) Ratio {
	b.Helper()
	var ratios, allocs []float64
	next := 0
	turn := func(f func(i int)) time.Duration {
		began := time.Now()
		for range calls {
			next++
			f(next)
		}
		return time.Since(began)
	}
	for round := range Rounds + 1 {
		least := turn(baseline)
		// What is pooled stays pooled: a collection in the middle would make it be allocated again.
		runtime.GC()
		percent := debug.SetGCPercent(-1)
		before := mallocs()
		took := turn(ours)
		made := float64(mallocs()-before) / float64(calls)
		debug.SetGCPercent(percent)
		if round > 0 {
			ratios, allocs = append(ratios, float64(took)/float64(least)), append(allocs, made)
		}
	}
	return Ratio{Time: Median(ratios), Allocs: math.Round(slices.Min(allocs))}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Median is the middle one of v, which must not be empty; of an even number of values the higher of the two in the middle.
func Median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
