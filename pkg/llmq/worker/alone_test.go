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

// DS46: whoever may kill waits for all that can't; then the one with the fewest deaths is first.
func TestCompany_LonersWaitForAllAndForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		quiet := joined(t, &c)
		for _, deaths := range []int{3, 1, 2} {
			m := joined(t, &c)
			wg.Go(func() {
				if !m.secede(t.Context(), deaths) {
					t.Errorf("the one with %d deaths did not run", deaths)
				}
				mu.Lock()
				order = append(order, deaths)
				mu.Unlock()
				time.Sleep(time.Second)
				m.leave()
				m.leave()
			})
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("%v ran beside a neighbour", order)
		}
		began := time.Now()
		quiet.leave()
		wg.Go(func() { // it comes while the first is by itself, and goes before the rest
			m := joined(t, &c)
			mu.Lock()
			order = append(order, 0)
			mu.Unlock()
			m.leave()
		})
		wg.Wait()
		if want := []int{1, 0, 2, 3}; !slices.Equal(want, order) || time.Since(began) != 3*time.Second {
			t.Errorf("they ran as %v in %v, want %v one after the other", order, time.Since(began), want)
		}
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
