package retry_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

const almostOne = 0.999999999

// D2: the curve's four steps, and the cap after a throttle.
func TestCurve_BoundsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	p := retry.Default()
	throttle := p.Curve
	throttle.Max = p.ThrottleMax
	full := p.Curve
	full.FullJitter = true
	for _, tc := range []struct {
		name  string
		curve retry.Curve
		want  []string
	}{
		{"failure", p.Curve, []string{"1s-2.5s", "4s-10s", "16s-30s", "30s-30s", "30s-30s"}},
		{"throttle", throttle, []string{"1s-2.5s", "4s-10s", "10s-10s", "10s-10s"}},
		{"full jitter", full, []string{"0s-1s", "0s-4s", "0s-16s", "0s-30s", "0s-30s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for n, want := range tc.want {
				if low, high := tc.curve.Bounds(n); fmt.Sprintf("%v-%v", low, high) != want {
					t.Errorf("repeat %d waits %v-%v, want %s", n, low, high, want)
				}
			}
			if _, high := tc.curve.Bounds(100_000); high != tc.curve.Max {
				t.Errorf("a repeat far out waits %v, want %v", high, tc.curve.Max)
			}
		})
	}
}

// D2, D3: a delay lies inside its curve, whatever the curve, the repeat and chance.
func TestCurve_DelayLiesInsideItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCurve(rt)
		n := rapid.IntRange(0, 400).Draw(rt, "n")
		low, high := c.Bounds(n)
		if low < 0 || low > high || high > c.Max {
			rt.Fatalf("bounds %v-%v of %+v", low, high, c)
		}
		if d := c.Delay(n, rapid.Float64Range(0, almostOne).Draw(rt, "u")); d < low || d > high {
			rt.Fatalf("delay %v outside %v-%v", d, low, high)
		}
		if nextLow, nextHigh := c.Bounds(n + 1); nextLow < low || nextHigh < high {
			rt.Fatalf("repeat %d waits %v-%v, the one before %v-%v", n+1, nextLow, nextHigh, low, high)
		}
	})
}

func drawCurve(rt *rapid.T) retry.Curve {
	base := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(rt, "base"))
	return retry.Curve{
		Base: base, Multiplier: rapid.Float64Range(1, 10).Draw(rt, "multiplier"), Spread: rapid.Float64Range(1, 10).Draw(rt, "spread"),
		Max: base + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "max")), FullJitter: rapid.Bool().Draw(rt, "full"),
	}
}

func window(left time.Duration) retry.Window {
	now := time.Unix(1_800_000_000, 0)
	return retry.Window{Now: now, Deadline: now.Add(left), Least: time.Second}
}

// D2, D3, H14, H15d.
func TestDecide_Table(t *testing.T) {
	t.Parallel()
	process := func(w retry.Window, left time.Duration) retry.Window { w.Limit = w.Now.Add(left); return w }
	queued := retry.Default()
	queued.SleepMost = 10 * time.Second
	for _, tc := range []struct {
		name    string
		policy  retry.Policy
		failure retry.Failure
		tries   retry.Tries
		window  retry.Window
		u       float64
		want    retry.Decision
	}{
		{"first failure", retry.Default(), retry.Failure{}, retry.Tries{Made: 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, time.Second, "backoff"}},
		{"first failure, late", retry.Default(), retry.Failure{}, retry.Tries{Made: 1}, window(time.Hour), 0.5, retry.Decision{retry.Sleep, 1750 * time.Millisecond, "backoff"}},
		{"second failure", retry.Default(), retry.Failure{}, retry.Tries{Made: 2}, window(time.Hour), 0, retry.Decision{retry.Sleep, 4 * time.Second, "backoff"}},
		{"third failure is the last", retry.Default(), retry.Failure{}, retry.Tries{Made: 3}, window(time.Hour), 0, retry.Decision{Move: retry.Next, Why: "tried_enough"}},
		{"third throttle is capped", retry.Default(), retry.Failure{Throttled: true}, retry.Tries{3, 3}, window(time.Hour), 0.5, retry.Decision{retry.Sleep, 10 * time.Second, "backoff"}},
		{"fifth throttle", retry.Default(), retry.Failure{Throttled: true}, retry.Tries{5, 5}, window(time.Hour), 0, retry.Decision{retry.Sleep, 10 * time.Second, "backoff"}},
		{"sixth throttle is the last", retry.Default(), retry.Failure{Throttled: true}, retry.Tries{6, 6}, window(time.Hour), 0, retry.Decision{Move: retry.Next, Why: "tried_enough"}},
		{"two throttles and a failure", retry.Default(), retry.Failure{}, retry.Tries{3, 2}, window(time.Hour), 0, retry.Decision{retry.Sleep, 16 * time.Second, "backoff"}},
		{"three failures among throttles", retry.Default(), retry.Failure{}, retry.Tries{5, 2}, window(time.Hour), 0, retry.Decision{Move: retry.Next, Why: "tried_enough"}},
		{"retry-after below the draw", retry.Default(), retry.Failure{RetryAfter: 350 * time.Millisecond}, retry.Tries{Made: 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, time.Second, "backoff"}},
		{"retry-after above the draw", retry.Default(), retry.Failure{Throttled: true, RetryAfter: 7 * time.Second}, retry.Tries{1, 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, 7 * time.Second, "backoff"}},
		{"retry-after above the draw, late", retry.Default(), retry.Failure{Throttled: true, RetryAfter: 7 * time.Second}, retry.Tries{1, 1}, window(time.Hour), 0.5, retry.Decision{retry.Sleep, 7350 * time.Millisecond, "backoff"}},
		{"retry-after above the throttle cap is slept", retry.Default(), retry.Failure{Throttled: true, RetryAfter: 25 * time.Second}, retry.Tries{1, 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, 25 * time.Second, "backoff"}},
		{"retry-after above the cap is handed back", retry.Default(), retry.Failure{Throttled: true, RetryAfter: 6 * time.Minute}, retry.Tries{1, 1}, window(time.Hour), 0, retry.Decision{retry.HandBack, 6 * time.Minute, "retry_after"}},
		{"retry-after beyond the deadline", retry.Default(), retry.Failure{Throttled: true, RetryAfter: 24 * time.Hour}, retry.Tries{1, 1}, window(time.Hour), 0, retry.Decision{Move: retry.Next, Why: "deadline"}},
		{"retry-after beyond all time", retry.Default(), retry.Failure{RetryAfter: 1<<63 - 1}, retry.Tries{1, 1}, window(time.Hour), 0.9, retry.Decision{Move: retry.Next, Why: "deadline"}},
		{"a negative wish is none", retry.Default(), retry.Failure{RetryAfter: -5 * time.Second}, retry.Tries{Made: 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, time.Second, "backoff"}},
		{"the sleep would leave less than an attempt needs", retry.Default(), retry.Failure{}, retry.Tries{Made: 1}, window(1999 * time.Millisecond), 0, retry.Decision{Move: retry.Next, Why: "deadline"}},
		{"the sleep leaves just that", retry.Default(), retry.Failure{}, retry.Tries{Made: 1}, window(2 * time.Second), 0, retry.Decision{retry.Sleep, time.Second, "backoff"}},
		{"the process ends before", retry.Default(), retry.Failure{}, retry.Tries{Made: 2}, process(window(time.Hour), 4*time.Second), 0, retry.Decision{retry.HandBack, 4 * time.Second, "out_of_time"}},
		{"both end before", retry.Default(), retry.Failure{}, retry.Tries{Made: 2}, process(window(4*time.Second), time.Second), 0, retry.Decision{Move: retry.Next, Why: "deadline"}},
		{"a long sleep is handed back where sleeping costs", queued, retry.Failure{RetryAfter: 20 * time.Second}, retry.Tries{Made: 1}, window(time.Hour), 0, retry.Decision{retry.HandBack, 20 * time.Second, "long_sleep"}},
		{"the longest that is not", queued, retry.Failure{RetryAfter: 10 * time.Second}, retry.Tries{Made: 1}, window(time.Hour), 0, retry.Decision{retry.Sleep, 10 * time.Second, "backoff"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.policy.Decide(tc.failure, tc.tries, tc.window, tc.u); got != tc.want {
				t.Errorf("Decide = %+v, want %+v", got, tc.want)
			}
		})
	}
}

// D2, D3: no wait passes deadline or limit, ends before the provider's wish, or is later
// than it by more than the jitter; and no target is tried without end.
func TestDecide_HoldsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := retry.Policy{
			Curve: drawCurve(rt), ThrottleMax: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "throttle max")),
			Attempts: rapid.IntRange(1, 10).Draw(rt, "attempts"), ThrottleAttempts: rapid.IntRange(1, 10).Draw(rt, "throttle attempts"),
			SleepMost: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "sleep most")),
		}
		w := window(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Hour)).Draw(rt, "deadline")))
		if rapid.Bool().Draw(rt, "limited") {
			w.Limit = w.Now.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Hour)).Draw(rt, "limit")))
		}
		var tries retry.Tries
		for made := 1; ; made++ {
			f := retry.Failure{Throttled: rapid.Bool().Draw(rt, "throttled"), RetryAfter: time.Duration(rapid.Int64Range(-1, int64(2*time.Hour)).Draw(rt, "after"))}
			tries.Made++
			if f.Throttled {
				tries.Throttled++
			}
			d := p.Decide(f, tries, w, rapid.Float64Range(0, almostOne).Draw(rt, "u"))
			if d.Move == retry.Next {
				return
			}
			if made >= max(p.Attempts, p.ThrottleAttempts) {
				rt.Fatalf("try %d is followed by %+v", made, d)
			}
			back := w.Now.Add(d.After + w.Least)
			if back.After(w.Deadline) || (d.Move == retry.Sleep && back.After(w.End())) {
				rt.Fatalf("%+v leaves no time in %+v", d, w)
			}
			if d.After < f.RetryAfter || (d.Move == retry.Sleep && d.After > p.SleepMost) {
				rt.Fatalf("%+v after %+v with %+v", d, f, p)
			}
			low, high := p.Curve.Bounds(tries.Made - 1)
			if limit := max(high, f.RetryAfter+high-low); d.After > limit {
				rt.Fatalf("%+v is later than %v", d, limit)
			}
		}
	})
}

func TestWindow_EndIsTheNearest(t *testing.T) {
	t.Parallel()
	w := window(time.Minute)
	if w.End() != w.Deadline || w.Bound(w.Now) != w.Now || w.Bound(w.Deadline.Add(1)) != w.Deadline {
		t.Errorf("without a limit the end is %v", w.End())
	}
	w.Limit = w.Now.Add(time.Second)
	if w.End() != w.Limit || w.Bound(w.Deadline) != w.Limit {
		t.Errorf("the end is %v, want the nearer limit", w.End())
	}
	w.Limit = w.Deadline.Add(time.Second)
	if w.End() != w.Deadline {
		t.Errorf("the end is %v, want the nearer deadline", w.End())
	}
}
