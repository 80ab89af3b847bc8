package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Targets that fail, each in its own way, and who serves instead.
func targets() []scenario {
	return []scenario{
		{ID: "S10", What: "a target answers 500, 500, 200: the second and the third attempt come after the waits of the retry curve, 1 to 2.5 s and 4 to 10 s", Run: s10},
		{ID: "S11", What: "four of five calls throttled for 4 s, 60 bg calls: the target pauses for a second or longer, the pause ends, and all end ok", Run: s11},
		{ID: "S12", What: "one of two targets answers 500 to all, 60 bg calls: once its breaker is open nobody asks it, those whose call was in flight neither, and the other target serves all", Run: s12},
		{ID: "S18", What: "the provider resets the connection in mid-body: the call is made again, and its caller gets a whole answer", Run: s18},
		{ID: "S23", What: "Bedrock throttles all calls of one region: the target in the other region serves", Run: s23},
		{ID: "S38", What: "not found, access denied, not in this region: the next target serves at once, on both wires", Run: s38},
		{ID: "S39", What: "a target that never answers: the attempt timeout of 3 s ends it, and the next target serves", Run: s39},
	}
}

func s10(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Status: 500, Times: 2}); err != nil {
		return err
	}
	a := w.Ask(ctx, call{ID: "retried", Lane: llmq.LaneRT})
	t.Hold(a.ok("retried") && a.Header.Get("X-LLMQ-Attempts") == "3", "got %d %s after %s attempts", a.Status, a.Code, a.Header.Get("X-LLMQ-Attempts"))
	w.Look(ctx)
	calls := w.ByRequest()["retried"]
	if len(calls) != 3 {
		return fmt.Errorf("the provider saw %d attempts, want 3: %w", len(calls), errNotAnswered)
	}
	for i, want := range []struct{ least, most time.Duration }{{time.Second, 2500 * time.Millisecond}, {4 * time.Second, 10 * time.Second}} {
		wait := calls[i+1].At.Sub(calls[i].At)
		t.Note(fmt.Sprintf("wait_%d_s", i+1), round(wait.Seconds()))
		t.Hold(wait >= want.least-20*time.Millisecond && wait <= want.most+late, "wait %d was %s, the curve says %s to %s", i+1, wait, want.least, want.most)
	}
	_, err = t.Account(ctx, w, []string{"retried"})
	return err
}

func s11(ctx context.Context, t *trial) error {
	const bad = 4 * time.Second
	w, err := t.Start(ctx, 0, wholeShare)
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	good := server.Phase{Latency: server.Latency{Mean: 100 * time.Millisecond}}
	throttled := good
	throttled.For, throttled.ThrottleShare = bad, 0.8
	if err := w.Fake.SetRules(server.Rule{Seed: t.Seed, Phases: []server.Phase{throttled, good}}); err != nil {
		return err
	}
	began := time.Now()
	if _, err := t.sendAndAccount(ctx, w, "bg", 60); err != nil {
		return err
	}
	took := time.Since(began)
	at := slices.DeleteFunc(w.seenAt(""), func(at time.Time) bool { return at.Before(began) }) // without those that warmed it up
	var longest time.Duration
	during := 0
	for i := range at[:len(at)-1] {
		if at[i].Before(began.Add(bad)) {
			during++
			longest = max(longest, at[i+1].Sub(at[i]))
		}
	}
	t.Note("calls_while_throttled", during)
	t.Note("longest_pause_s", round(longest.Seconds()))
	t.Note("took_s", round(took.Seconds()))
	t.Hold(longest > 800*time.Millisecond, "the longest time without a call was %s: nothing paused", longest)
	t.Hold(during < 60, "%d calls were made while most were throttled", during)
	t.Hold(took < 45*time.Second, "60 calls of 0.1 s took %s after 4 s of throttles", took)
	return nil
}

func s12(ctx context.Context, t *trial) error {
	const threshold, calls, together = 5, 60, 20
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		wholeShare(c)
		capped(together)(c)
		spare(c)
	})
	if err != nil {
		return err
	}
	if err := w.Fake.SetRules(server.Rule{
		Match:  server.Match{Model: "fake-chat-1"},
		Phases: []server.Phase{{RefuseDelay: 200 * time.Millisecond, Faults: []server.Fault{{Share: 1, Reply: server.Reply{Status: 500}}}}},
	}); err != nil {
		return err
	}
	ids := rig.Numbered("bg", calls)
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	broken := w.seenAt("fake-chat-1")
	t.Note("calls_of_the_broken_target", len(broken))
	t.Hold(len(broken) >= threshold && len(broken) <= together+threshold, "the broken target had %d calls: %d open its breaker, and %d may be in flight then", len(broken), threshold, together)
	again := 0
	seen := w.ByRequest()
	for _, id := range ids {
		n := 0
		for _, c := range seen[id] {
			if c.Model == "fake-chat-1" {
				n++
			}
		}
		if n > 1 {
			again++
		}
	}
	t.Note("calls_that_went_back_to_it", again)
	t.Hold(again == 0, "%d calls went back to the broken target", again)
	return nil
}

func s18(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Fail: server.FailReset, After: 40}); err != nil {
		return err
	}
	a := w.Ask(ctx, call{ID: "reset", Lane: llmq.LaneRT})
	whole := strings.HasPrefix(string(a.Body), "{") && strings.HasSuffix(strings.TrimSpace(string(a.Body)), "}")
	t.Hold(a.ok("reset") && whole, "got %d %.200s %v", a.Status, a.Body, a.Err)
	w.Look(ctx)
	n := len(w.ByRequest()["reset"])
	t.Note("provider_calls", n)
	t.Hold(n == 2, "the provider saw %d calls, want 2", n)
	_, err = t.Account(ctx, w, []string{"reset"})
	return err
}

// regions gives the converse model a target in each of two regions.
func regions(c *config.Config) {
	model := &c.Models[slices.IndexFunc(c.Models, func(m config.Model) bool { return m.Alias == rig.ModelConverse })]
	first := model.Targets[0]
	second := first
	first.Name, first.ModelID = "us", "us.fake.converse-v1:0"
	second.Name, second.ModelID = "eu", "eu.fake.converse-v1:0"
	model.Targets = []config.Target{first, second}
}

func (w *world) converse(ctx context.Context, id string) answer {
	return w.Ask(ctx, call{
		ID: id, Lane: llmq.LaneRT, Path: "/model/" + rig.ModelConverse + "/converse", Body: fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"text":%q}]}]}`, id),
	})
}

func s23(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, regions)
	if err != nil {
		return err
	}
	if err := w.Fake.SetRules(server.Rule{Match: server.Match{Model: "us.fake.converse-v1:0"}, Phases: []server.Phase{{ThrottleShare: 1}}}); err != nil {
		return err
	}
	ids := rig.Numbered("rt", 20)
	answers := make([]answer, len(ids))
	var callers sync.WaitGroup
	for i, id := range ids {
		callers.Go(func() { answers[i] = w.converse(ctx, id) })
	}
	callers.Wait()
	var slowest time.Duration
	for i, a := range answers {
		t.Hold(a.ok(ids[i]) && a.Header.Get("X-LLMQ-Target") == "eu", "%s got %d %s from %q %v", ids[i], a.Status, a.Code, a.Header.Get("X-LLMQ-Target"), a.Err)
		slowest = max(slowest, a.Took)
	}
	t.Note("slowest_s", round(slowest.Seconds()))
	t.Note("throttled", w.Fake.Stats().All.Throttled)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func s38(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, func(c *config.Config) { spare(c); regions(c) })
	if err != nil {
		return err
	}
	var ids []string
	for _, tt := range []struct {
		name     string
		converse bool
		reply    server.Reply
	}{
		{"openai-no-such-model", false, server.Reply{Code: "model_not_found"}},
		{"openai-404", false, server.Reply{Status: 404}},
		{"openai-no-access", false, server.Reply{Status: 403}},
		{"bedrock-not-found", true, server.Reply{Code: "ResourceNotFoundException"}},
		{"bedrock-access-denied", true, server.Reply{Code: "AccessDeniedException"}},
		{"bedrock-not-in-region", true, server.Reply{Code: "ValidationException", Message: "The provided model identifier is invalid."}},
	} {
		first, next := "fake-chat-1", "spare"
		ask := func() answer { return w.Ask(ctx, call{ID: tt.name, Lane: llmq.LaneRT}) }
		if tt.converse {
			first, next = "us.fake.converse-v1:0", "eu"
			ask = func() answer { return w.converse(ctx, tt.name) }
		}
		if err := w.Fake.Program(server.Match{Model: first}, tt.reply); err != nil {
			return err
		}
		a := ask()
		t.Hold(a.ok(tt.name) && a.Header.Get("X-LLMQ-Target") == next, "%s got %d %s from %q", tt.name, a.Status, a.Code, a.Header.Get("X-LLMQ-Target"))
		t.Hold(a.Took < 3*time.Second, "%s was served after %s", tt.name, a.Took)
		ids = append(ids, tt.name)
	}
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func s39(ctx context.Context, t *trial) error {
	const timeout = 3 * time.Second
	w, err := t.Start(ctx, 0, func(c *config.Config) {
		spare(c)
		c.Timing.AttemptTimeout = timeout
	})
	if err != nil {
		return err
	}
	if err := w.warmNext(ctx); err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{Model: "fake-chat-1"}, server.Reply{Hang: true, Times: 100}); err != nil {
		return err
	}
	a := w.Ask(ctx, call{ID: "hung", Lane: llmq.LaneRT})
	t.Note("answered_after_s", round(a.Took.Seconds()))
	t.Hold(a.ok("hung") && a.Header.Get("X-LLMQ-Target") == "spare", "got %d %s from %q %v", a.Status, a.Code, a.Header.Get("X-LLMQ-Target"), a.Err)
	t.Hold(a.Took >= timeout && a.Took < timeout+2*time.Second, "answered after %s, the attempt timeout is %s", a.Took, timeout)
	w.Look(ctx)
	tried := len(w.seenAt("fake-chat-1"))
	_, err = t.Account(ctx, w, []string{"hung"})
	t.Note("calls_of_the_hung_target", tried)
	return err
}

// warmNext starts the functions without a call of the chat model.
func (w *world) warmNext(ctx context.Context) error {
	if a := w.converse(ctx, "warm"); !a.ok("warm") {
		return fmt.Errorf("warm: %d %.200s: %w", a.Status, a.Body, errNotAnswered)
	}
	return nil
}
