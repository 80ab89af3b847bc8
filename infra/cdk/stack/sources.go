package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// newSources feeds a lane's queues to its worker, each queue by a source of its own,
// so that one model's backlog can't take another's invocations.
//
// They are mappings, not SqsEventSources: those would grant more than the worker may.
func newSources(env Environment, l llmq.Lane, worker awslambda.Function, queues pairs) {
	lane := env.Config.Lanes[l]
	for _, p := range queues {
		worker.AddEventSourceMapping(jsii.String("From-"+string(p.name)), &awslambda.EventSourceMappingOptions{
			EventSourceArn: p.source.QueueArn(),
			BatchSize:      jsii.Number(float64(lane.BatchSize)),
			MaxConcurrency: jsii.Number(float64(lane.MaxConcurrency)),
			// Without it one failed message would run its whole batch again.
			ReportBatchItemFailures: jsii.Bool(true),
			MetricsConfig:           &awslambda.MetricsConfig{Metrics: &[]awslambda.MetricType{awslambda.MetricType_EVENT_COUNT}},
		})
	}
}
