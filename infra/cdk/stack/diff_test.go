package stack

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// G1: what hangs on a model: a line of the file gives it queues, rights, what the functions read, alarms and the dashboard. Here dev gets one
// model more, and its last one has no lane bulk any longer.
func TestModel_ChangesAllThatHangsOnIt(t *testing.T) {
	s, err := synthesised()
	if err != nil {
		t.Fatal(err)
	}
	_, after := with(t, "dev", "", "  mini: # OpenAI callers\n", "  mini:\n    lanes: [rt, bg]\n", "\nlanes:\n", `
  extra:
    lanes: [rt, bg]
    targets: [{name: eu, provider: bedrock, model_id: eu.vendor.extra-v1:0}]
lanes:
`)
	var got strings.Builder
	before, now := inWords(s.templates["dev"]), inWords(after)
	for _, line := range slices.Sorted(maps.Keys(before)) {
		if !now[line] {
			fmt.Fprintln(&got, "-", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(now)) {
		if !before[line] {
			fmt.Fprintln(&got, "+", line)
		}
	}
	file := filepath.Join("testdata", "model.diff")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-reviewed +now); -update rewrites it:\n%s", diff)
	}
	for _, kind := range []string{"+ queue llm-dev-extra-rt", "- queue llm-dev-mini-bulk", "sqs:SendMessage on queue llm-dev-extra", "bedrock:InvokeModel on", "AWS::CloudWatch::Alarm", "dashboard: ", "reads another file"} {
		if !strings.Contains(got.String(), kind) {
			t.Errorf("the difference has no %q", kind)
		}
	}
}

// inWords tells what a template holds that may hang on a model, a line each.
func inWords(tpl template) map[string]bool {
	lines := map[string]bool{}
	say := func(format string, args ...any) { lines[fmt.Sprintf(format, args...)] = true }
	for id, r := range tpl.Resources {
		switch r.Type {
		case "AWS::SQS::Queue":
			say("queue %v", r.Properties["QueueName"])
		case "AWS::Lambda::EventSourceMapping":
			say("source of %s", kindOf(tpl, r.Properties["EventSourceArn"]))
		case "AWS::CloudWatch::Alarm":
			say("%s %v", r.Type, r.Properties["AlarmName"])
		case "AWS::CloudFormation::Stack":
			say("nested stack %s", strings.TrimRight(id[:strings.Index(id, "NestedStack")], "."))
		case "AWS::Lambda::Function":
			say("%v reads another file: %.8s", r.Properties["FunctionName"], at(r.Properties, "Code", "S3Key"))
			for _, st := range statementsOf(tpl, target(r.Properties["Role"])) {
				for _, a := range listOf(at(st, "Action")) {
					for _, on := range listOf(at(st, "Resource")) {
						say("%v: %v on %s", r.Properties["FunctionName"], a, kindOf(tpl, on))
					}
				}
			}
		case "AWS::CloudWatch::Dashboard":
			var body struct {
				Widgets []struct {
					Properties struct {
						Title   string
						Metrics [][]any
					}
				}
			}
			if err := json.Unmarshal([]byte(resolved(r.Properties["DashboardBody"])), &body); err != nil {
				say("dashboard: %v", err)
			}
			for _, w := range body.Widgets {
				for _, m := range w.Properties.Metrics {
					var words []string
					for _, word := range m {
						if s, ok := word.(string); ok {
							words = append(words, s)
						}
					}
					say("dashboard: %s: %s", w.Properties.Title, strings.Join(words, " "))
				}
			}
		}
	}
	return lines
}
