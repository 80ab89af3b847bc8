package admin_test

import (
	"context"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// E7: how many series a deployment has, and what CloudWatch takes for them a month.
func TestMetrics_SeriesAndPriceFollowFromTheDeployment(t *testing.T) {
	t.Parallel()
	targets := func(alias string) []llmq.Target { return []llmq.Target{{Model: alias, Name: "main"}} }
	one := llmq.Model{Alias: "one", Lanes: llmq.Lanes(), Targets: targets("one")}
	two := llmq.Model{Alias: "two", Lanes: []llmq.Lane{llmq.LaneBG}, Targets: targets("two")}
	two.Targets[0].Limits.Rates.RPM = 60
	files := llmq.Model{Alias: "files", Lanes: []llmq.Lane{llmq.LaneBulk}, Targets: []llmq.Target{{Model: "files", Name: llmq.JobTarget, Wires: []llmq.Wire{llmq.WireJob}}}}
	chains := map[string][]llmq.Target{"files": files.Targets, "one": append(targets("one"), two.Targets...), "two": two.Targets}
	a := admin.New(admin.Deps{InForce: func(context.Context) admin.InForce {
		return admin.InForce{Catalogue: llmq.NewCatalogue([]llmq.Model{one, two, files}), Chains: chains}
	}})
	v := a.Metrics(t.Context())
	// 5 lanes of 12, that of a queue of jobs among them; 3 targets with in flight and breaker; a budget, used and left; a step; 2 models that may run direct for 3 causes.
	if want := 5*telemetry.MostPerLane + 3*2 + 2 + 1 + 2*3; v.Series != want || v.Dollars != telemetry.Dollars(want) || v.Dollars != 22.5 {
		t.Errorf("%d series, $%v; want %d", v.Series, v.Dollars, want)
	}
	if len(v.Metrics) != len(telemetry.Metrics()) || v.Price.AsOf == "" {
		t.Errorf("%+v", v)
	}
}
