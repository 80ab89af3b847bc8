package rig_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// TestCaps_HoldWhatever lets things go wrong in the midst of a storm. Its parts mostly wait for
// leases to lapse, so they run side by side, however many processors there are.
func TestCaps_HoldWhatever(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for real leases to lapse, two minutes and more")
	}
	var parts sync.WaitGroup
	for _, p := range []struct { //nolint:paralleltest // see below
		name string
		run  func(*testing.T)
	}{
		{"workers killed", workersKilled},
		{"store wiped", func(t *testing.T) {
			storeLost(t, func(ctx context.Context, s *storm) error { return s.Store.FlushAll(ctx).Err() })
		}},
		{"store restarted", func(t *testing.T) {
			storeLost(t, func(ctx context.Context, s *storm) error { return s.Valkey.Restart(ctx) })
		}},
		{"cap cut", capCut},
	} {
		// t.Parallel would let only as many run as there are processors.
		parts.Go(func() { t.Run(p.name, p.run) })
	}
	parts.Wait()
}

// C3, D1, D2, DS4, DS9: a worker killed every five seconds. Its slots stay taken until their
// leases lapse, so throughput falls; the cap is never broken, no stored result is paid for
// again, and all calls end. What the dead held is back within the leases.
func workersKilled(t *testing.T) {
	const (
		every    = 5 * time.Second
		killings = 10
	)
	s := newStorm(t, capped(10))
	// Long enough for all the kills to fall into it.
	if err := s.Fake.SetLatency(server.Latency{Mean: 2 * stormTakes}); err != nil {
		t.Fatal(err)
	}
	ids := rig.Numbered("call", 2000)
	began := time.Now()
	s.send(t, rig.ModelChat, llmq.LaneBulk, "call", len(ids))
	fn := cloud.FunctionWorker(llmq.LaneBulk)
	var kills []time.Time
	tick := time.NewTicker(every)
	defer tick.Stop()
	for len(kills) < killings {
		<-tick.C
		if s.Fake.InFlight("") == 0 {
			if waiting, _ := s.depth(t); waiting == 0 {
				break
			}
		}
		var busy []lambda.InstanceInfo
		for _, w := range s.Workers(llmq.LaneBulk) {
			if w.State == lambda.StateBusy {
				busy = append(busy, w)
			}
		}
		if len(busy) == 0 {
			continue
		}
		at := time.Now()
		if err := s.Lambda.Kill(fn, busy[rand.IntN(len(busy))].ID); err != nil {
			continue // it has ended by itself meanwhile
		}
		kills = append(kills, at)
	}
	if len(kills) < 3 {
		t.Fatalf("%d workers were killed before all was done: the storm is too short", len(kills))
	}
	last := kills[len(kills)-1]
	s.drained(within(t, 4*time.Minute), t)
	ended := time.Now()
	again := s.answered(t, ids)
	s.notPaidAgain(t)
	s.alive(t)
	if got := s.Fake.Peak(""); got != 10 {
		t.Errorf("peak = %d, want 10 and never more", got)
	}
	metas := s.metas(t, ids)
	if len(metas) != len(ids) {
		t.Errorf("%d results are stored, want %d", len(metas), len(ids))
	}
	takeovers := 0
	for _, m := range metas {
		takeovers += m.Takeovers
	}
	for _, id := range again {
		if metas[id].Takeovers == 0 {
			t.Errorf("%s was paid for twice, and no worker had died over it", id)
		}
	}
	back := s.back(t, kills)
	// It comes back by its lease. Then it runs alone (DS46): its neighbours wait 15 s for a slot at most, and those of its batch run first.
	if most := messageLease + 20*time.Second; back > most {
		t.Errorf("what a dead worker ran came back after %s, want at most %s", back, most)
	}
	free := s.slotsFree(within(t, 2*time.Minute), t)
	// On a loaded machine a living worker, too, may leave a slot to lapse, a little after the last kill.
	if most := slotLease + 15*time.Second; free.Sub(last) > most {
		t.Errorf("slots were taken for %s after the last kill, want at most %s", free.Sub(last), most)
	}
	t.Logf("%s; %d kills, %d takeovers, %d calls paid again", s.counts(), len(kills), takeovers, len(again))
	t.Logf("calls a second: %.0f before the kills, %.0f during, %.0f afterwards; cut calls began again after at most %.1f s, all done %.1f s after the last kill, no slot taken %.1f s after it",
		s.rate(began.Add(time.Second), kills[0]), s.rate(kills[0], last), s.rate(last, ended), back.Seconds(), ended.Sub(last).Seconds(), free.Sub(last).Seconds())
}

// back is the longest that a request which a kill cut off waited until its next call began.
func (s *storm) back(t *testing.T, kills []time.Time) time.Duration {
	t.Helper()
	most, cut := time.Duration(0), 0
	for id, calls := range s.ByRequest() {
		for i, c := range calls {
			if c.Outcome != server.Aborted {
				continue
			}
			end := c.At.Add(c.Duration)
			if !slices.ContainsFunc(kills, func(k time.Time) bool { return end.Sub(k).Abs() < 2*time.Second }) {
				t.Errorf("a call of %s was broken off at %s, when no worker was killed", id, end)
			}
			if cut++; i+1 < len(calls) {
				most = max(most, calls[i+1].At.Sub(end))
			}
		}
	}
	if cut == 0 {
		t.Error("no kill cut a call")
	}
	return most
}

// slotsFree waits until the store knows of no slot that is taken and has not lapsed, and tells when that was.
func (s *storm) slotsFree(ctx context.Context, t *testing.T) time.Time {
	t.Helper()
	until(ctx, t, "slots to lapse", func() bool {
		taken, err := s.Slots(ctx)
		return err == nil && taken == 0
	})
	return time.Now()
}

// C12, DS8: the store loses everything in mid-run, slots, claims and results. Half the slots
// are held by calls that run right through: they must be known again before anything else
// is admitted.
func storeLost(t *testing.T, lose func(context.Context, *storm) error) {
	const (
		limit = 10
		long  = 5 // calls that run through it
	)
	s := newStorm(t, capped(limit))
	ctx := within(t, 5*time.Minute)
	ids := rig.Numbered("call", 1000)
	began := time.Now()
	s.send(t, rig.ModelChat, llmq.LaneBulk, "call", len(ids))
	if err := s.Fake.AwaitInFlight(ctx, "", limit); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the midst of the storm", func() bool { return s.Fake.Stats().All.Good >= 300 })
	if err := s.Fake.Program(server.Match{}, server.Reply{Hang: true, Times: long}); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the long calls", func() bool { return s.Fake.Hanging(server.Match{}) == long })
	lost := time.Now()
	if err := lose(ctx, s); err != nil {
		t.Fatal(err)
	}
	up := time.Now()
	// The quarantine: what runs ends, and nothing begins.
	until(ctx, t, "the time when only the long calls run", func() bool { return s.Fake.InFlight("") <= long })
	if err := s.Fake.AwaitInFlight(ctx, "", limit); err != nil {
		t.Errorf("the cap is not reached again while the long calls run: %v", err)
	}
	before := s.Fake.Stats().All.Good
	until(ctx, t, "calls beside the long ones", func() bool { return s.Fake.Stats().All.Good >= before+50 })
	if n := s.Fake.Release(server.Match{}); n != long {
		t.Errorf("%d long calls were still running, want %d", n, long)
	}
	s.drained(ctx, t)
	again := s.answered(t, ids)
	s.alive(t)
	for _, id := range again { // only what was in flight, or about to be stored
		if first := s.ByRequest()[id][0]; lost.Sub(first.At.Add(first.Duration)) > time.Second {
			t.Errorf("%s was paid for again, though its first call had ended before the store lost its data", id)
		}
	}
	paused := s.pause(lost)
	if paused < 12*time.Second {
		t.Errorf("nothing began for %s after the store lost its data, want about 15 s", paused)
	}
	if got := s.Fake.Peak(""); got != limit {
		t.Errorf("peak = %d, want %d and never more", got, limit)
	}
	t.Logf("%s; lost at %.1f s, back after %.2f s, nothing began for %.1f s, all done %.1f s after it came back; %d calls paid again", s.counts(),
		lost.Sub(began).Seconds(), up.Sub(lost).Seconds(), paused.Seconds(), time.Since(up).Seconds(), len(again))
	t.Logf("warnings: %s%s", s.logs, s.history(again, lost))
}

// pause is the longest time after since in which no call began.
func (s *storm) pause(since time.Time) time.Duration {
	begun := []time.Time{since}
	for _, c := range s.Calls() {
		if c.At.After(since) {
			begun = append(begun, c.At)
		}
	}
	slices.SortFunc(begun, time.Time.Compare)
	most := time.Duration(0)
	for i := 1; i < len(begun); i++ {
		most = max(most, begun[i].Sub(begun[i-1]))
	}
	return most
}

// C3: the cap cut from 20 to 5 by a deploy in mid-run. While old and new processes run
// side by side each keeps the cap that it knows, so the old one holds; once the last old
// process has ended its batch and what ran has drained, the new one does.
func capCut(t *testing.T) {
	const high, low = 20, 5
	s := newStorm(t, capped(high))
	ctx := within(t, 5*time.Minute)
	ids := rig.Numbered("call", 1000)
	s.send(t, rig.ModelChat, llmq.LaneBulk, "call", len(ids))
	if err := s.Fake.AwaitInFlight(ctx, "", high); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the midst of the storm", func() bool { return s.Fake.Stats().All.Good >= 200 })
	old := map[int]bool{}
	for _, w := range s.Workers(llmq.LaneBulk) {
		old[w.PID] = true
	}
	cut := time.Now()
	if err := s.Deploy(capped(low)); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the last old process", func() bool {
		return !slices.ContainsFunc(s.Workers(llmq.LaneBulk), func(w lambda.InstanceInfo) bool { return old[w.PID] }) && s.Fake.InFlight("") <= low
	})
	known := time.Now()
	after := known.Truncate(time.Second).Add(time.Second)
	s.drained(ctx, t)
	s.onceEach(t, ids)
	s.alive(t)
	if got := s.Fake.Peak(""); got != high {
		t.Errorf("peak = %d, want %d and never more", got, high)
	}
	most, seconds := 0, 0
	for _, second := range s.Fake.Timeline("") {
		if !second.At.Before(after) {
			most, seconds = max(most, second.Peak), seconds+1
		}
	}
	if most != low {
		t.Errorf("peak after the cut = %d over %d s, want exactly %d", most, seconds, low)
	}
	t.Logf("%s; known to all processes and drained %.1f s after the deploy, peak %d in the %d s after that; %.0f calls a second before, %.0f after",
		s.counts(), known.Sub(cut).Seconds(), most, seconds, s.rate(cut.Add(-2*time.Second), cut), s.rate(after, after.Add(time.Duration(seconds)*time.Second)))
}
