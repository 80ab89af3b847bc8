package admin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// E2, E6: what is shown, and what the governor goes by, are the caps that hold, with the layer that each is of. What can't be read
// leaves the file's.
func TestInForce_IsWhatHolds(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	caps := func() map[string]int {
		out := map[string]int{}
		for _, m := range r.InForce(t.Context()).Catalogue.Models() {
			for _, target := range m.Targets {
				out[target.String()] = target.MaxConcurrency
			}
		}
		return out
	}
	file := caps()
	if file["a@x"] != 20 {
		t.Fatalf("the file's caps are %v", file)
	}
	for _, s := range []SetRequest{
		{Model: "a", Set: map[string]Text{"max_concurrency": "5"}}, {Provider: "p", Set: map[string]Text{"max_concurrency": "9"}},
	} {
		if _, err := r.Set(t.Context(), "ops", s); err != nil {
			t.Fatal(err)
		}
	}
	now := r.InForce(t.Context())
	if now.CapFrom["a@x"] != config.FromLiveModel || now.CapFrom["a@y"] != config.FromLiveModel || now.CapFrom["b@z"] != config.FromLiveProvider {
		t.Errorf("caps are of %v", now.CapFrom)
	}
	if chain := now.Chains["a"]; len(chain) == 0 || chain[0].MaxConcurrency != 5 {
		t.Errorf("the chain of a is %+v", chain)
	}
	a := New(Deps{Names: queue.Names{Prefix: "llm"}, Catalogue: now.Catalogue, Capacity: capacity.New(r.space), Valkey: r.valkey, InForce: r.InForce})
	rows := map[string]TargetStatus{}
	for _, row := range a.targets(t.Context()) {
		rows[row.Target] = row
	}
	if row := rows["a@x"]; row.Caps.Target != 5 || row.CapFrom != config.FromLiveModel || row.TargetUse == nil {
		t.Errorf("the row of a@x is %+v", row)
	}
	r.valkey.HSet(t.Context(), r.space.Live().Settings, "document", "nonsense")
	if diff := cmp.Diff(file, caps()); diff != "" {
		t.Errorf("with nonsense stored (-file +now):\n%s", diff)
	}
}

// A6, E7: a queue of jobs has a chain of its one target, whose use is told like any other's.
func TestChains_HoldQueuesOfJobs(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Jobs: []config.JobQueue{{Name: "files", Slots: 3}}}
	got := chains(cfg, cfg.Catalogue())["files"]
	if len(got) != 1 || got[0].String() != "files@jobs" || got[0].MaxConcurrency != 3 {
		t.Errorf("the chain of files is %+v", got)
	}
}
