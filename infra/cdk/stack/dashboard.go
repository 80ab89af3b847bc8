package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

const halfWidth = 12 // of 24

// newDashboard shows the environment at a glance: the door and the functions, the state store, and a row for each model.
func newDashboard(scope constructs.Construct, env Environment) {
	var throttles, running, errors, store []awscloudwatch.IMetric
	for _, f := range env.functions() {
		name := env.name(f.part)
		lambda := func(metric, statistic string) awscloudwatch.IMetric {
			return series("AWS/Lambda", metric, statistic, "FunctionName", name)
		}
		errors = append(errors, lambda("Errors", "Sum"))
		throttles = append(throttles, lambda("Throttles", "Sum"))
		running = append(running, lambda("ConcurrentExecutions", "Maximum"))
		store = append(store, env.own(telemetry.StoreDown, "Maximum", "function", name))
	}
	api := func(metric, statistic string) awscloudwatch.IMetric {
		return series("AWS/ApiGateway", metric, statistic, "ApiName", env.name(), "Stage", stage)
	}
	cache := func(metric, statistic string) awscloudwatch.IMetric {
		return series("AWS/ElastiCache", metric, statistic, "clusterId", env.name())
	}
	rows := [][]awscloudwatch.IWidget{
		{
			graph("Calls at the door", []awscloudwatch.IMetric{api("Count", "Sum")}, []awscloudwatch.IMetric{api("4XXError", "Sum"), api("5XXError", "Sum")}),
			graph("How long callers wait", []awscloudwatch.IMetric{api("Latency", "p50"), api("Latency", "p99")}, nil),
		},
		{graph("Invocations at once", running, nil), graph("Failed and refused invocations", errors, throttles)},
		{
			graph("State store: use", []awscloudwatch.IMetric{cache("ElastiCacheProcessingUnits", "Sum")}, []awscloudwatch.IMetric{cache("BytesUsedForCache", "Maximum")}),
			graph("State store: trouble", append(store, cache("ThrottledCmds", "Sum")), nil),
		},
	}
	for _, m := range env.Config.Models {
		rows = append(rows, modelRow(env, m))
	}
	for _, j := range env.Config.Jobs {
		rows = append(rows, queueRow(env, "jobs of "+j.Name, pairs{jobPair(env, j)}, nil))
	}
	widgets := make([]*[]awscloudwatch.IWidget, len(rows))
	for i := range rows {
		widgets[i] = &rows[i]
	}
	awscloudwatch.NewDashboard(scope, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{DashboardName: jsii.String(env.name()), Widgets: &widgets})
}

// modelRow shows a model's queues and its targets.
func modelRow(env Environment, m config.Model) []awscloudwatch.IWidget {
	var queues pairs
	for _, l := range m.Lanes {
		queues = append(queues, pair{name: env.Config.Queues.Names().Model(m.Alias, l), lane: l})
	}
	var targets []awscloudwatch.IMetric
	for _, t := range m.Targets {
		targets = append(targets, env.targetMetrics(m, t)...)
	}
	return queueRow(env, m.Alias, queues, append(targets, env.own(telemetry.DirectCalls, "Sum", "model", m.Alias, "cause", "queue")))
}

// queueRow shows what waits on some queues, and what was given up, beside what is told of those whom they are for.
func queueRow(env Environment, title string, queues pairs, targets []awscloudwatch.IMetric) []awscloudwatch.IWidget {
	var waiting, oldest, given []awscloudwatch.IMetric
	for _, p := range queues {
		waiting = append(waiting, series("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", "QueueName", string(p.name)))
		oldest = append(oldest, p.oldest(env))
		given = append(given, series("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", "QueueName", string(p.name.DLQ())))
	}
	return []awscloudwatch.IWidget{
		graph(title+": waiting, and for how many seconds", waiting, oldest),
		graph(title+": targets, and dead letters", targets, given),
	}
}

// targetMetrics are what is known of a target: calls in flight and whether its breaker is open, which the governor tells, and
// Bedrock's own counts.
func (e Environment) targetMetrics(m config.Model, t config.Target) []awscloudwatch.IMetric {
	var all []awscloudwatch.IMetric
	if e.Config.Governor.Enabled {
		all = append(all,
			e.own(telemetry.Inflight, "Maximum", "model", m.Alias, "target", t.Name),
			e.own(telemetry.BreakerOpen, "Maximum", "model", m.Alias, "target", t.Name))
	}
	if p, _ := e.provider(t.Provider); p.Type == config.ProviderBedrock {
		all = append(all,
			series("AWS/Bedrock", "Invocations", "Sum", "ModelId", t.ModelID), series("AWS/Bedrock", "InvocationThrottles", "Sum", "ModelId", t.ModelID))
	}
	return all
}

func graph(title string, left, right []awscloudwatch.IMetric) awscloudwatch.IWidget {
	props := &awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Width: jsii.Number(halfWidth)}
	if len(left) > 0 {
		props.Left = &left
	}
	if len(right) > 0 {
		props.Right = &right
	}
	return awscloudwatch.NewGraphWidget(props)
}
