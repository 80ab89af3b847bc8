package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// The ways in which a learned limit fails, each a test. Features C1, C2, C4; issue 4.

// plain is a backlog without end, and some rt.
func plain(p provider, length int64) *scenario {
	sc := base("test", 2, p)
	sc.length, sc.steady = length, 0
	return sc
}

func goodputOf(sc *scenario, seed uint64, from, to int64, mine func(*provider) limiter) (float64, *outcome) {
	got, ideal := play(sc, seed, mine, false), play(sc, seed, newOracle, true)
	return sum(got.accepted[from:to]) / sum(ideal.accepted[from:to]), got
}

// Slots that grew tenfold are in use within a minute. Starts that did are not: of a small
// quota, half a minute goes by until 150 calls have started, and as long again until it is
// proven that more is taken than a bucket can have saved up; then the rate grows by a tenth a
// second. A minute after, it is on its way; after a minute and a half, it has arrived. Twice
// the growth would do it in a minute, at a third more throttles where quotas come and go.
func TestLaw_QuotaRaisedTenfoldIsFound(t *testing.T) {
	t.Parallel()
	p := law(t)
	for _, tc := range []struct {
		name             string
		provider         provider
		old              float64 // what the old quota carried, calls per second
		minute, andAHalf float64 // at least so many times that, a minute and a minute and a half after
	}{
		{"concurrency", provider{slots: between(20, 200, 120*second, math.MaxInt64)}, 20 / 5.0, 7.5, 8},
		{"RPM", provider{starts: between(300, 3000, 120*second, math.MaxInt64), startsBurst: 300}, 300 / 60.0, 1.8, 8},
	} {
		for seed := uint64(1); seed <= 3; seed++ {
			t.Run(fmt.Sprintf("%s, seed %d", tc.name, seed), func(t *testing.T) {
				t.Parallel()
				sc := plain(tc.provider, 220*second)
				sc.askers = 150
				got := play(sc, seed, p.limiter(capacity.DefaultLaw()), false)
				for at, times := range map[int]float64{60: tc.minute, 90: tc.andAHalf} {
					if rate := sum(got.accepted[115+at:125+at]) / 10; rate < times*tc.old {
						t.Errorf("%d s after, %.1f calls a second start; the old quota carried %.1f, want %.1f times that", at, rate, tc.old, times)
					}
				}
			})
		}
	}
}

// Slots bind while answers are long, starts while they are short.
func TestLaw_TwoQuotasThatBindInTurnAreBothHeld(t *testing.T) {
	t.Parallel()
	sc := plain(provider{slots: always(40), starts: always(600), startsBurst: 60}, 600*second)
	sc.work = func(since int64) workload {
		w := usual()
		if w.out = 600; since/(60*second)%2 == 1 {
			w.out = 80
		}
		return w
	}
	share, got := goodputOf(sc, 1, 120, 600, law(t).limiter(capacity.DefaultLaw()))
	if refused := float64(sum(got.throttled[120:])) / float64(sum(got.attempts[120:])); share < 0.9 || refused > 0.05 {
		t.Errorf("goodput %.1f %% with %.1f %% throttled, want 90 and at most 5", 100*share, 100*refused)
	}
}

func TestLaw_RetryAfterThatLiesCostsLittle(t *testing.T) {
	t.Parallel()
	p := law(t)
	for name, lie := range map[string]retryAfter{"30 s for a free slot": always30s, "1 ms for a minute": always1ms} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, prov := range []provider{
				{slots: always(50), retryAfter: lie},
				{starts: always(rpm), startsBy: calendar, retryAfter: lie},
			} {
				if share, _ := goodputOf(plain(prov, 400*second), 1, 120, 400, p.limiter(capacity.DefaultLaw())); share < 0.9 {
					t.Errorf("goodput %.1f %%, want 90", 100*share)
				}
			}
		})
	}
}

// What was learned before an hour without calls does not hold back what comes after.
func TestLaw_AfterAnIdleHourOldReferencesDoNotBind(t *testing.T) {
	t.Parallel()
	const from, to = 180 * second, 3780 * second
	p := law(t)
	for _, tc := range []struct {
		name     string
		provider provider
		old      float64
	}{
		{"concurrency", provider{slots: between(20, 200, from, math.MaxInt64)}, 20 / 5.0},
		{"RPM", provider{starts: between(240, 2400, from, math.MaxInt64), startsBurst: 240}, 240 / 60.0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sc := plain(tc.provider, to+120*second)
			sc.rtPerSecond, sc.askers = 0, 150
			sc.idle = func(since int64) bool { return since >= from && since < to }
			got := play(sc, 1, p.limiter(capacity.DefaultLaw()), false)
			if rate := sum(got.accepted[to/second+50:to/second+60]) / 10; rate < 5*tc.old {
				t.Errorf("a minute after the pause, %.1f calls a second start; the old quota carried %.1f, the new one ten times that", rate, tc.old)
			}
		})
	}
}

func TestLaw_ClockThatStepsChangesNothingForLong(t *testing.T) {
	t.Parallel()
	const at = 180 * second
	p := law(t)
	for name, step := range map[string]int64{
		"an hour back": -3600 * second, "an hour on": 3600 * second, "7 s back": -7 * second, "half a second back": -500,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, prov := range []provider{{slots: always(50)}, {starts: always(rpm), startsBurst: rpm / 10}} {
				sc := plain(prov, 360*second)
				const settled = at/second + 60 // an hour on, every lease has lapsed: what is in flight is not seen
				share, got := goodputOf(sc, 1, settled, 360, func(*provider) limiter {
					return &watched{learned: p.law(capacity.DefaultLaw()), before: func(now int64) int64 {
						now += 10_000 * second // so that no time is before 1970
						if now >= 10_000*second+runStart+at {
							now += step
						}
						return now
					}}
				})
				if refused := float64(sum(got.throttled[settled:])) / float64(sum(got.attempts[settled:])); share < 0.9 || refused > 0.05 {
					t.Errorf("goodput after the step %.1f %% with %.1f %% throttled, want 90 and at most 5", 100*share, 100*refused)
				}
			}
		})
	}
}

// A wiped store begins anew at the initial limit, and no cap is exceeded while it learns.
// That calls in flight are known again is the scripts' business (they re-register).
func TestLaw_WipedStoreBeginsAnewBelowTheCap(t *testing.T) {
	t.Parallel()
	const at, most = 120 * second, 30
	config := capacity.DefaultLaw()
	config.MaxSlots = most
	var w *watched
	wiped := false
	sc := plain(provider{slots: always(100)}, 300*second)
	share, got := goodputOf(sc, 1, 0, 1, func(*provider) limiter {
		w = &watched{learned: law(t).law(config)}
		w.before = func(now int64) int64 {
			if now >= runStart+at && !wiped {
				wiped = true
				w.restore(now, nil)
				if limit := w.told(t, now).Slots.Limit; limit != 20 {
					t.Errorf("slots of a new state = %v, want the initial 20", limit)
				}
			}
			return now
		}
		return w
	})
	if share <= 0 || !wiped || got.peak != most {
		t.Errorf("peak = %d, wiped %v; want the cap of %d reached and held", got.peak, wiped, most)
	}
}

// Every eighth call takes ten times as long: some worker's, far away.
func TestLaw_OneSlowWorkerCostsNobodyElse(t *testing.T) {
	t.Parallel()
	p := law(t)
	slow := func(c *call) float64 {
		if c.id%8 == 0 {
			return min(10, 50_000/float64(c.latency)) // a lease is not renewed here
		}
		return 1
	}
	for _, prov := range []provider{{slots: always(100), slow: slow}, {starts: always(rpm), startsBurst: rpm / 10, slow: slow}} {
		if share, _ := goodputOf(plain(prov, 420*second), 1, 120, 420, p.limiter(capacity.DefaultLaw())); share < 0.93 {
			t.Errorf("goodput %.1f %%, want 93", 100*share)
		}
	}
}

// While everything fails, nothing is learned: no growth, no cut. It is the breaker's turn.
func TestLaw_FailuresTeachNothing(t *testing.T) {
	t.Parallel()
	p := law(t)
	for _, prov := range []provider{{slots: always(50)}, {starts: always(rpm), startsBurst: rpm / 10}} {
		prov.outage = func(since int64) outage {
			if since >= 120*second {
				return failsAll
			}
			return noOutage
		}
		var before, after capacity.Learned
		play(plain(prov, 160*second), 1, func(*provider) limiter {
			w := &watched{learned: p.law(capacity.DefaultLaw())}
			w.after = func(now int64, _ bool) {
				if now < runStart+121*second {
					before = w.told(t, now)
				}
				after = w.told(t, now)
			}
			return w
		}, false)
		if before.Slots.Limit != after.Slots.Limit || before.Starts.Limit != after.Starts.Limit || before.Tokens.Limit != after.Tokens.Limit {
			t.Errorf("40 s of failures made of %v\n%v", before, after)
		}
	}
}

// What an outage left over is taken for no quota: its refusals are one wall, however often it opens. On these seeds it opens in
// the middle of the outage, since calls from before hold the only slots until there is no time left for a try.
func TestLaw_WhatAnOutageLeftIsNoQuota(t *testing.T) {
	t.Parallel()
	p := law(t)
	slow := find(t, "i outage by 429, slow recovery")
	long := plain(provider{}, 420*second)
	long.provider = func(uint64) *provider {
		return &provider{slots: always(50), outage: func(since int64) outage {
			if since >= 120*second && since < 240*second {
				return throttlesAll
			}
			return noOutage
		}}
	}
	for _, tc := range []struct {
		name     string
		scenario *scenario
		seed     uint64
		from     int64 // s
		least    float64
	}{
		{"a minute, seed 6", slow, 6, 480, 0.9},
		{"a minute, seed 102", slow, 102, 480, 0.9},
		{"two minutes, seed 3", long, 3, 300, 0.85},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g, _ := goodputOf(tc.scenario, tc.seed, tc.from, tc.scenario.length/second, p.limiter(capacity.DefaultLaw()))
			if g < tc.least {
				t.Errorf("after the outage %.3f of the oracle's is carried, want %.2f", g, tc.least)
			}
		})
	}
}

// A check in which nothing was taken measures no rate, so it holds none back.
func TestLaw_ACheckWithNothingTakenHoldsNoStarts(t *testing.T) {
	t.Parallel()
	l := law(t).law(capacity.DefaultLaw())
	now, id := int64(runStart), int64(0)
	start := func(n int) (ids []int64) {
		for range n {
			id++
			if why, wait := l.ask(now, id, laneRT, 100); why != 0 {
				t.Fatalf("call %d, %d ms after the first, is held back by %d for %d ms", id, now-runStart, why, wait)
			}
			ids = append(ids, id)
		}
		return ids
	}
	end := func(ids []int64, e capacity.Ending) {
		for _, id := range ids {
			l.settle(now, id, e, 100, 0)
		}
	}
	first := start(20)
	now += 10
	end(first[:2], capacity.Throttled) // a cut, which is checked
	end(first[2:], capacity.OK)
	now += second
	again := start(3)
	now += 10
	end(again, capacity.Throttled) // it did not help
	now += 20 * second
	start(1)
}

// A provider that takes calls and never answers is not asked for more and more.
func TestLaw_NothingGrowsBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	l := law(t).law(capacity.DefaultLaw())
	granted := 0
	for now := int64(runStart); now < runStart+30*second; now += 20 {
		if why, _ := l.ask(now, now, laneRT, 100); why == 0 {
			granted++
		}
	}
	if granted != 20 {
		t.Errorf("%d calls hang, want the initial 20", granted)
	}
}

func TestLaw_ConfiguredCapsAreNeverExceeded(t *testing.T) {
	t.Parallel()
	p := law(t)
	t.Run("slots", func(t *testing.T) {
		t.Parallel()
		config := capacity.DefaultLaw()
		config.MaxSlots = 10
		got := play(plain(provider{}, 300*second), 1, p.limiter(config), false)
		if got.peak != 10 {
			t.Errorf("peak = %d, want exactly 10", got.peak)
		}
	})
	t.Run("starts", func(t *testing.T) {
		t.Parallel()
		config := capacity.DefaultLaw()
		config.MaxStarts = 480
		got := play(plain(provider{}, 300*second), 1, p.limiter(config), false)
		for i := 0; i+60 < 300; i++ {
			if n := sum(got.attempts[i : i+60]); n > 480*103/100 { // a burst is 1.5 % of a minute; some starts are late
				t.Errorf("%d starts in the minute from %d s, want 480", n, i)
			}
		}
		if n := sum(got.attempts[60:300]); n < 4*480*98/100 {
			t.Errorf("%d starts in 4 minutes, want nearly all of 1920", n)
		}
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		config := capacity.DefaultLaw()
		config.MaxTokens = 500_000
		sc := plain(provider{burndown: 1}, 300*second)
		sc.countsTokens = true
		got := play(sc, 1, p.limiter(config), false)
		if n := sum(got.accepted[60:300]); n > 4*500_000*104/100 || n < 4*500_000*90/100 {
			t.Errorf("%.0f tokens in 4 minutes, want nearly all of 2,000,000", n)
		}
	})
}
