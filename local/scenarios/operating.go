package main

import (
	"context"
	"encoding/json"
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

// What operators do while calls run, and what must hold of calls that nobody disturbs.
func operating() []scenario {
	return []scenario{
		{ID: "S05", What: "embeddings of 40 texts by bg: vectors in the order of the texts, each the same as of a text alone; with their target down they fail, and no other model is asked", Run: s05},
		{ID: "S17", What: "a provider that answers nobody, a call a lane with 3, 5 and 7 s: each is answered as timeout at its own deadline, and nothing runs on", Run: s17, Quiet: true},
		{ID: "S26", What: "half of the sessions by the queue, half at the door, each on its side; then the kill switch: within one reload rt runs at the door and bg is refused, and back", Run: s26},
		{ID: "S40", What: "a lane purged with 20 callers waiting: what runs finishes, each other caller gets an error by its deadline", Run: s40},
		{ID: "S41", What: "a target left out of the chain live, under load: within one reload nobody asks it, and every call is ok", Run: s41},
		{ID: "S47", What: "a poison call goes to the dead-letter queue with its reason; mended and redriven, it runs", Run: s47},
		{ID: "S48", What: "200 rt calls (short: 60) on a queue that a worker without its model is given messages of as well: each call succeeds, after a few redeliveries, which are counted, and never one after the other for long", Run: s48},
		{ID: "S49", What: "a lane's workers raised from 2 to 8 under load, cap 10: they share the one limit, at most 10 run and exactly that", Run: s49},
	}
}

func s05(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 20*time.Millisecond, func(c *config.Config) {
		emb := slices.IndexFunc(c.Models, func(m config.Model) bool { return m.Alias == rig.ModelEmbed })
		twin := c.Models[emb]
		twin.Alias, twin.Targets = "emb-b", slices.Clone(twin.Targets)
		twin.Targets[0].ModelID = "fake-embed-2"
		c.Models = append(c.Models, twin)
		c.Models[emb].Fallback = []config.FallbackModel{{Model: twin.Alias}}
		c.Timing.RetryBase = 50 * time.Millisecond
	})
	if err != nil {
		return err
	}
	embed := func(id string, texts ...string) ([]string, answer) {
		body, _ := json.Marshal(map[string]any{"model": rig.ModelEmbed, "input": texts, "encoding_format": "base64"}) // texts can't fail
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneBG, Path: "/v1/embeddings", Body: body})
		var got struct {
			Data []struct {
				Index     int
				Embedding string
			}
		}
		if a.Status != 200 || json.Unmarshal(a.Body, &got) != nil {
			return nil, a
		}
		vectors := make([]string, len(got.Data))
		for i, d := range got.Data {
			t.Hold(d.Index == i, "%s: the vector at %d says it is number %d", id, i, d.Index)
			vectors[i] = d.Embedding
		}
		return vectors, a
	}
	texts := make([]string, 40)
	for i := range texts {
		texts[i] = fmt.Sprintf("%d %s", i, strings.Repeat("x", i))
	}
	all, a := embed("all", texts...)
	t.Hold(len(all) == len(texts), "40 texts got %d vectors, %d %s", len(all), a.Status, a.Code)
	same := 0
	for i := 0; i < len(all); i += 8 {
		if alone, _ := embed(fmt.Sprintf("alone-%d", i), texts[i]); len(alone) == 1 && alone[0] == all[i] {
			same++
		}
	}
	t.Note("of_5_the_same_as_alone", same)
	t.Hold(same == 5, "%d of 5 vectors are those of their text alone", same)
	if err := w.Fake.Program(server.Match{Model: "fake-embed-1"}, server.Reply{Status: 500, Times: 100}); err != nil {
		return err
	}
	_, a = embed("down", "text")
	t.Note("with_its_target_down", string(a.Code))
	t.Hold(a.honest(), "with its target down it got %d %s", a.Status, a.Code)
	w.Look(ctx)
	other := len(w.seenAt("fake-embed-2"))
	t.Hold(other == 0, "another model was asked %d times", other)
	return w.AwaitDrained(ctx)
}

func s17(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true, Times: 100}); err != nil {
		return err
	}
	var callers sync.WaitGroup
	answers := make([]answer, len(llmq.Lanes()))
	for i, l := range llmq.Lanes() {
		callers.Go(func() {
			answers[i] = w.Ask(ctx, call{ID: "late-" + string(l), Lane: l, Within: time.Duration(3+2*i) * time.Second})
		})
	}
	callers.Wait()
	for i, l := range llmq.Lanes() {
		a, within := answers[i], time.Duration(3+2*i)*time.Second
		t.Note(string(l)+"_answered_after_s", round(a.Took.Seconds()))
		t.Hold(a.Code == llmq.CodeTimeout && a.Status == 504, "%s got %d %s %v, want timeout", l, a.Status, a.Code, a.Err)
		t.Hold(a.Took > within-500*time.Millisecond && a.Took < within+2*time.Second, "%s was answered after %s, its deadline was %s", l, a.Took, within)
	}
	return w.AwaitDrained(ctx) // it waits for the provider to have nobody
}

func s26(ctx context.Context, t *trial) error {
	const reload = 2 * time.Second
	w, err := t.Start(ctx, 20*time.Millisecond, func(c *config.Config) { c.Timing.Reload = reload })
	if err != nil {
		return err
	}
	if err := w.Operate(ctx, "/routing/set", map[string]any{"model": rig.ModelChat, "lane": "rt", "mode": "direct", "queue_percent": 50}, nil); err != nil {
		return err
	}
	if err := t.Pause(ctx, reload+time.Second); err != nil {
		return err
	}
	const sessions = 60
	atDoor, moved := 0, 0
	for i := range sessions {
		var side [2]bool
		for j := range side {
			id := fmt.Sprintf("session-%d-%d", i, j)
			a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT, Session: fmt.Sprintf("session-%d", i)})
			t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
			side[j] = a.Header.Get("X-LLMQ-Direct") == "true"
		}
		if side[0] {
			atDoor++
		}
		if side[0] != side[1] {
			moved++
		}
	}
	t.Note("sessions", sessions)
	t.Note("sessions_at_the_door", atDoor)
	t.Note("sessions_that_changed_sides", moved)
	t.Hold(moved == 0, "%d sessions did not stay on their side", moved)
	t.Hold(atDoor >= sessions/4 && atDoor <= sessions*3/4, "%d of %d sessions ran at the door, want about half", atDoor, sessions)

	kill := func(on bool) error {
		if err := w.Operate(ctx, "/routing/kill", map[string]any{"on": on}, nil); err != nil {
			return err
		}
		return t.Pause(ctx, reload+time.Second)
	}
	if err := kill(true); err != nil {
		return err
	}
	rt := w.Ask(ctx, call{ID: "killed-rt", Lane: llmq.LaneRT})
	t.Hold(rt.ok("killed-rt") && rt.Header.Get("X-LLMQ-Direct") == "true", "with the switch on rt got %d %s, direct %q", rt.Status, rt.Code, rt.Header.Get("X-LLMQ-Direct"))
	bg := w.Ask(ctx, call{ID: "killed-bg", Lane: llmq.LaneBG})
	t.Hold(bg.Code == llmq.CodeQueueUnavailable && bg.Header.Get("Retry-After") != "", "with the switch on bg got %d %s", bg.Status, bg.Code)
	if err := kill(false); err != nil {
		return err
	}
	bg = w.Ask(ctx, call{ID: "back-bg", Lane: llmq.LaneBG})
	t.Hold(bg.ok("back-bg"), "with the switch off again bg got %d %s", bg.Status, bg.Code)
	_, err = t.Account(ctx, w, []string{"killed-rt", "back-bg"})
	return err
}

func s40(ctx context.Context, t *trial) error {
	const within = 20 * time.Second
	w, err := t.Start(ctx, 0, func(c *config.Config) {
		capped(1)(c)
		lane(c, llmq.LaneBG, 2, 1) // all but two stay in the queue
	})
	if err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		return err
	}
	var callers sync.WaitGroup
	running := make(chan answer, 1)
	callers.Go(func() { running <- w.Ask(ctx, call{ID: "running", Lane: llmq.LaneBG, Within: time.Minute}) })
	if err := w.Fake.AwaitInFlight(ctx, "", 1); err != nil {
		return err
	}
	ids := rig.Numbered("purged", 20)
	answers := make([]answer, len(ids))
	for i, id := range ids {
		callers.Go(func() { answers[i] = w.Ask(ctx, call{ID: id, Lane: llmq.LaneBG, Within: within}) })
	}
	q := w.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBG)
	if err := rig.Poll(ctx, "all to be queued", func() bool {
		d, err := w.QueueDepth(ctx, q)
		return err == nil && d.Visible+d.InFlight+d.Delayed == len(ids)+1
	}); err != nil {
		return err
	}
	if err := w.Operate(ctx, "/queues/purge", map[string]any{"queue": q, "confirm": q}, nil); err != nil {
		return err
	}
	w.Fake.Release(server.Match{})
	callers.Wait()
	a := <-running
	t.Hold(a.ok("running"), "what ran got %d %s %v", a.Status, a.Code, a.Err)
	codes, slowest := map[llmq.Code]int{}, time.Duration(0)
	for i, a := range answers {
		codes[a.Code]++
		slowest = max(slowest, a.Took)
		t.Hold(a.ok(ids[i]) || a.honest(), "%s got %d %s %v", ids[i], a.Status, a.Code, a.Err)
	}
	t.Note("ends", fmt.Sprint(codes))
	t.Hold(codes[""] <= 2, "%d callers got an answer: hardly anything was purged", codes[""])
	t.Note("slowest_s", round(slowest.Seconds()))
	t.Hold(slowest < within+4*time.Second, "a caller was answered after %s, its deadline was %s", slowest, within)
	_, err = t.Account(ctx, w, []string{"running"})
	return err
}

func s41(ctx context.Context, t *trial) error {
	const reload, slack = 2 * time.Second, time.Second
	w, err := t.Start(ctx, 100*time.Millisecond, func(c *config.Config) {
		wholeShare(c)
		capped(10)(c)
		spare(c)
		c.Timing.Reload = reload
	})
	if err != nil {
		return err
	}
	ids := rig.Numbered("bg", t.Size(1500, 900))
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "a tenth of the calls", func() bool { return w.Fake.Stats().All.Good >= len(ids)/10 }); err != nil {
		return err
	}
	changed := time.Now()
	if err := w.Operate(ctx, "/fallback/set", map[string]any{"model": rig.ModelChat, "skip_targets": []string{"main"}}, nil); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	var last time.Duration // of calls that were made in the old way
	before, after := 0, 0
	for _, at := range w.seenAt("fake-chat-1") {
		if at.After(changed) {
			last = max(last, at.Sub(changed))
		} else {
			before++
		}
	}
	for _, at := range w.seenAt("fake-chat-2") {
		if at.After(changed) {
			after++
		}
	}
	t.Note("calls_of_it_before", before)
	t.Note("its_last_call_after_the_change_s", round(last.Seconds()))
	t.Note("calls_of_the_other_after", after)
	t.Hold(before > 0 && after > 0, "the target had %d calls before and the other %d after: nothing is shown", before, after)
	t.Hold(last < reload+slack, "it was asked %s after the change, the reload time is %s", last, reload)
	return nil
}

func s47(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, func(c *config.Config) {
		c.Timing.MaxReceives, c.Timing.RetryBase, c.Timing.RetryMax = 3, 100*time.Millisecond, time.Second
	})
	if err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Status: 500, Times: 3}); err != nil {
		return err
	}
	a := w.Ask(ctx, call{ID: "poison", Lane: llmq.LaneBG})
	t.Note("its_caller_got", string(a.Code))
	t.Hold(a.honest(), "its caller got %d %s %v", a.Status, a.Code, a.Err)
	if err := rig.Poll(ctx, "the dead letter", func() bool { _, dead, err := w.Depth(ctx); return err == nil && dead == 1 }); err != nil {
		return err
	}
	ask := map[string]any{"model": rig.ModelChat, "lane": "bg", "dry_run": true}
	var redriven struct {
		Moved, Matching int
		Reasons         map[string]int
	}
	if err := w.Operate(ctx, "/queues/redrive", ask, &redriven); err != nil {
		return err
	}
	t.Note("reasons", fmt.Sprint(redriven.Reasons))
	t.Hold(redriven.Matching == 1 && len(redriven.Reasons) == 1, "the dry run finds %+v", redriven)
	delete(ask, "dry_run")
	if err := w.Operate(ctx, "/queues/redrive", ask, &redriven); err != nil {
		return err
	}
	t.Hold(redriven.Moved == 1, "%d letters were sent again", redriven.Moved)
	acc, err := t.Account(ctx, w, []string{"poison"})
	if err != nil {
		return err
	}
	t.onceEach(acc, []string{"poison"})
	repeated := w.Ask(ctx, call{ID: "poison", Lane: llmq.LaneBG})
	t.Hold(repeated.ok("poison"), "its key now has %d %s", repeated.Status, repeated.Code)
	return nil
}
