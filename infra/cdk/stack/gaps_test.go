package stack

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the validator of CDK lets through: a typing mistake in an action, pollers with a bound on concurrency, large batches
// without a window, names that IAM or ElastiCache refuse.
func TestTemplate_HasNoneOfTheFaultsThatTheValidatorMisses(t *testing.T) {
	actions := strings.Fields(`
		bedrock:InvokeModel bedrock:InvokeModelWithResponseStream cloudwatch:DescribeAlarms elasticache:Connect
		lambda:GetAlias lambda:GetProvisionedConcurrencyConfig lambda:InvokeFunction lambda:ListEventSourceMappings lambda:UpdateAlias lambda:UpdateEventSourceMapping
		logs:CreateLogGroup logs:CreateLogStream logs:DescribeLogGroups logs:DescribeLogStreams logs:FilterLogEvents logs:GetLogEvents logs:PutLogEvents
		s3:DeleteObject s3:GetObject s3:ListBucket s3:PutObject secretsmanager:GetSecretValue
		sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:GetQueueAttributes sqs:PurgeQueue sqs:ReceiveMessage sqs:SendMessage`)
	cacheName := regexp.MustCompile(`^[a-z]([a-z0-9]|-[a-z0-9]){0,39}$`)
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for id := range tpl.of("AWS::IAM::Role") {
			for _, st := range statementsOf(tpl, id) {
				for _, a := range listOf(at(st, "Action")) {
					if !slices.Contains(actions, a.(string)) {
						t.Errorf("%s allows %v, which is not among the actions that are known here", id, a)
					}
				}
			}
		}
		for id, s := range tpl.of("AWS::Lambda::EventSourceMapping") {
			if s.Properties["ProvisionedPollerConfig"] != nil {
				t.Errorf("%s: pollers, which exclude MaximumConcurrency", id)
			}
			batch, _ := s.Properties["BatchSize"].(float64)
			window, _ := s.Properties["MaximumBatchingWindowInSeconds"].(float64)
			if batch < 1 || batch > 10 && window < 1 {
				t.Errorf("%s: batches of %v within %v s", id, batch, window)
			}
		}
		for id, u := range tpl.of("AWS::ElastiCache::User") {
			if u.Properties["UserId"] != u.Properties["UserName"] {
				t.Errorf("%s: id %v, name %v", id, u.Properties["UserId"], u.Properties["UserName"])
			}
		}
		for id, c := range tpl.of("AWS::ElastiCache::ServerlessCache") {
			if name := c.Properties["ServerlessCacheName"].(string); len(name) > 40 || !cacheName.MatchString(name) {
				t.Errorf("%s is named %s", id, name)
			}
		}
	})
}
