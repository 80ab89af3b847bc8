package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Budgets of calls and tokens a minute, as the provider sees them kept.
func rates() []scenario {
	return []scenario{
		{ID: "R01", What: "rpm 120, smooth, no burst, 40 bg calls at once: two start a second, from the first to the last", Run: r01},
		{ID: "R02", What: "rpm 20, fixed, 30 bg calls at once early in a minute of the calendar: 20 start in it, and 10 at the next one", Run: r02},
		{ID: "R03", What: "rpm 60, rate_burst 10, 20 bg calls at once: ten start back to back, the others one a second", Run: r03},
		{ID: "R04", What: "rpm 60, rate_burst 10, rt_rate_share 0.2, a backlog of bg: it takes at most 80 % of the budget, and three rt calls in it, one every 8 s, start at once", Run: r04},
		{ID: "R05", What: "rt takes the next target when its first is out of budget", Run: r05},
		{ID: "R06", What: "no budget in the chain: an rt call fails as rate_limited, and one that comes back after its Retry-After is served", Run: r06},
		{ID: "R07", What: "bg waits for its own target's budget and spends none of the next target's", Run: r07},
		{ID: "R08", What: "tpm 6,000: ten calls one after the other that ask for 3,000 tokens and use 20 are served in one minute, for the budget is settled from usage", Run: r08},
		{ID: "R09", What: "shared_rpm 60 over two models of a provider, 15 bg calls each: both together start one a second; then shared_tpm 24,000: both together use 400 tokens a second", Run: r09},
		{ID: "R10", What: "rpm 30 raised to 240 live in mid-run: the calls follow within one reload, and not before", Run: r10},
		{ID: "R11", What: "Valkey refused for 10 s under a budget: nothing starts meanwhile, a call over HTTPS is told to come back, and all run within the budget after", Run: r11},
		{ID: "R12", What: "rpm 600 where the provider takes 120: throttles cut, and all of 60 bg calls end ok", Run: r12},
	}
}

// budget gives the chat model's one target a budget of calls a minute. Its cap is out of the way.
func budget(rpm, burst int, rtShare float64) func(*config.Config) {
	return func(c *config.Config) {
		wholeShare(c)
		target := &c.Models[0].Targets[0]
		target.Limits.RPM, target.Limits.RateBurst = rpm, burst
		target.Limits.RTRateShare = config.Share{Of: rtShare, Given: true}
	}
}

// spare gives the chat model a second target, without budget, whose calls show as those of another model at the provider.
func spare(c *config.Config) {
	second := c.Models[0].Targets[0]
	second.Name, second.ModelID, second.Limits = "spare", "fake-chat-2", config.Limits{}
	c.Models[0].Targets = append(c.Models[0].Targets, second)
}

// seenAt tells when the provider saw calls of a model, in order; "" is any.
func (w *world) seenAt(model string) []time.Time {
	var at []time.Time
	for _, c := range w.Calls() {
		if model == "" || c.Model == model {
			at = append(at, c.At)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// most counts the starts of the busiest span of that length.
func most(starts []time.Time, span time.Duration) int {
	best := 0
	for i, first := range starts {
		n := 0
		for n = i; n < len(starts) && starts[n].Before(first.Add(span)); {
			n++
		}
		best = max(best, n-i)
	}
	return best
}

// late is how much of a span two starts may have moved on their way from the budget to the provider.
const late = 300 * time.Millisecond

// within holds that no span of starts had more than a budget gives.
func (t *trial) within(starts []time.Time, perSecond float64, burst int) {
	for _, span := range []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second} {
		may := burst + int(perSecond*(span+late).Seconds())
		got := most(starts, span)
		t.Note(fmt.Sprintf("most_in_%d_s", int(span.Seconds())), got)
		t.Hold(got <= may, "%d calls started within %s, the budget gives %d", got, span, may)
	}
}

// sendAndAccount queues bg calls and waits for their ends.
func (t *trial) sendAndAccount(ctx context.Context, w *world, first string, n int) ([]string, error) {
	ids := rig.Numbered(first, n)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return nil, err
	}
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return ids, err
}

func r01(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, budget(120, 1, 0))
	if err != nil {
		return err
	}
	if _, err := t.sendAndAccount(ctx, w, "bg", 40); err != nil {
		return err
	}
	at := w.seenAt("")
	t.within(at, 2, 1)
	t.spread(at, 39*500*time.Millisecond)
	return nil
}

// handedBack is how late a message may be that was handed back for want of budget: bg waits so long at most inside a batch, and outside.
const handedBack = 15 * time.Second

// spread notes and holds how long it took from the first start to the last: what the budget needs, and not half as long again, but for the
// last ones, which may have been handed back.
func (t *trial) spread(at []time.Time, need time.Duration) {
	took := at[len(at)-1].Sub(at[0])
	t.Note("first_to_last_s", round(took.Seconds()))
	t.Note("budget_needs_s", round(need.Seconds()))
	t.Hold(took > need-time.Second && took < need*3/2+handedBack, "from the first start to the last it took %s, the budget needs %s", took, need)
}

func r02(ctx context.Context, t *trial) error {
	const rpm = 20
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		budget(rpm, 0, 0)(c)
		c.Models[0].Targets[0].Limits.RateWindow = config.RateFixed
	})
	if err != nil {
		return err
	}
	if in := time.Since(time.Now().Truncate(time.Minute)); in > 45*time.Second { // its first part must end in it
		if err := t.Pause(ctx, time.Minute-in); err != nil {
			return err
		}
	}
	first := time.Now().Truncate(time.Minute)
	if _, err := t.sendAndAccount(ctx, w, "bg", rpm+10); err != nil {
		return err
	}
	counted := map[time.Time]int{}
	for _, at := range w.seenAt("") {
		counted[at.Truncate(time.Minute)]++
	}
	t.Note("in_the_first_minute", counted[first])
	t.Note("in_the_next", counted[first.Add(time.Minute)])
	t.Hold(counted[first] == rpm && counted[first.Add(time.Minute)] == 10, "%d calls started in the first minute and %d in the next, want %d and 10",
		counted[first], counted[first.Add(time.Minute)], rpm)
	return nil
}

func r03(ctx context.Context, t *trial) error {
	const burst = 10
	w, err := t.Start(ctx, 50*time.Millisecond, budget(60, burst, 0))
	if err != nil {
		return err
	}
	if _, err := t.sendAndAccount(ctx, w, "bg", 2*burst); err != nil {
		return err
	}
	at := w.seenAt("")
	together := most(at, 2*time.Second)
	t.Note("back_to_back", together)
	t.Hold(together >= burst, "%d calls started back to back, want %d", together, burst)
	t.within(at, 1, burst)
	t.spread(at[burst-1:], burst*time.Second)
	return nil
}

func r04(ctx context.Context, t *trial) error {
	const burst, rpm, share = 10, 60, 0.2
	w, err := t.Start(ctx, 50*time.Millisecond, budget(rpm, burst, share))
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	warm := len(w.seenAt(""))
	ids := rig.Numbered("bg", 60)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "the backlog to run at its rate", func() bool { w.Look(ctx); return len(w.seenAt(""))-warm >= 15 }); err != nil {
		return err
	}
	live := rig.Numbered("rt", 3)
	for _, id := range live {
		if err := t.Pause(ctx, 8*time.Second); err != nil { // its share is twelve a minute
			return err
		}
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
		t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
		w.Look(ctx)
		start, err := w.startOf(id, a.Began)
		if err != nil {
			return err
		}
		t.Note(id+"_start_ms", ms(start))
		t.Hold(start < 500*time.Millisecond, "%s started after %s behind the backlog", id, start)
	}
	a, err := t.Account(ctx, w, slices.Concat(ids, live))
	if err != nil {
		return err
	}
	t.onceEach(a, slices.Concat(ids, live))
	seen := w.ByRequest()
	var at []time.Time
	for _, id := range ids {
		at = append(at, seen[id][0].At)
	}
	slices.SortFunc(at, time.Time.Compare)
	t.within(at, rpm*(1-share)/60, burst)
	return nil
}
