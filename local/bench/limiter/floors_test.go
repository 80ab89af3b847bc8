package main

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// A configured quota above the true one is where learning begins, not where it ends.
func TestLaw_LearnsBelowAConfiguredQuota(t *testing.T) {
	t.Parallel()
	config := capacity.DefaultLaw()
	config.MaxStarts = 900
	sc := plain(provider{starts: always(rpm), startsBurst: rpm / 10}, 420*second)
	share, got := goodputOf(sc, 1, 120, 420, law(t).limiter(config))
	if refused := float64(sum(got.throttled[120:])) / float64(sum(got.attempts[120:])); share < 0.95 || refused > 0.02 {
		t.Errorf("goodput %.1f %% with %.1f %% throttled, want 95 and at most 2", 100*share, 100*refused)
	}
}

func TestLaw_BacklogNeverStarvesRT(t *testing.T) {
	t.Parallel()
	p := law(t)
	for _, prov := range []provider{{slots: always(20)}, {starts: always(240), startsBurst: 24}} {
		sc := plain(prov, 300*second)
		sc.rtPerSecond, sc.askers, sc.steady = 0.8, 80, 60*second
		got := play(sc, 1, p.limiter(capacity.DefaultLaw()), false)
		if wait := p95(got.rtWaits); wait > 4000 || got.rtLost > 0 {
			t.Errorf("rt waits %.0f ms (p95) behind a backlog, %d gave up; want 4000 and none", wait, got.rtLost)
		}
	}
}

// rt takes everything that it can get, at one slot and at one start a second.
func TestLaw_RTNeverStarvesBackground(t *testing.T) {
	t.Parallel()
	p := law(t)
	slot, start := capacity.DefaultLaw(), capacity.DefaultLaw()
	slot.MaxSlots, start.MaxStarts = 1, 60
	for name, config := range map[string]capacity.LawConfig{"slots": slot, "starts": start} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := p.law(config)
			rt, background, asked, id := 0, 0, 0, int64(0)
			for now := int64(runStart); now < runStart+600*second; now += 10 {
				id++
				if why, _ := l.ask(now, id, laneRT, 10); why == 0 {
					rt++
					l.settle(now+5, id, capacity.OK, 10, 0)
				}
				if now%500 == 0 {
					id++
					asked++
					if why, _ := l.ask(now+7, id, laneBulk, 10); why == 0 {
						background++
						l.settle(now+9, id, capacity.OK, 10, 0)
					}
				}
			}
			if background*25 < rt && background*10 < asked*9 || rt == 0 {
				t.Errorf("%d rt calls and %d of the background started, of %d that asked; want one to 20 of the former, or all", rt, background, asked)
			}
		})
	}
}

// A cap that is lowered in mid-run holds at once for what starts, and what was learned is
// clamped to it. Feature C4.
func TestLaw_CapLoweredHoldsAtOnce(t *testing.T) {
	t.Parallel()
	const at, most = 120 * second, 5
	var w *watched
	lowered := false
	play(plain(provider{slots: always(50)}, 200*second), 1, func(*provider) limiter {
		w = &watched{learned: law(t).law(capacity.DefaultLaw())}
		w.before = func(now int64) int64 {
			if now >= runStart+at && !lowered {
				lowered = true
				all := w.text()
				var values []string
				for _, f := range fields {
					values = append(values, all[f])
				}
				w.config.MaxSlots = most
				w.restore(now, values)
				if got := w.told(t, now).Slots; got.Limit != most {
					t.Errorf("slots = %+v, want the cap of %d", got, most)
				}
			}
			return now
		}
		w.after = func(now int64, granted bool) {
			if lowered && granted && len(w.held) > most {
				t.Errorf("a call starts at %d s though %d are in flight", (now-runStart)/second, len(w.held))
			}
		}
		return w
	}, false)
	if !lowered || len(w.held) > most || len(w.held) == 0 {
		t.Errorf("%d in flight at the end, want 1 to %d", len(w.held), most)
	}
}
