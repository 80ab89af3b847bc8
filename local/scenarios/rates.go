package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
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
		{ID: "R09", What: "shared_rpm 60 over two models of a provider, 15 bg calls each: both together start one a second", Run: r09},
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
		t.Hold(start < time.Second, "%s started after %s behind the backlog", id, start)
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

func r05(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) { budget(6, 1, 0)(c); spare(c) })
	if err != nil {
		return err
	}
	targets := ""
	ids := rig.Numbered("rt", 3)
	for _, id := range ids {
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
		t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
		targets += " " + a.Header.Get("X-LLMQ-Target")
	}
	t.Note("served_by", targets[1:])
	t.Hold(targets == " main spare spare", "the calls were served by%s, want main spare spare", targets)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func r06(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		budget(6, 1, 0)(c)
		c.Timing.RTCapacityWait = time.Second
	})
	if err != nil {
		return err
	}
	first := w.Ask(ctx, call{ID: "first", Lane: llmq.LaneRT})
	t.Hold(first.ok("first"), "the first call got %d %s %v", first.Status, first.Code, first.Err)
	refused := w.Ask(ctx, call{ID: "refused", Lane: llmq.LaneRT})
	wait, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	t.Note("refused_as", string(refused.Code))
	t.Note("retry_after_s", wait)
	t.Hold(refused.Code == llmq.CodeRateLimited && refused.Status == 429 && refused.Header.Get("X-Should-Retry") == "true", "the second call got %d %s, want 429 rate_limited", refused.Status, refused.Code)
	t.Hold(err == nil && wait >= 1 && wait <= 10, "Retry-After is %q, the next call may start within 10 s", refused.Header.Get("Retry-After"))
	if err := t.Pause(ctx, time.Duration(wait)*time.Second); err != nil {
		return err
	}
	again := w.Ask(ctx, call{ID: "again", Lane: llmq.LaneRT})
	t.Hold(again.ok("again"), "after that time it got %d %s %v", again.Status, again.Code, again.Err)
	a, err := t.Account(ctx, w, []string{"first", "again"})
	t.onceEach(a, []string{"first", "again"})
	return err
}

func r07(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) { budget(30, 1, 0)(c); spare(c) })
	if err != nil {
		return err
	}
	if _, err := t.sendAndAccount(ctx, w, "bg", 6); err != nil {
		return err
	}
	own, other := w.seenAt("fake-chat-1"), w.seenAt("fake-chat-2")
	t.Note("calls_of_the_next_target", len(other))
	t.Hold(len(own) == 6 && len(other) == 0, "its own target had %d calls, the next one %d; want 6 and 0", len(own), len(other))
	t.within(own, 0.5, 1)
	return nil
}

func r08(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		budget(0, 0, 0)(c)
		limits := &c.Models[0].Targets[0].Limits
		limits.TPM, limits.RateWindow = 6000, config.RateFixed
	})
	if err != nil {
		return err
	}
	ids := rig.Numbered("rt", 10)
	began := time.Now()
	for _, id := range ids {
		body := fmt.Appendf(nil, `{"model":%q,"max_tokens":3000,"messages":[{"role":"user","content":%q}]}`, rig.ModelChat, id)
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT, Body: body})
		t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
	}
	took := time.Since(began)
	t.Note("took_s", round(took.Seconds()))
	t.Hold(took < 20*time.Second, "ten calls took %s: the budget was held by what they asked for", took)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func r09(ctx context.Context, t *trial) error {
	const second, n = "chat-b", 15
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		wholeShare(c)
		twin := c.Models[0]
		twin.Alias, twin.Targets = second, slices.Clone(twin.Targets)
		twin.Targets[0].ModelID = "fake-chat-2"
		c.Models = append(c.Models, twin)
		c.Providers[0].SharedRPM = 60
		c.Providers[0].Limits.RTRateShare = config.Share{Given: true}
	})
	if err != nil {
		return err
	}
	one, other := rig.Numbered("a", n), rig.Numbered("b", n)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, one); err != nil {
		return err
	}
	if err := w.Send(ctx, second, llmq.LaneBG, deadline, other); err != nil {
		return err
	}
	ids := slices.Concat(one, other)
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	const burst = 6 // a tenth of a minute's
	t.within(w.seenAt(""), 1, burst)
	t.spread(w.seenAt("")[burst-1:], (2*n-burst)*time.Second)
	return nil
}

func r10(ctx context.Context, t *trial) error {
	const reload = 2 * time.Second
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		budget(30, 1, 0)(c)
		c.Timing.Reload = reload
	})
	if err != nil {
		return err
	}
	ids := rig.Numbered("bg", 60)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "the first calls", func() bool { return w.Fake.Stats().All.Good >= 5 }); err != nil {
		return err
	}
	raised := time.Now()
	if err := w.Operate(ctx, "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"rpm": 240}}, nil); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	at := w.seenAt("")
	since := slices.IndexFunc(at, func(at time.Time) bool { return at.After(raised) })
	followed := slices.IndexFunc(at, func(x time.Time) bool { return x.After(raised) && most(at, time.Second) >= 4 })
	t.Hold(followed >= 0, "no second had four starts")
	t.within(at[:since], 0.5, 1)
	took := at[len(at)-1].Sub(raised)
	need := time.Duration(len(at)-since) * 250 * time.Millisecond
	t.Note("after_the_change_s", round(took.Seconds()))
	t.Note("budget_needs_s", round(need.Seconds()))
	t.Hold(took > need-time.Second && took < need*3/2+reload+handedBack, "the rest took %s, the new budget needs %s", took, need)
	return nil
}

func r11(ctx context.Context, t *trial) error {
	const rpm = 120
	w, err := t.Start(ctx, 50*time.Millisecond, budget(rpm, 1, 0))
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	ids := rig.Numbered("bg", 50)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "the first calls", func() bool { return w.Fake.Stats().All.Good >= 8 }); err != nil {
		return err
	}
	var down, up time.Time
	told := make(chan answer, 1)
	go func() { told <- w.Ask(ctx, call{ID: "meanwhile", Lane: llmq.LaneRT, Within: 60 * time.Second}) }()
	down = time.Now()
	if err := valkeyBlipped().run(ctx, t, w, 10*time.Second); err != nil {
		return err
	}
	up = time.Now()
	a := <-told
	t.Note("over_https_meanwhile", fmt.Sprint(a.Status, " ", a.Code))
	t.Hold(a.ok("meanwhile") || a.Code == llmq.CodeQueueUnavailable && a.Header.Get("Retry-After") != "", "a call meanwhile got %d %s %v", a.Status, a.Code, a.Err)
	if _, err := t.Account(ctx, w, ids); err != nil {
		return err
	}
	at := w.seenAt("")
	meanwhile := slices.DeleteFunc(slices.Clone(at), func(x time.Time) bool { return x.Before(down.Add(late)) || x.After(up) })
	t.Note("starts_while_down", len(meanwhile))
	t.Hold(len(meanwhile) == 0, "%d calls started while the store that keeps the budget was away", len(meanwhile))
	t.within(at, rpm/60, 1)
	return nil
}

func r12(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, budget(600, 60, 0))
	if err != nil {
		return err
	}
	if err := w.Fake.SetRules(server.Rule{Seed: t.Seed, Phases: []server.Phase{{
		Limits:     quota.Limits{Requests: quota.Rate{PerMinute: 120, Burst: 12}},
		RetryAfter: server.RetryAfter{Form: server.RetrySeconds},
		Latency:    server.Latency{Mean: 100 * time.Millisecond},
	}}}); err != nil {
		return err
	}
	ids := rig.Numbered("bg", 60)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	began := time.Now()
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	stats := w.Fake.Stats().All
	t.Note("throttled", stats.Throttled)
	t.Note("took_s", round(time.Since(began).Seconds()))
	t.Note("quota_needs_s", 24)
	t.Hold(stats.Throttled > 0, "nothing was throttled, so nothing is shown")
	t.Hold(stats.Throttled < len(ids), "%d throttles for %d calls", stats.Throttled, len(ids))
	return nil
}
