package stack

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In production a new version of what serves calls gets a tenth of them first, and is taken back when it fails; in dev the
// alias moves at once.
func TestRollout_ShiftsBitByBitInProduction(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		groups := map[string]resource{}
		for _, g := range tpl.of("AWS::CodeDeploy::DeploymentGroup") {
			groups[g.Properties["DeploymentGroupName"].(string)] = g
		}
		var served []string
		for id, a := range tpl.of("AWS::Lambda::Alias") {
			name := tpl.function(a.Properties["FunctionName"])
			function := tpl.function(map[string]any{"Ref": id}).Properties["FunctionName"].(string)
			served = append(served, strings.TrimPrefix(function, env.name()+"-"))
			if name.Type != "AWS::Lambda::Function" || a.Properties["Name"] != "live" {
				t.Errorf("%s: %s", id, text(a.Properties))
			}
			g, gradual := groups[function]
			if gradual != env.production() || (a.UpdatePolicy != nil) != gradual {
				t.Errorf("%s is shifted gradually: %t by %s", function, gradual, text(a.UpdatePolicy))
				continue
			}
			if !gradual {
				continue
			}
			if g.Properties["DeploymentConfigName"] != "CodeDeployDefault.LambdaCanary10Percent5Minutes" ||
				at(g.Properties, "AutoRollbackConfiguration", "Enabled") != true || !slices.Contains(listOf(at(g.Properties, "AutoRollbackConfiguration", "Events")), any("DEPLOYMENT_STOP_ON_ALARM")) {
				t.Errorf("%s: %s", function, text(g.Properties))
			}
			alarm := tpl.Resources[target(at(g.Properties, "AlarmConfiguration", "Alarms", 0, "Name"))]
			dimensions := map[string]string{}
			for _, d := range listOf(alarm.Properties["Dimensions"]) {
				dimensions[at(d, "Name").(string)] = text(at(d, "Value"))
			}
			version := target(a.Properties["FunctionVersion"])
			want := map[string]string{"FunctionName": `"` + function + `"`, "Resource": `"` + function + `:live"`, "ExecutedVersion": `{"Fn::GetAtt":["` + version + `","Version"]}`}
			if diff := cmp.Diff(want, dimensions); diff != "" || alarm.Properties["MetricName"] != "Errors" {
				t.Errorf("%s is watched by %v %s", function, alarm.Properties["MetricName"], diff)
			}
		}
		checkShifts(t, env, tpl)
		slices.Sort(served)
		if diff := cmp.Diff([]string{"enqueue", "worker-bg", "worker-bulk", "worker-rt"}, served); diff != "" {
			t.Errorf("functions with an alias: %s", diff)
		}
	})
}

// CodeDeploy may move the alias of each function that it shifts, and no other.
func checkShifts(t *testing.T, env Environment, tpl template) {
	t.Helper()
	may := map[string]bool{}
	for id, r := range tpl.of("AWS::IAM::Role") {
		if at(r.Properties, "AssumeRolePolicyDocument", "Statement", 0, "Principal", "Service") != "codedeploy.amazonaws.com" {
			continue
		}
		for _, st := range statementsOf(tpl, id) {
			if slices.Contains(listOf(at(st, "Action")), any("lambda:UpdateAlias")) {
				for _, on := range listOf(at(st, "Resource")) {
					may[resolved(on)] = true
				}
			}
		}
	}
	want := map[string]bool{}
	for _, g := range tpl.of("AWS::CodeDeploy::DeploymentGroup") {
		arn := "arn:aws:lambda:us-east-1:111122223333:function:" + g.Properties["DeploymentGroupName"].(string)
		want[arn], want[arn+":live"] = true, true
	}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("%s: CodeDeploy may move (-what it shifts +what it may):\n%s", env.name(), diff)
	}
}

// A message that is sent again some sixteen times looks like a loop to Lambda, which would drop it.
func TestWorkers_MayGetAMessageManyTimes(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for _, f := range tpl.of("AWS::Lambda::Function") {
			name := f.Properties["FunctionName"].(string)
			if allowed := f.Properties["RecursiveLoop"] == "Allow"; allowed != strings.Contains(name, "-worker-") {
				t.Errorf("%s: RecursiveLoop is %v", name, f.Properties["RecursiveLoop"])
			}
		}
	})
}
