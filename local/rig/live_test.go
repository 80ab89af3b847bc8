package rig_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// liveKey is where live settings lie.
const liveKey = "llmq:local:live:{live}:settings"

// changed is what the admin API answers to a change of live settings.
type changed struct {
	Revision int
	Changed  []struct{ Name, After string }
	Error    struct{ Code, Message, Field string }
}

// E2, E3, C3: through the admin API, while 1,500 calls run, a cap is cut from 20 to 5 and given back. Ten worker processes follow within
// one reload time, and no call fails. Stored settings that can't be read leave the last ones in force.
func TestLive_ACapIsFollowedWhileCallsRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a quarter of a minute of load")
	}
	const (
		high, low = 20, 5
		reload    = 2 * time.Second
		slack     = time.Second // two cores, and other tests beside
	)
	s := newStorm(t, func(c *config.Config) { capped(high)(c); c.Timing.Reload = reload })
	ctx := within(t, 3*time.Minute)
	ids := rig.Numbered("call", 1500)
	s.send(t, rig.ModelChat, llmq.LaneBulk, "call", len(ids))
	if err := s.Fake.AwaitInFlight(ctx, "", high); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the midst of the storm", func() bool { return s.Fake.Stats().All.Good >= 200 })
	set := func(most any) changed {
		t.Helper()
		var done changed
		if status := operate(t, s.Rig, "POST", "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": most}}, &done); status != http.StatusOK || len(done.Changed) != 1 {
			t.Fatalf("set: %d %+v", status, done)
		}
		return done
	}
	set(low)
	cut := time.Now()
	pause(t, reload+stormTakes+slack)
	obeyed := time.Now()

	// What is stored becomes unreadable: a process that reads it stays at 5, and says why.
	if err := s.Store.HSet(ctx, liveKey, "document", "{nonsense", "revision", 2, "change", "by hand").Err(); err != nil {
		t.Fatal(err)
	}
	pause(t, 2*reload+slack)
	spoilt := time.Now()
	if kept := s.logs.count("settings_kept"); kept == 0 {
		t.Error("no process says that it keeps its settings")
	}
	var refused changed
	if status := operate(t, s.Rig, "POST", "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"rpm": 9}}, &refused); status == http.StatusOK || !strings.Contains(refused.Error.Message, "reset") {
		t.Errorf("a change of what can't be read: %d %+v", status, refused)
	}
	if status := operate(t, s.Rig, "POST", "/settings/reset", map[string]any{}, &refused); status != http.StatusOK {
		t.Fatalf("reset: %d", status)
	}
	if err := s.Fake.AwaitInFlight(ctx, "", high); err != nil {
		t.Fatalf("the file's cap does not hold again: %v", err)
	}
	back := time.Now()
	s.drained(ctx, t)
	s.onceEach(t, ids)
	s.alive(t)
	if got := s.Fake.Peak(""); got != high {
		t.Errorf("peak = %d, want %d and never more", got, high)
	}
	last, most := cut, 0
	for _, second := range s.Fake.Timeline("") {
		switch {
		case second.At.After(spoilt.Add(-time.Second)):
		case second.At.After(obeyed):
			most = max(most, second.Peak)
		case second.At.After(cut) && second.Peak > low:
			last = second.At.Add(time.Second) // it was somewhere in it
		}
	}
	if most != low {
		t.Errorf("peak after the cut = %d, want exactly %d", most, low)
	}
	t.Logf("%s; no more than %d at once at most %.1f s after the cut, %d held for %.1f s, %.1f s of them with unreadable settings (%d notes); %d at once %.1f s after the reset",
		s.counts(), low, last.Sub(cut).Seconds(), low, spoilt.Sub(last).Seconds(), spoilt.Sub(obeyed).Seconds(), s.logs.count("settings_kept"), high, back.Sub(spoilt).Seconds())
}

// E2, E6: a value, a name or an alias that can't be is refused with the nearest right one, and nothing is written.
func TestLive_FaultsAreRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	for _, tc := range []struct {
		path, want string
		body       map[string]any
	}{
		{"/settings/set", "did you mean max_concurrency?", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurency": 5}}},
		{"/settings/set", "did you mean chat-a?", map[string]any{"model": "chat-b", "set": map[string]any{"max_concurrency": 5}}},
		{"/settings/set", "did you mean fake-openai?", map[string]any{"provider": "fake-opena", "set": map[string]any{"max_concurrency": 5}}},
		{"/settings/set", "max_concurrency", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": "many"}}},
		{"/settings/set", "max_concurrency", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": -5, "rpm": 60}}},
		{"/routing/set", "must be one of auto, direct, queue", map[string]any{"model": rig.ModelChat, "mode": "auot"}},
	} {
		var got changed
		if status := operate(t, r, "POST", tc.path, tc.body, &got); status != http.StatusBadRequest || !strings.Contains(got.Error.Message, tc.want) || got.Error.Field == "" {
			t.Errorf("%v: %d %+v, want %q", tc.body, status, got.Error, tc.want)
		}
	}
	var seen struct{ Revision int }
	if status := operate(t, r, "GET", "/settings", nil, &seen); status != http.StatusOK || seen.Revision != 0 {
		t.Errorf("settings: %d, revision %d; want that nothing was written", status, seen.Revision)
	}
	w := rig.NewWatch(r)
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	if n := w.Store.Exists(t.Context(), liveKey).Val(); n != 0 {
		t.Error("settings are stored")
	}
}

// E4: with the kill switch on nothing is queued: a live call runs at the door, all else is told to come back. Off, the queue is used again.
func TestLive_KillSwitch(t *testing.T) {
	t.Parallel()
	const reload = time.Second
	r := ownRig(t, rig.Options{Change: func(c *config.Config) { c.Timing.Reload = reload }})
	l := linked{r}
	lane := func(name string) map[string]string { return map[string]string{"X-LLMQ-Lane": name} }
	kill := func(on bool) (at time.Time) {
		t.Helper()
		var done changed
		if status := operate(t, r, "POST", "/routing/kill", map[string]any{"on": on}, &done); status != http.StatusOK || len(done.Changed) != 1 {
			t.Fatalf("kill %t: %d %+v", on, status, done)
		}
		return time.Now()
	}
	if a := l.call(t, "before", lane("rt")); a.status != http.StatusOK || a.direct {
		t.Fatalf("before: %+v", a)
	}
	at := kill(true)
	pause(t, reload)
	if a := l.call(t, "killed", lane("rt")); a.status != http.StatusOK || !a.direct {
		t.Errorf("a live call: %+v, want it served at the door", a)
	}
	t.Logf("the first call at the door ended %.2f s after the switch", time.Since(at).Seconds())
	for _, name := range []string{"bg", "bulk"} {
		if a := l.call(t, "killed "+name, lane(name)); a.status != http.StatusServiceUnavailable || a.code != "queue_unavailable" || a.retryAfter < 1 {
			t.Errorf("%s: %+v, want 503 queue_unavailable with a Retry-After", name, a)
		}
	}

	// Many at once: what has a slot is served, what has none is told so; nothing is queued.
	if err := r.Fake.SetLatency(server.Latency{Mean: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	var (
		calls            sync.WaitGroup
		mu               sync.Mutex // guards served and sentAway
		served, sentAway int
	)
	for range 30 {
		calls.Go(func() {
			a, err := l.post(within(t, time.Minute), "killed, many", lane("rt"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && a.status == http.StatusOK && a.direct:
				served++
			case err == nil && a.status == http.StatusServiceUnavailable && a.code == "queue_unavailable" && a.retryAfter >= 1:
				sentAway++
			default:
				t.Errorf("one of many: %+v %v", a, err)
			}
		})
	}
	calls.Wait()
	if served == 0 {
		t.Error("none of many was served")
	}
	if waiting, dead, err := r.Depth(t.Context()); err != nil || waiting != 0 || dead != 0 {
		t.Errorf("%d messages and %d dead letters, want none: %v", waiting, dead, err)
	}
	kill(false)
	pause(t, reload)
	for _, name := range []string{"rt", "bg", "bulk"} {
		if a := l.call(t, "after", lane(name)); a.status != http.StatusOK || a.direct {
			t.Errorf("after the switch was put off, %s: %+v, want it queued", name, a)
		}
	}
	t.Logf("of 30 live calls at once %d were served at the door and %d were told to come back", served, sentAway)
}

// E2, E5: through the real admin function: the status tells the caps that hold and their layers, chains are set and tried, and limiters and
// breakers are reset.
func TestLive_StatusChainsAndTargets(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	var done changed
	if status := operate(t, r, "POST", "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": 5}}, &done); status != http.StatusOK {
		t.Fatalf("set: %d %+v", status, done)
	}
	var on changed
	if status := operate(t, r, "POST", "/routing/kill", map[string]any{"on": true}, &on); status != http.StatusOK {
		t.Fatalf("kill: %d %+v", status, on)
	}
	var seen struct {
		Targets []struct {
			Target  string
			Caps    struct{ Target int }
			CapFrom string `json:"cap_from"`
		}
		Routing struct {
			Killed bool
			Models []struct{ Model string }
		}
	}
	if status := operate(t, r, "GET", "/status", nil, &seen); status != http.StatusOK || !seen.Routing.Killed || len(seen.Routing.Models) != 3 {
		t.Fatalf("status: %d %+v", status, seen)
	}
	for _, row := range seen.Targets {
		most, from := 20, "env:model"
		if row.Target == rig.ModelChat+"@main" {
			most, from = 5, "live:model"
		}
		if row.Caps.Target != most || row.CapFrom != from {
			t.Errorf("%+v, want %d of %s", row, most, from)
		}
	}
	var chain changed
	body := map[string]any{"model": rig.ModelChat, "chain": []map[string]any{{"model": rig.ModelEmbed}}}
	if status := operate(t, r, "POST", "/fallback/set", body, &chain); status != http.StatusOK || chain.Revision != 3 {
		t.Fatalf("fallback: %d %+v", status, chain)
	}
	var tried struct {
		Takes string
		Steps []struct{ Target string }
	}
	if status := operate(t, r, "POST", "/fallback/test", map[string]any{"model": rig.ModelChat}, &tried); status != http.StatusOK || tried.Takes != rig.ModelChat+"@main" || len(tried.Steps) != 2 {
		t.Errorf("fallback test: %d %+v", status, tried)
	}
	for _, path := range []string{"/limiter/reset", "/breaker/reset"} {
		var forgotten struct{ Targets []string }
		if status := operate(t, r, "POST", path, map[string]any{"model": rig.ModelChat}, &forgotten); status != http.StatusOK || len(forgotten.Targets) != 1 {
			t.Errorf("%s: %d %+v", path, status, forgotten)
		}
	}
	var faulty changed
	if status := operate(t, r, "POST", "/breaker/reset", map[string]any{"model": rig.ModelChat, "target": "mian"}, &faulty); status != http.StatusBadRequest || !strings.Contains(faulty.Error.Message, "did you mean main?") {
		t.Errorf("an unknown target: %d %+v", status, faulty)
	}
}
