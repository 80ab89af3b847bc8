package main

import (
	"context"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Caps that all workers share, exact whatever happens.
func limits() []scenario {
	return []scenario{
		{ID: "S53", What: "cap 10, provider 200 ms, 15 workers with 10 calls each, so that 150 want a slot; 2,000 bg calls queued (short: 500): at most 10 at once, and exactly that; each answered and paid for once", Run: s53},
		{ID: "S54", What: "cap cut live from 20 to 5 in mid-run, 900 calls (short: 400), ten workers: the peak is exactly 20 before and exactly 5 from one reload later on; each paid for once", Run: s54},
		{ID: "S55", What: "a provider's cap of 8 over two models that may have 20 each, 300 calls each (short: 150): exactly 8 at once", Run: s55},
		{ID: "S57", What: "cap 20, bulk 3, bg 5; 300 bulk and 300 bg calls at once (short: 150), one rt call in the middle: exactly 3 and 5, and rt starts within 50 ms of an idle system's median", Run: s57, Quiet: true},
	}
}

// deadline is long enough for every backlog here.
const deadline = 10 * time.Minute

func s53(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		capped(10)(c)
		wholeShare(c)
		lane(c, llmq.LaneBG, 15, 10)
	})
	if err != nil {
		return err
	}
	ids := rig.Numbered("bg", t.Size(2000, 500))
	began := time.Now()
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	inFlight := 0 // messages
	if err := rig.Poll(ctx, "the backlog to be done", func() bool {
		d, err := w.QueueDepth(ctx, w.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBG))
		inFlight = max(inFlight, d.InFlight)
		return err == nil && d.Visible+d.InFlight+d.Delayed == 0
	}); err != nil {
		return err
	}
	took := time.Since(began)
	t.peak("peak", w.Fake.Peak(""), 10)
	t.Note("done_s", round(took.Seconds()))
	t.Note("best_possible_s", round(float64(len(ids))/10*0.2))
	t.Note("sqs_messages_in_flight_peak", inFlight)
	_, together := w.Processes()
	t.Note("worker_processes", together)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func s54(ctx context.Context, t *trial) error {
	const (
		high, low = 20, 5
		reload    = 2 * time.Second
		slack     = time.Second // calls that began before the last worker heard of it end, and so do the looks that are under way
	)
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		capped(high)(c)
		wholeShare(c)
		lane(c, llmq.LaneBG, 10, 4)
		c.Timing.Reload = reload
	})
	if err != nil {
		return err
	}
	ids := rig.Numbered("bg", t.Size(900, 400))
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "a third of the calls and the whole cap, or half of the calls", func() bool {
		good := w.Fake.Stats().All.Good
		return good >= len(ids)/3 && w.Fake.Peak("") >= high || good >= len(ids)/2
	}); err != nil {
		return err
	}
	cut := time.Now()
	if err := w.Operate(ctx, "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": low}}, nil); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	inForce := cut.Add(reload + slack)
	var before, after []server.Call
	for _, c := range w.Calls() {
		if c.At.Before(cut) {
			before = append(before, c)
		} else if c.At.After(inForce) {
			after = append(after, c)
		}
	}
	t.peak("peak_before", rig.Together(before), high)
	t.peak("peak_after", rig.Together(after), low)
	t.Note("calls_after", len(after))
	t.Note("in_force_after_s", lastAbove(w.Calls(), cut, low))
	t.Hold(len(after) > 10*low, "only %d calls began after the cut: too few to tell", len(after))
	return nil
}

// lastAbove is how many seconds after a time more than n calls were last in flight.
func lastAbove(calls []server.Call, since time.Time, n int) float64 {
	last := 0.0
	for _, c := range calls {
		with := 0
		for _, other := range calls {
			if !other.At.After(c.At) && other.At.Add(other.Duration).After(c.At) {
				with++
			}
		}
		if after := c.At.Sub(since).Seconds(); with > n && after > last {
			last = after
		}
	}
	return round(last)
}

func s55(ctx context.Context, t *trial) error {
	const second = "chat-b"
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		twin := c.Models[0]
		twin.Alias, twin.Targets = second, slices.Clone(twin.Targets)
		twin.Targets[0].ModelID = "fake-chat-2"
		c.Models = append(c.Models, twin)
		c.Providers[0].SharedMaxConcurrency = 8
		wholeShare(c)
		lane(c, llmq.LaneBG, 10, 4)
	})
	if err != nil {
		return err
	}
	n := t.Size(300, 150)
	first, other := rig.Numbered("a", n), rig.Numbered("b", n)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, first); err != nil {
		return err
	}
	if err := w.Send(ctx, second, llmq.LaneBG, deadline, other); err != nil {
		return err
	}
	ids := slices.Concat(first, other)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	t.peak("peak", w.Fake.Peak(""), 8)
	t.Note("peak_of_one_model", w.Fake.Peak("fake-chat-1"))
	t.Note("peak_of_the_other", w.Fake.Peak("fake-chat-2"))
	return err
}

func s57(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		target := &c.Models[0].Targets[0]
		target.MaxConcurrency, target.Limits.Bulk, target.Limits.BG = 20, 3, 5
	})
	if err != nil {
		return err
	}
	// As in a service that is in use: a door and a worker for rt are there.
	if err := w.warm(ctx); err != nil {
		return err
	}
	idle, err := w.starts(ctx, rig.Numbered("idle", 20))
	if err != nil {
		return err
	}
	usual := rank(idle, 50)
	n := t.Size(300, 150)
	bulk, bg := rig.Numbered("bulk", n), rig.Numbered("bg", n)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBulk, deadline, bulk); err != nil {
		return err
	}
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, bg); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "a fifth of the calls", func() bool { return w.Fake.Stats().All.Good >= n/5 }); err != nil {
		return err
	}
	reply := w.Ask(ctx, call{ID: "rt-0", Lane: llmq.LaneRT})
	waiting, _, err := w.Depth(ctx)
	if err != nil {
		return err
	}
	t.Hold(reply.ok("rt-0"), "the rt call got %d %s %v", reply.Status, reply.Body, reply.Err)
	ids := slices.Concat(bulk, bg, []string{"rt-0"})
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	seen := w.ByRequest()
	of := func(ids []string) (calls []server.Call) {
		for _, id := range ids {
			calls = append(calls, seen[id]...)
		}
		return calls
	}
	t.peak("bulk_peak", rig.Together(of(bulk)), 3)
	t.peak("bg_peak", rig.Together(of(bg)), 5)
	start, err := w.startOf("rt-0", reply.Began)
	if err != nil {
		return err
	}
	t.Note("rt_start_ms", ms(start))
	t.Note("messages_on_queues_meanwhile", waiting)
	t.Hold(waiting > 0, "the rt call came after the others, not among them")
	t.Note("rt_start_idle_p50_ms", ms(usual))
	t.Hold(start < usual+50*time.Millisecond, "the rt call started after %s, on an idle system after %s", start, usual)
	return nil
}
