package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// variant writes prod.yaml with other models and lanes, and gives its path.
func variant(t *testing.T, models, lanes string) string {
	t.Helper()
	source, err := os.ReadFile(environmentFile("prod"))
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(source), "\nmodels:\n")
	if !found {
		t.Fatal("prod.yaml has no models")
	}
	file := filepath.Join(t.TempDir(), "prod.yaml")
	if err := os.WriteFile(file, []byte(head+"\nmodels:\n"+models+"lanes:\n"+lanes), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A model that is served by Bedrock or, with every third, by a provider with a key of its own.
func manyModels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  a-model-with-a-rather-long-name-%02d:\n    targets:\n", i)
		if i%3 == 0 {
			b.WriteString("      - {name: openai, provider: openai, model_id: gpt-5-mini}\n")
			continue
		}
		fmt.Fprintf(&b, "      - {name: us, provider: bedrock, model_id: us.vendor.model-%02d-v1:0}\n", i)
	}
	return b.String()
}

// What CloudFormation and IAM bound, with 25 models in all lanes: 500 resources and a megabyte a template, 200 parameters and
// outputs; 10,240 characters for a role's inline policies, ten managed ones of 6,144 on it.
func TestModels_TwentyFiveFit(t *testing.T) {
	begin := time.Now()
	s, err := synthesise(nil, variant(t, manyModels(25), "  rt: {max_concurrency: 4}\n  bg: {max_concurrency: 4}\n  bulk: {max_concurrency: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("25 models: synthesised in %v", time.Since(begin).Round(100*time.Millisecond))
	tpl := s.templates["prod"]
	checkCounts(t, s.environments["prod"], tpl)
	for name, n := range tpl.sizes {
		if n > 450 || len(tpl.raw[name]) > 900_000 {
			t.Errorf("%s has %d resources and %d bytes", name, n, len(tpl.raw[name]))
		}
		if strings.HasSuffix(name, ".template.json") && !strings.Contains(name, "nested") {
			t.Logf("%s: %d resources, %d bytes; %d templates", name, n, len(tpl.raw[name]), len(tpl.sizes))
		}
	}
	inline, managed := map[string]int{}, map[string]int{}
	for _, p := range tpl.of("AWS::IAM::Policy") {
		for _, r := range listOf(p.Properties["Roles"]) {
			inline[target(r)] += policySize(p)
		}
	}
	for id, p := range tpl.of("AWS::IAM::ManagedPolicy") {
		if n := policySize(p); n > 6144 {
			t.Errorf("%s has %d characters", id, n)
		}
		for _, r := range listOf(p.Properties["Roles"]) {
			managed[target(r)]++
		}
	}
	for id := range tpl.of("AWS::IAM::Role") {
		if inline[id] > 10_240 || managed[id] > 10 {
			t.Errorf("%s has %d characters of policy and %d managed policies", id, inline[id], managed[id])
		}
	}
	// A source is refused while the worker may not yet read its queue.
	for id, f := range tpl.of("AWS::Lambda::Function") {
		for mp, p := range tpl.of("AWS::IAM::ManagedPolicy") {
			for _, r := range listOf(p.Properties["Roles"]) {
				if target(r) == target(f.Properties["Role"]) && !f.waitsFor(mp) {
					t.Errorf("%s does not wait for %s", id, mp)
				}
			}
		}
	}
}

// policySize is a policy's size as IAM counts it: without white space, references filled in.
func policySize(p resource) int { return len(text(plain(p.Properties["PolicyDocument"]))) }

// plain is v with references filled in.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["Fn::Join"] != nil || v["Ref"] != nil || v["Fn::GetAtt"] != nil {
			return resolved(v)
		}
		out := map[string]any{}
		for k, part := range v {
			out[k] = plain(part)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = plain(part)
		}
		return out
	}
	return v
}

// For Σ lanes of all models: twice as many queues, as many event sources that report items, each lane with its alarms.
func TestModels_HaveTheirQueuesAndSources(t *testing.T) {
	eachEnvironment(t, checkCounts)
}

func checkCounts(t *testing.T, env Environment, tpl template) {
	t.Helper()
	lanes := 0
	for _, m := range env.Config.Models {
		lanes += len(m.Lanes)
	}
	lanes += len(env.Config.Jobs)
	reporting := 0
	for _, s := range tpl.of("AWS::Lambda::EventSourceMapping") {
		if text(s.Properties["FunctionResponseTypes"]) == `["ReportBatchItemFailures"]` {
			reporting++
		}
	}
	got := []int{len(tpl.of("AWS::SQS::Queue")), len(tpl.of("AWS::Lambda::EventSourceMapping")), reporting, len(tpl.of("AWS::CloudFormation::Stack"))}
	if want := []int{2 * lanes, lanes, lanes, len(env.Config.Models) + len(env.Config.Jobs)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("queues, event sources, of these reporting items, nested stacks: %v, want %v", got, want)
	}
}
