package admin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/governor"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// C11: headroom is that of caps and learned limits, never of rates; a closed target is told apart.
func TestTarget_HeadroomOfWhatTheGateKnows(t *testing.T) {
	t.Parallel()
	slots := func(n float64) capacity.State {
		return capacity.State{Learned: capacity.Learned{Slots: capacity.Ceiling{Limit: n}, Starts: capacity.Ceiling{Limit: 1, Binding: true}}}
	}
	open := slots(50)
	open.Breaker = capacity.BreakerOpen
	refused := slots(50)
	refused.Learned.ClosedFor = 1
	for _, tt := range []struct {
		name string
		t    llmq.Target
		st   capacity.State
		want governor.Target
	}{
		{"learned", llmq.Target{}, slots(50), governor.Target{Limit: 50, Share: 0.8}},
		{"share as configured", llmq.Target{Limits: llmq.Limits{BackgroundShare: 1}}, slots(50), governor.Target{Limit: 50, Share: 1}},
		{"own cap", llmq.Target{MaxConcurrency: 20}, slots(50), governor.Target{Limit: 20, Share: 0.8}},
		{"cap of all of the provider's targets", llmq.Target{Shared: llmq.SharedLimits{MaxConcurrency: 30}}, slots(50), governor.Target{Limit: 30, Share: 0.8}},
		{"lane's cap", llmq.Target{Limits: llmq.Limits{Lanes: map[llmq.Lane]int{llmq.LaneBulk: 7}}}, slots(50), governor.Target{Limit: 50, Share: 0.8, Lane: 7}},
		{"rates don't count", llmq.Target{Limits: llmq.Limits{Rates: llmq.Rates{RPM: 1, TPM: 1}}}, slots(50), governor.Target{Limit: 50, Share: 0.8}},
		{"nothing bounds it", llmq.Target{}, slots(0), governor.Target{Limit: math.Inf(1), Share: 0.8}},
		{"breaker open", llmq.Target{}, open, governor.Target{Limit: 50, Share: 0.8, Closed: true}},
		{"refuses nearly all", llmq.Target{}, refused, governor.Target{Limit: 50, Share: 0.8, Closed: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := target(tt.t, tt.st, llmq.LaneBulk); got != tt.want {
				t.Errorf("target = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// governed is a rig whose governor is on, with one target of its model.
func governed(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	t.Cleanup(r.server.Close)
	r.deps.Governed = true
	r.inForce.Chains = map[string][]llmq.Target{"chat-a": {{Model: "chat-a", Name: "main"}}}
	r.Capacity = capacity.New(keys.New("test"))
	return r
}

// withoutStore makes the rig's governor look at a state store that answers nothing.
func withoutStore(t *testing.T, r *rig) {
	t.Helper()
	m := miniredis.RunT(t)
	addr := m.Addr()
	m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	r.Valkey = rdb
}

// With the state store down nothing is asked of AWS, and the run says why.
func TestGovern_StoreDownChangesNothing(t *testing.T) {
	t.Parallel()
	r := governed(t)
	withoutStore(t, r)
	got := r.Govern(t.Context())
	if got.Requests != 0 || got.Moved != 0 || got.Error == "" || len(r.sources.calls) != 0 {
		t.Errorf("run = %+v, calls %v", got, r.sources.calls)
	}
	if !strings.Contains(r.log.String(), "level=WARN msg=governor_ran") {
		t.Errorf("the log is silent:\n%s", r.log)
	}
}

// C11: slow, conflicting and throttled updates, each as AWS tells them; what is not done is left to the next minute.
func TestGovern_RefusedMovesWait(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("change: %w", queue.ErrBusy)
	for _, tt := range []struct {
		name  string
		state queue.SourceState // of the first source
		fail  []error
		fresh bool // the store is new
		want  Governed
		calls int // changes asked for
	}{
		{"both are moved", queue.SourceEnabled, nil, false, Governed{Sources: 2, Moved: 2, Requests: 2}, 2},
		{"one is changing", queue.SourceUpdating, nil, false, Governed{Sources: 2, Moved: 1, Requests: 1}, 1},
		{"one is paused", queue.SourceDisabled, nil, false, Governed{Sources: 2, Moved: 1, Requests: 1}, 1},
		{"one is busy after all", queue.SourceEnabled, []error{busy}, false, Governed{Sources: 2, Moved: 1, Failed: 1, Requests: 2}, 2},
		{"one is replaced by a deploy", queue.SourceEnabled, []error{queue.ErrNoSource}, false, Governed{Sources: 2, Moved: 1, Failed: 1, Requests: 2}, 2},
		{"a throttle ends the run", queue.SourceEnabled, []error{queue.ErrThrottled}, false, Governed{Sources: 1, Failed: 1, Requests: 1, Error: queue.ErrThrottled.Error()}, 1},
		{"the store is new", queue.SourceEnabled, nil, true, Governed{Sources: 2}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := governed(t)
			r.Catalogue = llmq.NewCatalogue([]llmq.Model{{Alias: "chat-a", Lanes: []llmq.Lane{"rt", "bg"}}, {Alias: "chat-b", Lanes: []llmq.Lane{"rt", "bg"}}})
			r.inForce.Chains["chat-b"] = r.inForce.Chains["chat-a"]
			r.sources.fail = tt.fail
			r.sources.list = map[string][]queue.Source{"worker-bg": {
				{ID: "a", Queue: "llm-chat-a", State: tt.state, MaxConcurrency: 10, BatchSize: 10},
				{ID: "b", Queue: "llm-chat-b", State: queue.SourceEnabled, MaxConcurrency: 10, BatchSize: 10},
			}}
			st := capacity.State{Learned: capacity.Learned{Slots: capacity.Ceiling{Limit: 50}}}
			if tt.fresh {
				st.Quarantine = 1
			}
			got := r.obey(t.Context(), limits{states: map[string]capacity.State{"chat-a@main": st}, chains: r.inForce.Chains}, r.listAll(t.Context()))
			if got != tt.want {
				t.Errorf("run = %+v, want %+v", got, tt.want)
			}
			changes := slices.DeleteFunc(r.sources.calls, func(c string) bool { return strings.HasPrefix(c, "list ") })
			if len(changes) != tt.calls || slices.Contains(changes, "bound b 3") || tt.want.Moved > 0 && !slices.Contains(changes, "bound b 4") {
				t.Errorf("asked for %v", changes)
			}
		})
	}
}
