package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/percentile"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Loads beyond what a provider takes, whose limit nobody has told llmq.
func bursts() []scenario {
	const provider = "a provider that takes 50 calls of 0.5 s at once, and throttles the rest; no cap is set"
	return []scenario{
		{ID: "S07", What: "a provider that takes 60 calls at once, bg backlog, no cap set: the learned limit settles near 60 and does not swing", Run: s07, Quiet: true},
		{ID: "S22", What: "a burst of 50 bg calls of a cold Go program on cold functions: 20 rt calls beside it, in turn of the same program and at the door, are not held up; the slowest is cold_burst_lag_ms", Run: s22, Quiet: true},
		{ID: "S27", What: "calls in all lanes at a steady rate for 3 minutes (short: 20 s), 6,000 a minute (short: 1,200): rt's wait p95 within 100 ms of an idle system's, no claim is lost by a live owner", Run: s27, Quiet: true},
		{
			ID: "S35", What: "10,000 bg calls at once (short: 1,000), 2 % throttled by chance, " + provider + ": all are served, no claim is taken over; at 95 % of the rate of one who knows the limit " +
				"(short, which ends while the limit is still being learned: at 80 % of what the initial limit gives at least, and at most 5 % throttled)", Quiet: true,
			Run: func(ctx context.Context, t *trial) error { return burst(ctx, t, 0.02, false) },
		},
		{
			ID: "S35b", What: "the same with 30 % throttled by chance and a worker killed by -9: at least 99.9 % are served", Quiet: true,
			Run: func(ctx context.Context, t *trial) error { return burst(ctx, t, 0.3, true) },
		},
		{
			ID: "S35c", What: "the burst of S35, whose run it shares where both are asked: nobody is killed, and no claim is taken over from a live owner", Quiet: true, RunOf: "S35",
			Run: func(ctx context.Context, t *trial) error { return burst(ctx, t, 0.02, false) },
		},
	}
}

// learned takes the cap of the chat model away: its limit is learned.
func learned(c *config.Config) {
	wholeShare(c)
	c.Models[0].Targets[0].MaxConcurrency = 0
	lane(c, llmq.LaneBG, 30, 10)
}

func s07(ctx context.Context, t *trial) error {
	const quotaOf, each = 60, 300 * time.Millisecond
	w, err := t.Start(ctx, 0, learned)
	if err != nil {
		return err
	}
	if err := w.Fake.SetRules(server.Rule{Seed: t.Seed, Phases: []server.Phase{{
		Limits:  quota.Limits{Concurrency: quotaOf},
		Latency: server.Latency{Distribution: server.Lognormal, Mean: each, Deviation: each / 5},
	}}}); err != nil {
		return err
	}
	lasts := t.For(120*time.Second, 40*time.Second)
	ids := rig.Numbered("bg", int(lasts.Seconds()/each.Seconds()*quotaOf))
	began := time.Now()
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, 30*time.Minute, ids); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	took := time.Since(began)
	// The last half of the time in which there was enough to do.
	var peaks []int
	for _, second := range w.Fake.Timeline("") {
		if since := second.At.Sub(began); since > lasts/2 && since < lasts*9/10 {
			peaks = append(peaks, second.Peak)
		}
	}
	low, _ := percentile.Of(peaks, 10)
	mid, _ := percentile.Of(peaks, 50)
	high, _ := percentile.Of(peaks, 90)
	stats := w.Fake.Stats().All
	t.Note("in_flight_p10", low)
	t.Note("in_flight_p50", mid)
	t.Note("in_flight_p90", high)
	t.Note("throttled_percent", round(100*float64(stats.Throttled)/float64(len(ids))))
	t.Note("goodput_of_best_percent", round(100*lasts.Seconds()/took.Seconds()))
	t.Hold(len(peaks) > 0 && low >= quotaOf*3/4, "in flight fell to %d (p10 of the seconds); the quota is %d", low, quotaOf)
	t.Hold(high-low <= quotaOf/4, "in flight swings from %d to %d (p10 and p90 of the seconds)", low, high)
	return nil
}

func s22(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 100*time.Millisecond, nil)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	ids := rig.Numbered("burst", 50)
	var callers sync.WaitGroup
	failed := make([]error, len(ids))
	for i, id := range ids {
		callers.Go(func() { _, failed[i] = program.Do(ctx, request(id, llmq.LaneBG, time.Minute)) })
	}
	var slowest time.Duration
	live := rig.Numbered("rt", 20)
	for i, id := range live {
		began := time.Now()
		if i%2 == 0 {
			_, err := program.Do(ctx, request(id, llmq.LaneRT, time.Minute))
			t.Hold(err == nil, "%s: %v", id, err)
		} else {
			a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
			t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
		}
		slowest = max(slowest, time.Since(began))
	}
	callers.Wait()
	for i, err := range failed {
		t.Hold(err == nil, "%s: %v", ids[i], err)
	}
	t.Note("cold_burst_lag_ms", ms(slowest))
	t.Hold(slowest < 1800*time.Millisecond, "a live call took %s beside the burst", slowest)
	all := slices.Concat(ids, live)
	a, err := t.Account(ctx, w, all)
	t.onceEach(a, all)
	return err
}

func s27(ctx context.Context, t *trial) error {
	perMinute, lasts := t.Size(6000, 1200), t.For(3*time.Minute, 20*time.Second)
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		capped(60)(c)
		for _, l := range llmq.Lanes() {
			lane(c, l, 10, 10)
		}
	})
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	idle := rig.Numbered("idle", 30)
	for _, id := range idle {
		if _, err := program.Do(ctx, request(id, llmq.LaneRT, time.Minute)); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	ids := rig.Numbered("load", int(float64(perMinute)*lasts.Minutes()))
	failed := make([]error, len(ids))
	var callers sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for sent := 0; sent < len(ids) && ctx.Err() == nil; {
		for due := min(len(ids), int(time.Since(began).Minutes()*float64(perMinute))); sent < due; sent++ {
			i := sent
			callers.Go(func() { _, failed[i] = program.Do(ctx, request(ids[i], llmq.Lanes()[i%3], 5*time.Minute)) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	callers.Wait()
	bad := 0
	for i, err := range failed {
		if err != nil {
			bad++
			t.Hold(bad > 1, "the first of those that failed is %s: %v", ids[i], err)
		}
	}
	t.Note("failed", bad)
	all := slices.Concat(idle, ids)
	a, err := t.Account(ctx, w, all)
	if err != nil {
		return err
	}
	t.onceEach(a, all)
	results, err := w.Results(ctx, all)
	if err != nil {
		return err
	}
	waits := func(ids []string, step int) (d []time.Duration) {
		for i := 0; i < len(ids); i += step {
			d = append(d, results[ids[i]].Meta.QueueWait)
		}
		return d
	}
	calm, busy := rank(waits(idle, 1), 95), rank(waits(ids, 3), 95)
	t.Note("rt_wait_p95_ms", ms(busy))
	t.Note("rt_wait_idle_p95_ms", ms(calm))
	t.Hold(busy < calm+100*time.Millisecond, "rt waits %s in the queue at p95, %s on an idle system", busy, calm)
	return t.noTakeover(ctx, w)
}

// noTakeover holds that no claim was taken over: nobody died.
func (t *trial) noTakeover(ctx context.Context, w *world) error {
	n, err := w.takeovers(ctx)
	if err != nil {
		return err
	}
	t.Note("takeovers", n)
	t.Hold(n == 0, "%d claims were taken over from an owner that was alive", n)
	return nil
}

// takeovers counts those of all claims that there are.
func (w *world) takeovers(ctx context.Context) (int, error) {
	total := 0
	for keys := w.Store.Scan(ctx, 0, "llmq:*clm:*", 2000).Iterator(); ; {
		if !keys.Next(ctx) {
			return total, keys.Err()
		}
		n, err := w.Store.HGet(ctx, keys.Val(), "takeovers").Int()
		if err == nil {
			total += n
		}
	}
}

func burst(ctx context.Context, t *trial, throttled float64, kill bool) error {
	const (
		together     = 50
		each         = 500 * time.Millisecond
		initialLimit = 20 // limiter_initial
	)
	w, err := t.Start(ctx, 0, learned)
	if err != nil {
		return err
	}
	if err := w.Fake.SetRules(server.Rule{Seed: t.Seed, Phases: []server.Phase{{
		Limits: quota.Limits{Concurrency: together}, ThrottleShare: throttled,
		Latency: server.Latency{Distribution: server.Lognormal, Mean: each, Deviation: each / 5},
	}}}); err != nil {
		return err
	}
	ids := rig.Numbered("bg", t.Size(10_000, 1000))
	began := time.Now()
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, 30*time.Minute, ids); err != nil {
		return err
	}
	if kill {
		if err := rig.Poll(ctx, "a tenth of the calls", func() bool { return w.Fake.Stats().All.Good >= len(ids)/10 }); err != nil {
			return err
		}
		busy := w.Lambda.Instances(cloud.FunctionWorker(llmq.LaneBG))
		one := slices.IndexFunc(busy, func(i lambda.InstanceInfo) bool { return i.State == lambda.StateBusy })
		if one < 0 {
			return fmt.Errorf("no worker is busy: %w", errNotAnswered)
		}
		if err := w.Lambda.Kill(cloud.FunctionWorker(llmq.LaneBG), busy[one].ID); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
	}
	a, err := t.count(ctx, w, ids) // some may end with an error
	if err != nil {
		return err
	}
	results, err := w.Results(ctx, ids)
	if err != nil {
		return err
	}
	ok := 0
	for _, r := range results {
		if r.Code == "" {
			ok++
		}
	}
	var good []time.Time
	for _, c := range w.Calls() {
		if c.Status == 200 {
			good = append(good, c.At.Add(c.Duration))
		}
	}
	slices.SortFunc(good, time.Time.Compare)
	// The rate is that of the nine tenths in the middle: the end waits for those that were released, the begin for functions.
	best := together / each.Seconds()
	rate := perSecond(good, 5, 95)
	stats := w.Fake.Stats().All
	t.Note("ok", ok)
	t.Note("ok_percent", round(100*float64(ok)/float64(len(ids))))
	t.Note("calls_per_second", round(rate))
	t.Note("best_possible_per_second", best)
	t.Note("of_the_best_percent", round(100*rate/best))
	t.Note("done_s", round(time.Since(began).Seconds()))
	t.Note("provider_throttled", stats.Throttled)
	if kill {
		t.Hold(float64(ok) >= 0.999*float64(len(ids)), "%d of %d calls were served", ok, len(ids))
		return nil
	}
	t.onceEach(a, ids)
	t.Hold(ok == len(ids), "%d of %d calls were served", ok, len(ids))
	if t.Full {
		t.Hold(rate >= 0.95*best, "%.1f calls a second, one who knows the limit has %.1f", rate, best)
	} else {
		// Two throttles by chance in the first second can hold the limit near its begin for half a minute, which is all that there is.
		start := 0.8 * initialLimit / each.Seconds()
		t.Hold(rate >= start, "%.1f calls a second, want %.1f at least: the limit fell below where it began", rate, start)
		t.Hold(stats.Throttled <= len(ids)/20, "%d of %d calls were throttled, 2 %% by chance", stats.Throttled, len(ids))
	}
	return t.noTakeover(ctx, w)
}

// perSecond is the rate of sorted times between two percentages of them.
func perSecond(at []time.Time, from, until int) float64 {
	i, j := (len(at)-1)*from/100, (len(at)-1)*until/100
	return float64(j-i) / at[j].Sub(at[i]).Seconds()
}
