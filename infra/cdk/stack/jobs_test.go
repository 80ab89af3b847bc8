package stack

import (
	"slices"
	"strings"
	"testing"
)

// A6, B1: a queue of jobs has its dead-letter queue, event source, function, role and alarms, and the lanes' workers nothing of it.
func TestJobs_EachQueueHasItsOwn(t *testing.T) {
	s, err := synthesise(nil, variant(t, manyModels(2), "  rt: {max_concurrency: 4}\n  bg: {max_concurrency: 4}\n  bulk: {max_concurrency: 2}\n"+
		"jobs:\n  files: {artifact: team-worker, timeout_secs: 840, slots: 1, memory_mb: 1024}\n  mail: {artifact: team-worker, slots: 20}\n"))
	if err != nil {
		t.Fatal(err)
	}
	env, tpl := s.environments["prod"], s.templates["prod"]
	checkCounts(t, env, tpl)
	checkShifts(t, env, tpl)
	checkCost(t, env, tpl)
	for name, want := range map[string]struct{ timeout, memory, most float64 }{"files": {900, 1024, 2}, "mail": {360, 256, 20}} {
		var role string
		for _, f := range tpl.of("AWS::Lambda::Function") {
			if p := f.Properties; p["FunctionName"] == env.Config.JobFunction(name) {
				role = target(p["Role"])
				if p["Timeout"] != want.timeout || p["MemorySize"] != want.memory || p["ReservedConcurrentExecutions"] != want.most || p["RecursiveLoop"] != "Allow" {
					t.Errorf("%s: timeout %v s, %v MB, reserved %v, loops %v", name, p["Timeout"], p["MemorySize"], p["ReservedConcurrentExecutions"], p["RecursiveLoop"])
				}
			}
		}
		queue := "llm-" + name + "-bulk"
		for _, q := range tpl.of("AWS::SQS::Queue") {
			if q.Properties["QueueName"] == queue && q.Properties["VisibilityTimeout"] != want.timeout {
				t.Errorf("%s hides messages for %v s", queue, q.Properties["VisibilityTimeout"])
			}
		}
		fed := 0
		for _, m := range tpl.of("AWS::Lambda::EventSourceMapping") {
			if tpl.function(m.Properties["FunctionName"]).Properties["FunctionName"] != env.Config.JobFunction(name) {
				continue
			}
			fed++
			if m.Properties["BatchSize"] != 1.0 || at(m.Properties, "ScalingConfig", "MaximumConcurrency") != want.most {
				t.Errorf("%s is fed %v", name, m.Properties)
			}
		}
		if fed != 1 {
			t.Errorf("%s has %d event sources", name, fed)
		}
		// Least privilege: its own queues, no model, no secret.
		var actions []string
		for _, st := range statementsOf(tpl, role) {
			said := text(at(st, "Resource"))
			actions = append(actions, text(at(st, "Action")))
			if strings.Contains(said, "llm-") && !strings.Contains(said, queue) {
				t.Errorf("%s may use %s", name, said)
			}
		}
		all := strings.Join(actions, " ")
		if strings.Contains(all, "bedrock") || strings.Contains(all, "secretsmanager") || !strings.Contains(all, "sqs:ReceiveMessage") {
			t.Errorf("%s may %s", name, all)
		}
	}
	for id := range tpl.of("AWS::IAM::Role") {
		for _, st := range statementsOf(tpl, id) {
			if said := text(at(st, "Resource")); strings.Contains(id, "worker") && strings.Contains(said, "llm-files") {
				t.Errorf("%s may use %s", id, said)
			}
		}
	}
	if !slices.ContainsFunc(env.functions(), func(p part) bool { return p.part == "job-mail" && p.reserved == 20 }) {
		t.Errorf("alarms and the dashboard know %v", env.functions())
	}
}
