package stack

import (
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// bell is whom alarms tell. Nil tells nobody: alarms are seen on the dashboard then.
type bell struct{ topic awssns.ITopic }

// newBell takes the operators' own topic, or makes one that tells their address. The topic isn't encrypted with a key:
// CloudWatch could use none but a customer's, and an alarm says no more than its name.
func newBell(scope constructs.Construct, env Environment) bell {
	d := env.Config.Deploy
	if d.AlarmTopicARN != "" {
		return bell{awssns.Topic_FromTopicArn(scope, jsii.String("AlarmTopic"), jsii.String(d.AlarmTopicARN))}
	}
	if d.AlarmEmail == "" {
		return bell{}
	}
	topic := awssns.NewTopic(scope, jsii.String("AlarmTopic"), &awssns.TopicProps{TopicName: jsii.String(env.name("alarms")), EnforceSSL: jsii.Bool(true)})
	topic.AddSubscription(awssnssubscriptions.NewEmailSubscription(jsii.String(d.AlarmEmail), nil))
	return bell{topic}
}

// alarm rings when a metric, looked at each period, is at its bound or above for so many of the last periods.
type alarm struct {
	name    string // after the environment's
	says    string // what is wrong, and where to look
	metric  awscloudwatch.IMetric
	bound   float64
	periods float64
}

// ring makes an alarm. What is silent is well: queues without messages stop telling after six hours.
func (b bell) ring(scope constructs.Construct, env Environment, a alarm) {
	made := awscloudwatch.NewAlarm(scope, jsii.String("Alarm-"+a.name), &awscloudwatch.AlarmProps{
		AlarmName: jsii.String(env.name(a.name)), AlarmDescription: jsii.String(a.says),
		Metric: a.metric, Threshold: jsii.Number(a.bound), EvaluationPeriods: jsii.Number(a.periods),
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
	})
	if b.topic != nil {
		made.AddAlarmAction(awscloudwatchactions.NewSnsAction(b.topic))
	}
}

// series is a metric over five minutes unless it says otherwise.
func series(namespace, name, statistic string, labels ...string) awscloudwatch.Metric {
	return seriesOver(5*minute, namespace, name, statistic, labels...)
}

func seriesOver(period time.Duration, namespace, name, statistic string, labels ...string) awscloudwatch.Metric {
	dimensions := map[string]*string{}
	for pair := range slices.Chunk(labels, 2) { // name, value
		dimensions[pair[0]] = jsii.String(pair[1])
	}
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(namespace), MetricName: jsii.String(name), Statistic: jsii.String(statistic), Period: seconds(period), DimensionsMap: &dimensions,
	})
}

// own is a metric of llmq's own, by the names that the functions write.
func (e Environment) own(m telemetry.Metric, statistic string, labels ...string) awscloudwatch.Metric {
	return series("llmq/"+e.Config.Env, string(m), statistic, labels...)
}

// oldestMax is how long a message of a lane may wait before somebody is told.
func oldestMax(l llmq.Lane) time.Duration {
	switch l {
	case llmq.LaneRT:
		return time.Minute
	case llmq.LaneBG:
		return 15 * time.Minute
	case llmq.LaneBulk:
	}
	return 4 * time.Hour
}

// inFlightMax is two thirds of what SQS lets be in flight on a queue.
const inFlightMax = 80_000

// watchQueue makes the alarms of a queue and its dead-letter queue.
func (p pair) watch(at constructs.Construct, env Environment, b bell) {
	name := string(p.name)
	b.ring(at, env, alarm{
		name: name + "-dead-letters", says: "calls of " + name + " were given up: llmq queues --queue " + name + " tells why, redrive sends them again",
		metric: seriesOver(minute, "AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", "QueueName", string(p.name.DLQ())), bound: 1, periods: 1,
	})
	b.ring(at, env, alarm{
		name: name + "-oldest", says: "a message of " + name + " waits too long; llmq status tells what limits its model",
		metric: p.oldest(env), bound: oldestMax(p.lane).Seconds(), periods: 3,
	})
	b.ring(at, env, alarm{
		name: name + "-in-flight", says: "SQS lets no more than 120,000 messages of a queue be in flight",
		metric: series("AWS/SQS", "ApproximateNumberOfMessagesNotVisible", "Maximum", "QueueName", name), bound: inFlightMax, periods: 1,
	})
}

// oldest is a queue's oldest message. SQS leaves out what was received three times, as each call that waits for capacity
// soon was; workers tell the age of those.
func (p pair) oldest(env Environment) awscloudwatch.IMetric {
	sqs, own := "sqs_"+string(p.lane), "own_"+string(p.lane) // a graph shows all lanes, and wants ids apart
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String("MAX([FILL(" + sqs + ", 0), FILL(" + own + ", 0)])"), Label: jsii.String(string(p.name)), Period: seconds(5 * minute),
		UsingMetrics: &map[string]awscloudwatch.IMetric{
			sqs: series("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", "QueueName", string(p.name)),
			own: env.own(telemetry.QueueOldest, "Maximum", "queue", string(p.name)),
		},
	})
}

// watchFunctions makes the alarms of functions, of their store as they see it, and of the account's concurrency.
func watchFunctions(scope constructs.Construct, env Environment, b bell) {
	for _, f := range env.functions() {
		name := env.name(f.part)
		lambda := func(metric, statistic string) awscloudwatch.IMetric {
			return series("AWS/Lambda", metric, statistic, "FunctionName", name)
		}
		b.ring(scope, env, alarm{name: f.part + "-errors", says: name + " crashed, or ran out of time: see its log", metric: lambda("Errors", "Sum"), bound: 3, periods: 1})
		b.ring(scope, env, alarm{name: f.part + "-throttles", says: "invocations of " + name + " were refused: its concurrency, or the account's, is used up", metric: lambda("Throttles", "Sum"), bound: 10, periods: 3})
		if f.part != "enqueue" { // the door waits as long as its callers; its latency is watched at the API
			b.ring(scope, env, alarm{
				name: f.part + "-slow", says: "the slowest invocations of " + name + " come near its timeout",
				metric: lambda("Duration", "p99"), bound: 0.8 * float64(f.timeout.Milliseconds()), periods: 3,
			})
		}
		if n := f.reserved; n > 0 {
			b.ring(scope, env, alarm{
				name: f.part + "-concurrency", says: name + " uses nearly all of the " + strconv.Itoa(n) + " invocations that are reserved for it",
				metric: lambda("ConcurrentExecutions", "Maximum"), bound: 0.8 * float64(n), periods: 3,
			})
		}
		b.ring(scope, env, alarm{
			name: f.part + "-store-down", says: name + " has lost the state store: docs/OPERATE.md tells what still works then",
			metric: env.own(telemetry.StoreDown, "Maximum", "function", name), bound: 1, periods: 1,
		})
	}
	b.ring(scope, env, alarm{
		name: "account-concurrency", says: "all functions of the account use 80 % of its concurrency quota",
		metric: series("AWS/Lambda", "ClaimedAccountConcurrency", "Maximum"), bound: 0.8 * float64(env.Config.Deploy.LambdaConcurrency), periods: 3,
	})
}

// watchTargets makes the alarms of what calls are sent to.
func watchTargets(scope constructs.Construct, env Environment, b bell) {
	for _, m := range env.Config.Models {
		b.ring(scope, env, alarm{
			name: m.Alias + "-direct", says: "the queues of " + m.Alias + " take nothing: rt calls are run where their callers wait",
			metric: env.own(telemetry.QueueDirect, "Maximum", "model", m.Alias), bound: 1, periods: 2,
		})
		if !env.Config.Governor.Enabled { // which tells it
			continue
		}
		for _, t := range m.Targets {
			b.ring(scope, env, alarm{
				name: m.Alias + "-" + t.Name + "-breaker", says: "the breaker of " + m.Alias + "@" + t.Name + " lets nothing through: the provider refuses or fails",
				metric: env.own(telemetry.BreakerOpen, "Maximum", "model", m.Alias, "target", t.Name), bound: 1, periods: 2,
			})
		}
	}
}

// watchDoor makes the alarms of the callers' API.
func watchDoor(scope constructs.Construct, env Environment, b bell) {
	api := func(metric, statistic string) awscloudwatch.IMetric {
		return series("AWS/ApiGateway", metric, statistic, "ApiName", env.name(), "Stage", stage)
	}
	b.ring(scope, env, alarm{name: "api-5xx", says: "callers get 5xx: the access log tells which routes", metric: api("5XXError", "Sum"), bound: 10, periods: 2})
	b.ring(scope, env, alarm{
		name: "api-slow", says: "the slowest callers wait as long as the door lets them",
		metric: api("Latency", "p99"), bound: float64(env.Config.Door.Wait.Milliseconds()), periods: 3,
	})
}

// watchCache makes the alarms of the state store, at three quarters of its limits.
func watchCache(scope constructs.Construct, env Environment, b bell) {
	cache := func(metric, statistic string) awscloudwatch.IMetric {
		return seriesOver(minute, "AWS/ElastiCache", metric, statistic, "clusterId", env.name())
	}
	gigabytes, ecpus := env.cacheLimits()
	b.ring(scope, env, alarm{name: "cache-full", says: "past its limit the state store forgets claims", metric: cache("BytesUsedForCache", "Maximum"), bound: 0.75 * gigabytes * 1e9, periods: 5})
	b.ring(scope, env, alarm{name: "cache-busy", says: "past its limit the state store refuses commands", metric: cache("ElastiCacheProcessingUnits", "Sum"), bound: 0.75 * ecpus * 60, periods: 5})
	b.ring(scope, env, alarm{name: "cache-throttled", says: "the state store refuses commands", metric: cache("ThrottledCmds", "Sum"), bound: 1, periods: 2})
}
