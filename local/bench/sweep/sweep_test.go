package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/semaphore"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ideal runs the tasks under a limit that wastes no time, in a bubble's time.
func ideal(t *testing.T, limit int) (got sample) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, slots := &sleeper{began: time.Now()}, semaphore.NewWeighted(int64(limit))
		for range tasks {
			go func() {
				if err := slots.Acquire(t.Context(), 1); err != nil {
					t.Error(err)
					return
				}
				defer slots.Release(1)
				if _, err := s.Call(t.Context(), provider.Request{}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		for done := 0; done < tasks; { // all sleep, wait or have ended
			timer := time.NewTimer(service)
			<-timer.C
			synctest.Wait()
			s.mu.Lock()
			done = s.calls
			s.mu.Unlock()
		}
		got = sample{queued: s.queued / tasks, service: s.served / tasks}
	})
	return got
}

// F4: queued ÷ service falls through its bands as the limit rises while service stays the same: with slots that never idle it is
// (tasks ÷ limit − 1) ÷ 2, which lies in each band or at its lower edge.
func TestSweep_IdealSlotsGiveTheBands(t *testing.T) {
	t.Parallel()
	for _, b := range bands() {
		got := ideal(t, b.limit)
		ratio, want := float64(got.queued)/float64(got.service), (float64(tasks)/float64(b.limit)-1)/2
		if got.service != service || ratio != want {
			t.Errorf("limit %d: service %s, ratio %v, want %s and %v", b.limit, got.service, ratio, service, want)
		}
		if !b.holds(ratio + 0.01) { // admission takes some time
			t.Errorf("limit %d: %v is not in the band %s", b.limit, ratio, b.name)
		}
	}
}

// F4: near 1 it is a crossover, not a verdict.
func TestBound_NearOneIsACrossover(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[float64]string{
		63: "admission", 2: "admission", 1.99: "crossover", 1: "crossover", 0.51: "crossover", 0.5: "service", 0: "service",
	} {
		if got := bound(ratio); got != want {
			t.Errorf("%v is bound by %s, want %s", ratio, got, want)
		}
	}
}

// ran is rounds of a run at each limit with the ratios given.
func ran(of map[int]float64, took time.Duration) map[int][]sample {
	all := map[int][]sample{}
	for limit, ratio := range of {
		for _, noise := range []float64{0.9, 1, 30} { // one round went wrong: medians don't mind
			all[limit] = append(all[limit], sample{queued: time.Duration(noise * ratio * float64(took)), service: took})
		}
	}
	return all
}

// F4: what lies outside its band, or a service time that depends on the limit, does not hold.
func TestJudge_SaysWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	good := map[int]float64{1: 64, 4: 16, 16: 4, 64: 1.1, 128: 0.4}
	rows, broken := judge(ran(good, service))
	if len(broken) > 0 || len(rows) != len(bands()) {
		t.Errorf("%d rows, %q", len(rows), broken)
	}
	var labels []string
	for _, r := range rows {
		labels = append(labels, r.bound)
	}
	if want := []string{"admission", "admission", "admission", "crossover", "service"}; !slices.Equal(labels, want) {
		t.Errorf("bound by %q, want %q", labels, want)
	}
	for limit, bad := range map[int]float64{1: 50, 4: 9, 16: 11, 64: 2, 128: 1} {
		all := ran(good, service)
		all[limit] = ran(map[int]float64{limit: bad}, service)[limit]
		if _, broken := judge(all); len(broken) != 1 || !strings.Contains(broken[0], "queued") {
			t.Errorf("limit %d at %v: %q", limit, bad, broken)
		}
	}
	all := ran(good, service)
	all[64] = ran(map[int]float64{64: 1}, service*4/3+time.Millisecond)[64]
	if _, broken := judge(all); len(broken) != 4 || !strings.Contains(broken[0], "service took 0.7") {
		t.Errorf("a service time that is a third longer at one limit: %q", broken)
	}
}

// F4: the page has ratios, what they were made by, and no absolute time that was measured.
func TestPage_HasRatiosAlone(t *testing.T) {
	t.Parallel()
	rows, _ := judge(ran(map[int]float64{1: 64, 4: 16, 16: 4, 64: 1.1, 128: 0.4}, 23456*time.Microsecond))
	var b bytes.Buffer
	page(&b, "go run x", 3, rows, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC))
	for _, want := range []string{"Made by `go run x` on ", "2026-11-30", "| 64 | 1.1 | about 1 | crossover | 100 % |", "| 1 | 64 | > 50 | admission | 100 % |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	for _, time := range []string{"23.4", "23456", "23 ms"} {
		if strings.Contains(b.String(), time) {
			t.Errorf("%q, a time, in\n%s", time, &b)
		}
	}
}

func TestRun_RefusesWhatItCantDo(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, args := range [][]string{{"-rounds", "0"}, {"-rounds", "51"}, {"word"}} {
		if err := run(context.Background(), args, &b, &b); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
