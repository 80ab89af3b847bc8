package worker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func joined(t *testing.T, c *company) *member {
	t.Helper()
	m, ok := c.join(t.Context())
	if !ok {
		t.Fatal("not let in")
	}
	return m
}

// DS46: whoever may kill waits for all that can't; those that may, run one after the other, the likeliest last.
func TestCompany_WhoMayKillRunsAloneAfterAllOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		quiet := joined(t, &c)
		var wg sync.WaitGroup
		var order []int // each runs alone, so it needs no lock
		for _, deaths := range []int{4, 1, 2} {
			m := joined(t, &c)
			wg.Go(func() {
				if !m.secede(t.Context(), deaths) {
					t.Errorf("the one over which %d workers died did not run", deaths)
				}
				order = append(order, deaths)
				time.Sleep(time.Second)
				m.leave()
				m.leave()
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		newcomer := joined(t, &c) // it can't kill, and goes first
		quiet.leave()
		synctest.Wait()
		if len(order) != 0 {
			t.Error("one ran beside a neighbour")
		}
		began := time.Now()
		newcomer.leave()
		wg.Wait()
		if !slices.Equal(order, []int{1, 2, 4}) || time.Since(began) != 3*time.Second {
			t.Errorf("they ran as %v in %v", order, time.Since(began))
		}
	})
}

// DS46: who waits to be by itself is not kept waiting by newcomers for ever.
func TestCompany_NewcomersWaitForWhoHasWaitedLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 30 { // each second one comes that runs for two
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				m, ok := c.join(t.Context())
				if !ok {
					t.Error("not let in")
				}
				time.Sleep(2 * time.Second)
				m.leave()
			})
		}
		time.Sleep(time.Second / 2)
		m := joined(t, &c)
		if !m.secede(t.Context(), 1) {
			t.Error("it did not run")
		}
		if waited := time.Since(began); waited > patience+3*time.Second {
			t.Errorf("it waited %v", waited)
		}
		m.leave()
		wg.Wait()
	})
}

// Who gives up while newcomers wait for it lets them in.
func TestCompany_WhoGivesUpLetsInWhoWaitedForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		quiet, loner := joined(t, &c), joined(t, &c)
		ctx, cancel := context.WithTimeout(t.Context(), patience+2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if loner.secede(ctx, 1) {
				t.Error("it ran beside a neighbour")
			}
		})
		time.Sleep(patience + time.Second)
		began := time.Now()
		newcomer := joined(t, &c)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the newcomer waited %v, want 1s", waited)
		}
		newcomer.leave()
		quiet.leave()
		wg.Wait()
	})
}

func TestCompany_WhoGivesUpIsInNobodysWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		first, second := joined(t, &c), joined(t, &c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if second.secede(ctx, 1) {
			t.Fatal("it was alone beside another")
		}
		second.leave()
		first.leave()
		third := joined(t, &c)
		if !third.secede(t.Context(), 1) {
			t.Error("nobody else is there")
		}
		if _, ok := c.join(ctx); ok {
			t.Error("joined one that is by itself")
		}
		third.leave()
		joined(t, &c).leave()
		if c.together != 0 || c.alone || len(c.waiting) != 0 {
			t.Errorf("left over: %+v", c.waiting)
		}
	})
}

// Whoever is by itself is, and everybody gets his turn or gives up.
func TestCompany_NobodyIsStuck(t *testing.T) {
	t.Parallel()
	type visit struct {
		deaths                int
		after, patience, runs time.Duration
	}
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.Custom(func(rt *rapid.T) visit {
			ms := func(name string, most int) time.Duration {
				return time.Duration(rapid.IntRange(0, most).Draw(rt, name)) * time.Millisecond
			}
			return visit{rapid.IntRange(0, 3).Draw(rt, "deaths"), ms("after", 50), 1 + ms("patience", 300), 1 + ms("runs", 40)}
		})
		visits := rapid.SliceOfN(some, 1, 12).Draw(rt, "visits")
		synctest.Test(t, func(t *testing.T) {
			var c company
			var mu sync.Mutex
			here, loners := 0, 0
			run := func(v visit) {
				mu.Lock()
				here++
				if v.deaths > 0 {
					loners++
				}
				if loners > 0 && here > 1 {
					t.Errorf("%d run, %d of them by themselves", here, loners)
				}
				mu.Unlock()
				time.Sleep(v.runs)
				mu.Lock()
				here--
				if v.deaths > 0 {
					loners--
				}
				mu.Unlock()
			}
			var wg sync.WaitGroup
			for _, v := range visits {
				wg.Go(func() {
					time.Sleep(v.after)
					ctx, cancel := context.WithTimeout(t.Context(), v.patience)
					defer cancel()
					m, ok := c.join(ctx)
					if !ok {
						return
					}
					defer m.leave()
					if v.deaths == 0 || m.secede(ctx, v.deaths) {
						run(v)
					}
				})
			}
			wg.Wait()
			if c.together != 0 || c.alone || len(c.waiting) != 0 {
				t.Errorf("left over: %d together, alone %t, %d waiting", c.together, c.alone, len(c.waiting))
			}
		})
	})
}
