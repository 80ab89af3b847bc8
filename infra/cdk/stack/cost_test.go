package stack

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/awscost"
)

// `make cost` counts by the file what the template has.
func TestCost_CountsWhatIsDeployed(t *testing.T) {
	eachEnvironment(t, checkCost)
}

func checkCost(t *testing.T, env Environment, tpl template) {
	t.Helper()
	got := awscost.Standing{
		Queues: len(tpl.of("AWS::Lambda::EventSourceMapping")), Alarms: metricsAlarmed(tpl), Dashboards: len(tpl.of("AWS::CloudWatch::Dashboard")),
		Secrets:  len(tpl.of("AWS::SecretsManager::Secret")) + secretsOfTheFile(env),
		Governor: len(tpl.of("AWS::Scheduler::Schedule")) == 1, WAF: len(tpl.of("AWS::WAFv2::WebACL")) == 1, NATs: len(tpl.of("AWS::EC2::NatGateway")),
	}
	if diff := cmp.Diff(awscost.Of(env.Config), got); diff != "" {
		t.Errorf("(-by the file +in the template):\n%s", diff)
	}
}

// metricsAlarmed counts the metrics of all alarms, by which they are paid.
func metricsAlarmed(tpl template) int {
	n := 0
	for _, a := range tpl.of("AWS::CloudWatch::Alarm") {
		metrics := 0
		for _, m := range listOf(a.Properties["Metrics"]) {
			if at(m, "MetricStat") != nil {
				metrics++
			}
		}
		n += max(metrics, 1)
	}
	return n
}

func secretsOfTheFile(env Environment) int {
	seen := map[string]bool{}
	for _, arn := range env.doorSecrets() {
		seen[arn] = true
	}
	for _, l := range env.lanes() {
		for _, arn := range env.providerSecrets(l) {
			seen[arn] = true
		}
	}
	return len(seen)
}
