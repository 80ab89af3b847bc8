package stack

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// queuesByName gives each queue its logical id and properties.
func queuesByName(t *testing.T, tpl template) map[string]struct {
	id string
	resource
} {
	t.Helper()
	out := map[string]struct {
		id string
		resource
	}{}
	for id, r := range tpl.of("AWS::SQS::Queue") {
		name, ok := r.Properties["QueueName"].(string)
		if !ok {
			t.Fatalf("queue %s has no name of its own", id)
		}
		out[name] = struct {
			id string
			resource
		}{id, r}
	}
	return out
}

func TestQueues_AreThoseOfTheConfiguration(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		var want, got []string
		for _, n := range env.Config.QueueNames() {
			want = append(want, string(n), string(n.DLQ()))
		}
		for name := range queuesByName(t, tpl) {
			got = append(got, name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("queues (-configured +in the template):\n%s", diff)
		}
	})
}

func TestQueues_AreEncryptedAndKeepMessagesAsLongAsTheyShould(t *testing.T) {
	const day = 86400.0
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for name, q := range queuesByName(t, tpl) {
			want := 4 * day
			if strings.HasSuffix(name, "-dlq") {
				want = 14 * day
			}
			if got := q.Properties["MessageRetentionPeriod"]; got != want {
				t.Errorf("%s keeps messages for %v s, want %v", name, got, want)
			}
			if q.Properties["SqsManagedSseEnabled"] != true {
				t.Errorf("%s is not encrypted", name)
			}
		}
	})
}

func TestQueues_HaveADeadLetterQueueOfTheirOwn(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		queues := queuesByName(t, tpl)
		for _, n := range env.Config.QueueNames() {
			source, dead := queues[string(n)], queues[string(n.DLQ())]
			redrive := source.Properties["RedrivePolicy"]
			if target(at(redrive, "deadLetterTargetArn")) != dead.id || at(redrive, "maxReceiveCount") != 1000.0 {
				t.Errorf("%s redrives by %s", n, text(redrive))
			}
			allow := dead.Properties["RedriveAllowPolicy"]
			sources := listOf(at(allow, "sourceQueueArns"))
			if at(allow, "redrivePermission") != "byQueue" || len(sources) != 1 || !strings.HasSuffix(resolved(sources[0]), ":"+string(n)) {
				t.Errorf("%s takes dead letters by %s", n.DLQ(), text(allow))
			}
		}
	})
}

// A message must not come back while the function that has it may still run.
func TestQueues_HideMessagesAsLongAsTheirWorkerRuns(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for id, s := range tpl.of("AWS::Lambda::EventSourceMapping") {
			q := tpl.Resources[target(s.Properties["EventSourceArn"])]
			f := tpl.function(s.Properties["FunctionName"])
			if got, want := q.Properties["VisibilityTimeout"], f.Properties["Timeout"]; got == nil || got != want {
				t.Errorf("%s: queue hides for %v s, function runs for %v s", id, got, want)
			}
		}
	})
}

// MS1: nobody sends but the door, admin and the listed producers, and to a dead-letter queue nobody but its workers.
func TestQueues_RefusePlainTextAndOtherSenders(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		policies := map[string][]any{}
		for _, p := range tpl.of("AWS::SQS::QueuePolicy") {
			for _, q := range listOf(p.Properties["Queues"]) {
				policies[target(q)] = append(policies[target(q)], listOf(at(p.Properties, "PolicyDocument", "Statement"))...)
			}
		}
		for name, q := range queuesByName(t, tpl) {
			tls, senders := false, []string(nil)
			for _, st := range policies[q.id] {
				if at(st, "Effect") != "Deny" || at(st, "Principal", "AWS") != "*" || target(at(st, "Resource")) != q.id {
					t.Errorf("%s has the statement %s", name, text(st))
				}
				tls = tls || at(st, "Action") == "sqs:*" && at(st, "Condition", "Bool", "aws:SecureTransport") == "false"
				if at(st, "Action") == "sqs:SendMessage" {
					for _, r := range listOf(at(st, "Condition", "ArnNotEquals", "aws:PrincipalArn")) {
						if arn, named := r.(string); named {
							senders = append(senders, arn)
							continue
						}
						senders = append(senders, target(r))
					}
				}
			}
			if !tls {
				t.Errorf("%s takes plain text", name)
			}
			want := []string{roleOf(t, tpl, env.name("enqueue")), roleOf(t, tpl, env.name("admin"))}
			for _, p := range env.Config.Producers {
				want = append(want, p.RoleARN)
			}
			if strings.HasSuffix(name, "-dlq") {
				want = []string{roleOf(t, tpl, env.name("worker-"+laneOf(env, name)))}
			}
			if !slices.Equal(senders, want) {
				t.Errorf("%s takes messages of roles %q, want %q", name, senders, want)
			}
		}
	})
}

func TestSources_FeedEachQueueToItsLanesWorker(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		fed := map[string]string{}
		for id, s := range tpl.of("AWS::Lambda::EventSourceMapping") {
			q := tpl.Resources[target(s.Properties["EventSourceArn"])].Properties["QueueName"].(string)
			if by, twice := fed[q]; twice {
				t.Errorf("%s is fed by %s and %s", q, by, id)
			}
			fed[q] = id
			if alias := tpl.Resources[target(s.Properties["FunctionName"])]; alias.Type != "AWS::Lambda::Alias" || alias.Properties["Name"] != config.Alias {
				t.Errorf("%s invokes %s, which a rollout can't shift", id, text(alias))
			}
			function := tpl.function(s.Properties["FunctionName"]).Properties["FunctionName"]
			if want := env.name("worker-" + laneOf(env, q)); function != want {
				t.Errorf("%s goes to %v, want %s", q, function, want)
			}
			if diff := cmp.Diff([]any{"ReportBatchItemFailures"}, s.Properties["FunctionResponseTypes"]); diff != "" {
				t.Errorf("%s: one failed message repeats its batch: %s", id, diff)
			}
			if c, _ := at(s.Properties, "ScalingConfig", "MaximumConcurrency").(float64); c < 2 {
				t.Errorf("%s has maximum concurrency %v", id, c)
			}
			if diff := cmp.Diff([]any{"EventCount"}, at(s.Properties, "MetricsConfig", "Metrics")); diff != "" {
				t.Errorf("%s metrics: %s", id, diff)
			}
		}
		for _, n := range env.Config.QueueNames() {
			if fed[string(n)] == "" {
				t.Errorf("nobody reads %s", n)
			}
		}
	})
}

// laneOf is the lane of a queue or of its dead-letter queue.
func laneOf(env Environment, name string) string {
	for _, m := range env.Config.Models {
		for _, l := range m.Lanes {
			if n := env.Config.Queues.Names().Model(m.Alias, l); name == string(n) || name == string(n.DLQ()) {
				return string(l)
			}
		}
	}
	return "none"
}

// roleOf is the logical id of a function's role.
func roleOf(t *testing.T, tpl template, function string) string {
	t.Helper()
	for _, f := range tpl.of("AWS::Lambda::Function") {
		if f.Properties["FunctionName"] == function {
			return target(f.Properties["Role"])
		}
	}
	t.Fatalf("there is no function %s", function)
	return ""
}
