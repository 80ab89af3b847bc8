package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// foreseen is a rig with a state store for forecasts, and the model chat-a with two lanes.
func foreseen(t *testing.T) *rig {
	t.Helper()
	r := governed(t)
	rdb := redis.NewClient(&redis.Options{Addr: llmqtest.StartMiniredis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	r.Valkey, r.deps.Forecast = rdb, forecast.NewStore(keys.New("test"))
	r.Catalogue = llmq.NewCatalogue([]llmq.Model{{
		Alias: "chat-a", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []llmq.Target{{Model: "chat-a", Name: "main"}},
	}})
	return r
}

func (r *rig) outlook(t *testing.T) forecast.Outlook {
	t.Helper()
	var b luascript.Batch
	look := r.deps.Forecast.Look(&b, "chat-a")
	if err := b.Run(t.Context(), r.Valkey); err != nil {
		t.Fatal(err)
	}
	o, err := look()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// known is the state of chat-a's target: so many bg calls run, and so many have ended, at a second each.
func known(running, ended int) limits {
	return limits{states: map[string]capacity.State{"chat-a@main": {
		Learned: capacity.Learned{Slots: capacity.Ceiling{Limit: 10}}, Lanes: map[llmq.Lane]int{llmq.LaneBG: running},
		Ran: map[llmq.Lane]capacity.Ran{llmq.LaneBG: {Calls: ended, Busy: time.Duration(ended) * time.Second}},
	}}}
}

// A16: depth is what was sent and has not started; the rate is learned between two runs; what was sent since the last is forgotten.
func TestForesee_LeavesDepthsAndRates(t *testing.T) {
	t.Parallel()
	r := foreseen(t)
	for i := range 7 {
		body := fmt.Appendf(nil, "%d", i)
		r.send(t, "llm-chat-a", queue.Outgoing{Body: body})
	}
	if got, err := r.queue.Receive(t.Context(), "llm-chat-a", queue.Fetch{Max: 4, Hide: time.Hour}); err != nil || len(got) != 4 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	for _, run := range []struct {
		lim     limits
		waiting int
		rate    bool
	}{{known(3, 100), 4, false}, {known(5, 200), 2, true}} {
		n, err := r.foresee(t.Context(), run.lim, nil)
		if n != 1 || err != nil {
			t.Fatalf("%d models, %v", n, err)
		}
		got := r.outlook(t)
		if diff := cmp.Diff(map[llmq.Lane]int{llmq.LaneRT: 0, llmq.LaneBG: run.waiting}, got.Snapshot.Waiting); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		// 100 calls of a second each have just ended: far more than the eight that fit.
		if rate := got.Snapshot.Rates.Background; (rate >= 8) != run.rate || !run.rate && rate != 0 {
			t.Errorf("rate %.1f", rate)
		}
		if len(got.Sent) != 0 {
			t.Errorf("what was sent before is still counted: %+v", got.Sent)
		}
		var b luascript.Batch
		r.deps.Forecast.Sent(&b, "chat-a", llmq.LaneBG, time.Now())
		if err := b.Run(t.Context(), r.Valkey); err != nil {
			t.Fatal(err)
		}
		if got := r.outlook(t); len(got.Sent) != 1 || got.Sent[0].Calls != 1 {
			t.Errorf("sent since: %+v", got.Sent)
		}
		for !time.Now().After(time.UnixMilli(got.Snapshot.TakenMS + 1)) { // two readings in one ms teach nothing
			<-time.After(time.Millisecond)
		}
	}
}

func TestForesee_PausedLaneIsNotForecast(t *testing.T) {
	t.Parallel()
	r := foreseen(t)
	byWorker := map[string]listed{r.deps.Lanes[llmq.LaneBG].Worker: {sources: []queue.Source{{Queue: "llm-chat-a", State: queue.SourceDisabled}}}}
	if _, err := r.foresee(t.Context(), known(0, 0), byWorker); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.outlook(t).Start(llmq.LaneBG, time.Now()); ok {
		t.Error("a paused lane has a forecast")
	}
	if d, ok := r.outlook(t).Start(llmq.LaneRT, time.Now()); !ok || d != 0 {
		t.Errorf("rt starts in %s %t", d, ok)
	}
}

// A model whose depth is not known keeps its last snapshot, and ages.
func TestForesee_UnreadableDepthLeavesTheLast(t *testing.T) {
	t.Parallel()
	r := foreseen(t)
	if n, err := r.foresee(t.Context(), known(0, 0), nil); n != 1 || err != nil {
		t.Fatalf("%d models, %v", n, err)
	}
	before := r.outlook(t)
	r.server.Close()
	n, err := r.foresee(t.Context(), known(0, 50), nil)
	if n != 0 || err == nil {
		t.Errorf("%d models, %v", n, err)
	}
	if diff := cmp.Diff(before, r.outlook(t)); diff != "" {
		t.Errorf("outlook (-before +after):\n%s", diff)
	}
}

// Off by one setting, no source is changed; what waits is still told, where somebody calls it.
func TestGovern_OffStillForecasts(t *testing.T) {
	t.Parallel()
	r := foreseen(t)
	r.deps.Governed = false
	r.sources.list = map[string][]queue.Source{"worker-bg": {{ID: "a", Queue: "llm-chat-a", State: queue.SourceEnabled, MaxConcurrency: 1000, BatchSize: 10}}}
	got := r.Govern(t.Context())
	if diff := cmp.Diff(Governed{Off: true, Forecast: 1, Requests: 2}, got); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	for _, c := range r.sources.calls {
		if c != "list worker-rt" && c != "list worker-bg" {
			t.Errorf("asked for %s", c)
		}
	}
}

func TestPerSecond_IsTheTightestBound(t *testing.T) {
	t.Parallel()
	learned := capacity.State{Learned: capacity.Learned{Starts: capacity.Ceiling{Limit: 120}}}
	configured := llmq.Target{Limits: llmq.Limits{Rates: llmq.Rates{RPM: 60}}, Shared: llmq.SharedLimits{Rates: llmq.Rates{RPM: 600}}}
	for _, tt := range []struct {
		t    llmq.Target
		st   capacity.State
		want float64
	}{{llmq.Target{}, capacity.State{}, 0}, {llmq.Target{}, learned, 2}, {configured, learned, 1}} {
		if got := perSecond(tt.t, tt.st); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt, got, tt.want)
		}
	}
}

func TestRoom_IsOfTheFirstOpenTarget(t *testing.T) {
	t.Parallel()
	first := llmq.Target{Model: "chat-a", Name: "a", MaxConcurrency: 100}
	second := llmq.Target{Model: "chat-a", Name: "b", MaxConcurrency: 20, Limits: llmq.Limits{Lanes: map[llmq.Lane]int{llmq.LaneBG: 3, llmq.LaneBulk: 2}}}
	m := llmq.Model{Alias: "chat-a"}
	lim := limits{states: map[string]capacity.State{"chat-a@a": {}, "chat-a@b": {}}, chains: map[string][]llmq.Target{"chat-a": {first, second}}}
	if got, want := room(m, lim), (forecast.Room{Slots: 100, Share: 0.8}); got != want {
		t.Errorf("room %+v, want %+v", got, want)
	}
	lim.states["chat-a@a"] = capacity.State{Breaker: capacity.BreakerOpen}
	if got, want := room(m, lim), (forecast.Room{Slots: 20, Share: 0.25}); got != want {
		t.Errorf("with its breaker open: %+v, want %+v", got, want)
	}
	lim.states["chat-a@b"] = capacity.State{Breaker: capacity.BreakerOpen}
	if got := room(m, lim); got != (forecast.Room{}) {
		t.Errorf("with nothing open: %+v", got)
	}
}
