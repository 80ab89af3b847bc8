package rig_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// C3, D1, E10: many processes, one cap. It is reached and never broken, nothing is lost and
// nothing is paid for twice.
func TestCaps_ManyProcessesKeepOneCap(t *testing.T) {
	t.Parallel()
	s := newStorm(t, capped(10))
	began := time.Now()
	ids := rig.Numbered("call", 2000)
	s.send(t, rig.ModelChat, llmq.LaneBulk, "call", len(ids))
	s.drained(within(t, 4*time.Minute), t)
	s.onceEach(t, ids)
	s.alive(t)
	if got := s.Fake.Peak(""); got != 10 {
		t.Errorf("peak = %d, want exactly 10", got)
	}
	t.Logf("%s; %.0f calls a second of at most %.0f, sending included", s.counts(), float64(len(ids))/time.Since(began).Seconds(), 10/stormTakes.Seconds())
}

// C4: what the targets of a provider share holds over all of them.
func TestCaps_SharedByTwoModels(t *testing.T) {
	t.Parallel()
	s := newStorm(t, func(c *config.Config) {
		second := c.Models[0]
		second.Alias = "chat-b"
		second.Targets = slices.Clone(second.Targets)
		second.Targets[0].ModelID = "fake-chat-2"
		c.Models = append(c.Models, second)
		c.Providers[0].SharedMaxConcurrency = 8
	})
	s.send(t, rig.ModelChat, llmq.LaneBulk, "a", 300)
	s.send(t, "chat-b", llmq.LaneBulk, "b", 300)
	s.drained(within(t, 4*time.Minute), t)
	s.onceEach(t, append(rig.Numbered("a", 300), rig.Numbered("b", 300)...))
	s.alive(t)
	if got := s.Fake.Peak(""); got != 8 {
		t.Errorf("peak of both models = %d, want exactly 8", got)
	}
	t.Logf("%s; peak of each model %d and %d", s.counts(), s.Fake.Peak("fake-chat-1"), s.Fake.Peak("fake-chat-2"))
}

// C6, B2: lanes have caps of their own, exact under 600 calls, and rt starts at once among
// them. Bulk 3 and bg 5 of 20 leave room, so what an rt call waits for is never a slot.
func TestCaps_LanesAndAnRTCallAmongThem(t *testing.T) {
	t.Parallel()
	s := newStorm(t, func(c *config.Config) {
		target := &c.Models[0].Targets[0]
		target.MaxConcurrency, target.Limits.Bulk, target.Limits.BG = 20, 3, 5
	})
	s.send(t, rig.ModelChat, llmq.LaneBulk, "bulk", 300)
	s.send(t, rig.ModelChat, llmq.LaneBG, "bg", 300)
	if err := s.Fake.AwaitInFlight(within(t, time.Minute), "", 8); err != nil {
		t.Fatal(err)
	}
	const rts = 5
	asks := map[string]time.Time{}
	for i := range rts {
		id := fmt.Sprintf("rt-%d", i)
		asks[id] = time.Now()
		if _, err := chat(within(t, time.Minute), openaiClient(s.Rig), rig.ModelChat, id, option.WithMaxRetries(0)); err != nil {
			t.Fatalf("an rt call among the others: %v", err)
		}
	}
	waiting, _ := s.depth(t)
	if waiting == 0 {
		t.Error("the rt calls came after the others, not among them")
	}
	s.drained(within(t, 4*time.Minute), t)
	s.answered(t, slices.Concat(rig.Numbered("bulk", 300), rig.Numbered("bg", 300), rig.Numbered("rt", rts)))
	if g := s.Fake.Stats().All; g.Calls != 600+rts || g.Repeats != 0 {
		t.Errorf("the provider counts %d calls and %d repeats, want %d and 0", g.Calls, g.Repeats, 600+rts)
	}
	s.alive(t)
	seen := s.ByRequest()
	for _, lane := range []struct {
		first string
		want  int
	}{{"bulk", 3}, {"bg", 5}} {
		var calls []server.Call
		for _, id := range rig.Numbered(lane.first, 300) {
			calls = append(calls, seen[id]...)
		}
		if got := rig.Together(calls); got != lane.want {
			t.Errorf("%s: %d calls at once, want exactly %d", lane.first, got, lane.want)
		}
	}
	var starts []time.Duration
	for id, at := range asks {
		starts = append(starts, seen[id][0].At.Sub(at).Round(time.Millisecond))
	}
	slices.Sort(starts)
	// The first one starts a door and a worker; here too, on a loaded machine, it is far from
	// the rounds that it would wait behind 600 calls.
	if most := starts[len(starts)-1]; most > 5*time.Second {
		t.Errorf("an rt call started after %s among %d others", most, waiting)
	}
	t.Logf("%s; %d rt calls started after %v, %d messages on the queues after them", s.counts(), rts, starts, waiting)
}
