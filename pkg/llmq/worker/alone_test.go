package worker

import (
	"context"
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

// DS46: whoever may kill waits for all that can't; a second such goes away at once.
func TestCompany_OneLonerWaitsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c company
		quiet, loner, second := joined(t, &c), joined(t, &c), joined(t, &c)
		var wg sync.WaitGroup
		ran := time.Time{}
		wg.Go(func() {
			if !loner.secede(t.Context(), 1) {
				t.Error("the first did not run")
			}
			ran = time.Now()
			time.Sleep(time.Second)
			loner.leave()
			loner.leave()
		})
		synctest.Wait()
		began := time.Now()
		if second.secede(t.Context(), 1) || time.Since(began) != 0 {
			t.Error("a second one waited, or ran")
		}
		time.Sleep(time.Second)
		newcomer := joined(t, &c) // it can't kill, and goes first
		quiet.leave()
		synctest.Wait()
		if !ran.IsZero() {
			t.Error("it ran beside a neighbour")
		}
		newcomer.leave()
		synctest.Wait()
		if ran.IsZero() {
			t.Error("nobody else is there, and it does not run")
		}
		if second.secede(t.Context(), 1) {
			t.Error("a second one ran beside it")
		}
		wg.Wait()
		last := joined(t, &c)
		if !last.secede(t.Context(), 5) {
			t.Error("nobody is left, and it does not run")
		}
		last.leave()
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
