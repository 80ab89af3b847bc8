package stack

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// The environment's file, what each function reads of it, and the template agree on queues, lanes and models.
func TestAgreement_OfFileFunctionsAndTemplate(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		packed, err := os.ReadFile(env.File)
		if err != nil {
			t.Fatal(err)
		}
		var queues []string
		for name := range queuesByName(t, tpl) {
			if !strings.HasSuffix(name, "-dlq") {
				queues = append(queues, name)
			}
		}
		slices.Sort(queues)
		fed := map[string]any{} // by queue
		for _, s := range tpl.of("AWS::Lambda::EventSourceMapping") {
			q := tpl.Resources[target(s.Properties["EventSourceArn"])]
			alias := tpl.Resources[target(s.Properties["FunctionName"])]
			f := tpl.function(s.Properties["FunctionName"])
			fed[q.Properties["QueueName"].(string)] = []any{
				f.Properties["FunctionName"].(string) + ":" + alias.Properties["Name"].(string), f.Properties["Timeout"], f.Properties["MemorySize"],
				s.Properties["BatchSize"], at(s.Properties, "ScalingConfig", "MaximumConcurrency"), q.Properties["VisibilityTimeout"],
			}
		}
		for _, f := range tpl.of("AWS::Lambda::Function") {
			vars := []string{"LAMBDA_TASK_ROOT=/var/task"}
			for k, v := range at(f.Properties, "Environment", "Variables").(map[string]any) {
				vars = append(vars, k+"="+resolved(v))
			}
			cfg, err := config.Parse("llmq.yaml", packed, vars)
			if err != nil {
				t.Fatal(err)
			}
			var reads []string
			want := map[string]any{}
			for _, m := range cfg.Models {
				for _, l := range m.Lanes {
					q, lane := string(cfg.Queues.Names().Model(m.Alias, l)), cfg.Lanes[l]
					reads = append(reads, q)
					want[q] = []any{cfg.SourceTarget(l), lane.FunctionTimeout.Seconds(), float64(lane.MemoryMB), float64(lane.BatchSize), float64(lane.MaxConcurrency), lane.FunctionTimeout.Seconds()}
				}
			}
			slices.Sort(reads)
			if diff := cmp.Diff(queues, reads); diff != "" {
				t.Errorf("queues (-in the template +as %v reads them):\n%s", f.Properties["FunctionName"], diff)
			}
			if diff := cmp.Diff(want, fed); diff != "" {
				t.Errorf("what feeds them (-as %v reads it +in the template):\n%s", f.Properties["FunctionName"], diff)
			}
		}
	})
}
