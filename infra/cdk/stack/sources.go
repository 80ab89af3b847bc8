package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// feed gives the messages of a queue to its lane's worker, each queue by a source of its own, so that one model's backlog
// can't take another's invocations.
//
// The construct is the plain one: the event source on top of it would grant more than the worker may.
func (p pair) feed(at constructs.Construct, env Environment, source awssqs.Queue, worker *string) {
	batch, most := env.Config.Lanes[p.lane].BatchSize, env.Config.Lanes[p.lane].MaxConcurrency
	if p.jobs != nil { // a job has a process to itself
		batch, most = 1, p.jobs.MaxConcurrency()
	}
	awslambda.NewCfnEventSourceMapping(at, jsii.String("Feed"), &awslambda.CfnEventSourceMappingProps{
		FunctionName:   worker,
		EventSourceArn: source.QueueArn(),
		BatchSize:      jsii.Number(float64(batch)),
		ScalingConfig:  &awslambda.CfnEventSourceMapping_ScalingConfigProperty{MaximumConcurrency: jsii.Number(float64(most))},
		// Without it one failed message would run its whole batch again.
		FunctionResponseTypes: jsii.Strings("ReportBatchItemFailures"),
		MetricsConfig:         &awslambda.CfnEventSourceMapping_MetricsConfigProperty{Metrics: jsii.Strings("EventCount")},
	})
}
