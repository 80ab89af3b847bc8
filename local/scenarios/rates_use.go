package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// What it costs to be out of a budget, and what else holds of budgets.

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
	const n = 15
	calls, ids, err := t.shared(ctx, func(p *config.Provider) { p.SharedRPM = 60 }, n, "")
	if err != nil {
		return err
	}
	const burst = 6 // a tenth of a minute's
	var at []time.Time
	for _, c := range calls {
		at = append(at, c.At)
	}
	t.within(at, 1, burst)
	t.spread(at[burst-1:], time.Duration(len(ids)-burst)*time.Second)

	const perSecond, burstTokens = 400, 2400 // of 24,000 a minute
	calls, _, err = t.shared(ctx, func(p *config.Provider) { p.SharedTPM = 60 * perSecond }, n, " "+strings.Repeat("word ", 150))
	if err != nil {
		return err
	}
	// What is in flight reserves more than it uses, so that the use lies below.
	const span = 5 * time.Second
	used, busiest := 0, 0
	for i := range calls {
		used += calls[i].InputTokens + calls[i].OutputTokens
		in := 0
		for _, c := range calls[i:] {
			if c.At.Before(calls[i].At.Add(span)) {
				in += c.InputTokens + c.OutputTokens
			}
		}
		busiest = max(busiest, in)
	}
	may := burstTokens + int(perSecond*(span+late).Seconds())
	t.Note("tokens_used", used)
	t.Note("most_tokens_in_5_s", busiest)
	t.Hold(used > 2*may, "%d tokens were used in all, too few to tell", used)
	t.Hold(busiest <= may, "%d tokens were used within %s, the budget gives %d", busiest, span, may)
	return nil
}

// shared sends n bg calls to each of two models of one provider, under a budget of both, and returns the provider's calls in order.
func (t *trial) shared(ctx context.Context, budget func(*config.Provider), n int, text string) ([]server.Call, []string, error) {
	const second = "chat-b"
	w, err := t.Start(ctx, 50*time.Millisecond, func(c *config.Config) {
		wholeShare(c)
		twin := c.Models[0]
		twin.Alias, twin.Targets = second, slices.Clone(twin.Targets)
		twin.Targets[0].ModelID = "fake-chat-2"
		c.Models = append(c.Models, twin)
		budget(&c.Providers[0])
		c.Providers[0].Limits.RTRateShare = config.Share{Given: true}
	})
	if err != nil {
		return nil, nil, err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	one, other := rig.Numbered("a", n), rig.Numbered("b", n)
	ids := slices.Concat(one, other)
	failed := make([]error, len(ids))
	var callers sync.WaitGroup
	for i, id := range ids {
		r := request(id, llmq.LaneBG, deadline)
		if i >= n {
			r.Model.Alias = second
		}
		r.Body = rig.ChatBody(r.Model.Alias, id+text)
		callers.Go(func() { _, failed[i] = program.Do(ctx, r) })
	}
	callers.Wait()
	for i, err := range failed {
		t.Hold(err == nil, "%s: %v", ids[i], err)
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return nil, nil, err
	}
	t.onceEach(a, ids)
	calls := w.Calls()
	slices.SortFunc(calls, func(a, b server.Call) int { return a.At.Compare(b.At) })
	return calls, ids, nil
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
	t.Hold(most(at[since:], time.Second) >= 4, "no second after the change had four starts")
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
