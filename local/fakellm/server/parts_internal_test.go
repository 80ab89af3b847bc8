package server

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The schedule is a pure function: phases follow each other without a gap, loops begin again, and
// a factor stays between its ends.
func TestRule_AtIsTheScheduleItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Loop: rapid.Bool().Draw(t, "loop")}
		var all time.Duration
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			p := Phase{
				For:  time.Duration(rapid.IntRange(1, 100).Draw(t, "for_ms")) * time.Millisecond,
				From: rapid.Float64Range(0.1, 2).Draw(t, "from"), To: rapid.Float64Range(0.1, 2).Draw(t, "to"),
			}
			all += p.For
			r.Phases = append(r.Phases, p)
		}
		elapsed := time.Duration(rapid.IntRange(0, 2000).Draw(t, "elapsed_ms")) * time.Millisecond
		p, number, factor := r.at(elapsed)
		if factor < min(p.From, p.To)-1e-9 || factor > max(p.From, p.To)+1e-9 {
			t.Fatalf("factor %v of %v to %v", factor, p.From, p.To)
		}
		var before time.Duration
		for _, each := range r.Phases[:number] {
			before += each.For
		}
		within := elapsed
		if r.Loop {
			within %= all
		}
		last := number == len(r.Phases)-1
		if within < before || within >= before+p.For && (r.Loop || !last) {
			t.Fatalf("phase %d after %v, loop %t", number, elapsed, r.Loop)
		}
		if progress := float64(within-before) / float64(p.For); progress <= 1 && math.Abs(factor-(p.From+(p.To-p.From)*progress)) > 1e-9 {
			t.Fatalf("factor %v at %v of the phase", factor, progress)
		}
	})
}

func TestSpread_DrawsItsMean(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Spread{
		"fixed":       {Mean: 5},
		"uniform":     {Distribution: Uniform, Min: 0, Max: 10},
		"normal":      {Distribution: Normal, Mean: 5, Deviation: 1},
		"lognormal":   {Distribution: Lognormal, Mean: 5, Deviation: 5},
		"exponential": {Distribution: Exponential, Mean: 5},
	} {
		if err := s.validate(100); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rng, sum := newRand(1), 0.0
		const n = 100_000
		for range n {
			v := s.draw(rng)
			if v < 0 {
				t.Fatalf("%s drew %v", name, v)
			}
			sum += v
		}
		if mean := sum / n; math.Abs(mean-5) > 0.1 {
			t.Errorf("%s: mean %v, want 5", name, mean)
		}
	}
	if got := (Spread{Distribution: Exponential, Mean: 5, Min: 2, Max: 3}); got.draw(newRand(1)) < 2 || got.draw(newRand(2)) > 3 {
		t.Error("not cut")
	}
	if (Spread{}).draw(newRand(1)) != 0 {
		t.Error("the zero value is not 0")
	}
}

func TestRepeats_ForgetTheOldest(t *testing.T) {
	t.Parallel()
	r := newRepeats()
	of := func(i int) mark { return mark{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range maxMarks + 10 {
		if r.note(of(i)) {
			t.Fatalf("mark %d was there", i)
		}
	}
	if !r.note(of(maxMarks)) || !r.note(of(10)) || r.note(of(9)) || len(r.seen) != maxMarks {
		t.Errorf("%d marks kept, or the wrong ones", len(r.seen))
	}
}

func TestTimeline_IsBounded(t *testing.T) {
	t.Parallel()
	var l timeline
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for i := range maxSeconds + 100 {
		l.at(start.Add(time.Duration(i) * time.Second)).Calls = i
		l.at(start) // a clock that goes back counts in the latest second
	}
	if last := l[len(l)-1]; len(l) != maxSeconds/2+100 || last.Calls != maxSeconds+99 || l[0].Calls != maxSeconds/2 {
		t.Errorf("%d seconds, from %d to %d", len(l), l[0].Calls, last.Calls)
	}
	models := timelines{}
	for i := range 2 * maxTimelines {
		models.of(itoa(i), start)
	}
	if len(models) != maxTimelines+1 {
		t.Errorf("%d timelines", len(models))
	}
}
