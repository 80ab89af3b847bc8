package stack

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// C11: on in production and off in dev, by one setting.
func TestGovernor_RunsEachMinuteWhereItIsOn(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		schedules := tpl.of("AWS::Scheduler::Schedule")
		if want := env.Config.Env == "prod"; env.Config.Governor.Enabled != want || (len(schedules) == 1) != want {
			t.Fatalf("enabled %t with %d schedules", env.Config.Governor.Enabled, len(schedules))
		}
		for id, s := range schedules {
			function := tpl.Resources[target(at(s.Properties, "Target", "Arn"))].Properties["FunctionName"]
			got := []any{s.Properties["ScheduleExpression"], at(s.Properties, "FlexibleTimeWindow", "Mode"), function, at(s.Properties, "Target", "RetryPolicy", "MaximumRetryAttempts")}
			if diff := cmp.Diff([]any{"rate(1 minute)", "OFF", env.name("governor"), 0.0}, got); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
		}
		for id, c := range tpl.of("AWS::Lambda::EventInvokeConfig") {
			if c.Properties["MaximumRetryAttempts"] != 0.0 || c.Properties["MaximumEventAgeInSeconds"] != 60.0 {
				t.Errorf("%s: %s", id, text(c.Properties))
			}
		}
	})
}

// SECURITY-DESIGN section 11: an update can point a source at another function, so it is bound to the workers'; the
// governor touches bg and bulk only, and no message, bucket or secret.
func TestGovernor_MayChangeItsSourcesAndNothingElse(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for function, workers := range map[string][]string{"governor": {"bg", "bulk"}, "admin": {"rt", "bg", "bulk"}} {
			if function == "governor" && !env.Config.Governor.Enabled {
				continue
			}
			var allowed []string
			for _, st := range statementsOf(tpl, roleOf(t, tpl, env.name(function))) {
				for _, a := range listOf(at(st, "Action")) {
					allowed = append(allowed, a.(string))
				}
				if at(st, "Action") != "lambda:UpdateEventSourceMapping" {
					continue
				}
				var got, want []string
				for _, arn := range listOf(at(st, "Condition", "ArnEquals", "lambda:FunctionArn")) {
					got = append(got, resolved(arn))
				}
				for _, l := range workers {
					worker := "arn:aws:lambda:us-east-1:111122223333:function:" + env.name("worker-"+l)
					want = append(want, worker, worker+":live")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s changes the sources of (-want +got):\n%s", function, diff)
				}
			}
			if want := []string{
				"logs:CreateLogStream", "logs:PutLogEvents", "elasticache:Connect", "lambda:ListEventSourceMappings", "lambda:UpdateEventSourceMapping",
				"sqs:GetQueueAttributes",
			}; function == "governor" {
				if diff := cmp.Diff(want, allowed); diff != "" {
					t.Errorf("governor may (-want +got):\n%s", diff)
				}
			}
		}
	})
}
