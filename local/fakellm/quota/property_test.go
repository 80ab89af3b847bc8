package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

type running struct {
	grant quota.Grant
	input int
	ends  time.Time
}

// drive runs a random load against limits and tells of each start that was let in.
func drive(t *rapid.T, l quota.Limits, each func(at time.Time, reserved float64, inFlight int)) {
	var m quota.Meter
	var calls []running
	now := start()
	for range rapid.IntRange(1, 300).Draw(t, "steps") {
		now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "gap_ms")) * time.Millisecond)
		kept := calls[:0]
		for _, c := range calls {
			if c.ends.After(now) {
				kept = append(kept, c)
				continue
			}
			m.End(now, l, c.grant, quota.Used{Input: c.input, Output: rapid.IntRange(0, 100).Draw(t, "output")})
		}
		calls = kept
		need := quota.Need{Input: rapid.IntRange(0, 60).Draw(t, "input"), MaxTokens: rapid.IntRange(0, 100).Draw(t, "max")}
		grant, refused := m.Start(now, l, need)
		if refused == nil {
			calls = append(calls, running{grant, need.Input, now.Add(time.Duration(rapid.IntRange(0, 9000).Draw(t, "lasts_ms")) * time.Millisecond)})
			each(now, grant.Reserved, len(calls))
		}
		if m.InFlight() != len(calls) {
			t.Fatalf("%d in flight, the meter says %d", len(calls), m.InFlight())
		}
	}
}

func TestMeter_ConcurrencyNeverAboveQuota(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		quotaOf := rapid.IntRange(1, 5).Draw(t, "quota")
		drive(t, quota.Limits{Concurrency: quotaOf}, func(_ time.Time, _ float64, inFlight int) {
			if inFlight > quotaOf {
				t.Fatalf("%d in flight, quota %d", inFlight, quotaOf)
			}
		})
	})
}

func TestMeter_NeverMoreThanQuotaInACalendarMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		perMinute := rapid.IntRange(1, 30).Draw(t, "quota")
		skew := time.Duration(rapid.IntRange(-2000, 2000).Draw(t, "skew_ms")) * time.Millisecond
		calls := map[time.Time]int{}
		drive(t, quota.Limits{Requests: quota.Rate{PerMinute: float64(perMinute), Window: quota.Minute, Skew: skew}},
			func(at time.Time, _ float64, _ int) {
				minute := at.Add(skew).Truncate(time.Minute)
				if calls[minute]++; calls[minute] > perMinute {
					t.Fatalf("%d calls in minute %v, quota %d", calls[minute], minute, perMinute)
				}
			})
	})
}

// In any stretch of time a bucket gives no more than its burst and what flows in meanwhile, and a
// sliding window no more than its quota a minute.
func TestMeter_NeverMoreThanItsWindowAllows(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(r quota.Rate, stretch time.Duration) float64{
		"bucket": func(r quota.Rate, stretch time.Duration) float64 { return r.Burst + r.PerMinute*stretch.Minutes() },
		"sliding": func(r quota.Rate, stretch time.Duration) float64 {
			if stretch >= time.Minute {
				return 1e9
			}
			return r.PerMinute
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				r := quota.Rate{PerMinute: float64(rapid.IntRange(1, 60).Draw(t, "quota")), Window: quota.Window(name)}
				if name == "bucket" {
					r.Burst = float64(rapid.IntRange(1, 20).Draw(t, "burst"))
				}
				var at []time.Time
				drive(t, quota.Limits{Requests: r}, func(now time.Time, _ float64, _ int) {
					at = append(at, now)
					for i, from := range at {
						if n := float64(len(at) - i); n > limit(r, now.Sub(from))+1e-3 {
							t.Fatalf("%v calls within %v", n, now.Sub(from))
						}
					}
				})
			})
		})
	}
}

// What is reserved, settled or not, never passes the quota: tokens that are given back were taken.
func TestMeter_ReservationsNeverPassTheTokenQuota(t *testing.T) {
	t.Parallel()
	for _, window := range []quota.Window{quota.Bucket, quota.Minute, quota.Sliding} {
		t.Run(string(window), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				l := quota.Limits{Tokens: quota.Rate{PerMinute: 500, Window: window}, Burndown: 5}
				var m quota.Meter
				now := start()
				used := 0.0 // since the last minute began, give or take what flowed in
				begun := now
				for range rapid.IntRange(1, 60).Draw(t, "calls") {
					now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "gap_ms")) * time.Millisecond)
					need := quota.Need{Input: rapid.IntRange(1, 60).Draw(t, "input"), MaxTokens: rapid.IntRange(0, 100).Draw(t, "max")}
					g, refused := m.Start(now, l, need)
					if refused != nil {
						continue
					}
					allowed := 500.0
					if window == quota.Bucket {
						allowed += 500 * now.Sub(begun).Minutes()
					}
					if window != quota.Bucket && now.Sub(begun) >= 50*time.Second {
						return // the next minute, or the first calls leave the window
					}
					if used+g.Reserved > allowed+1e-3 {
						t.Fatalf("%v tokens used and %v let in, quota %v", used, g.Reserved, allowed)
					}
					used += m.End(now, l, g, quota.Used{Input: need.Input, Output: rapid.IntRange(0, need.MaxTokens).Draw(t, "output")})
				}
			})
		})
	}
}

// The twin of the above, for a meter that lets nobody in is always safe: after the time that a
// refusal names, the call is let in.
func TestMeter_RefusedCallIsLetInWhenItWasTold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.SampledFrom([]quota.Window{quota.Bucket, quota.Minute, quota.Sliding}).Draw(t, "window")
		l := quota.Limits{
			Requests: quota.Rate{PerMinute: float64(rapid.IntRange(1, 100).Draw(t, "rpm")), Window: window},
			Tokens:   quota.Rate{PerMinute: float64(rapid.IntRange(200, 2000).Draw(t, "tpm")), Window: window},
		}
		var m quota.Meter
		now := start()
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "gap_ms")) * time.Millisecond)
			need := quota.Need{Input: rapid.IntRange(0, 100).Draw(t, "input"), MaxTokens: rapid.IntRange(0, 100).Draw(t, "max")}
			_, refused := m.Start(now, l, need)
			for tries := 0; refused != nil; tries++ { // at most one refusal for each quota
				if refused.Never || refused.After <= 0 || refused.After > 2*time.Minute || tries == 2 {
					t.Fatalf("refusal %+v at try %d", refused, tries)
				}
				now = now.Add(refused.After)
				_, refused = m.Start(now, l, need)
			}
		}
	})
}
