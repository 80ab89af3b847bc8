package main

import (
	"context"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/eventsource"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// loadTimeout bounds what is read of the environment before the first event.
const loadTimeout = 5 * time.Second

// operator wires the verbs that change something. Locally Lambda's API is where the SDK's own variable
// AWS_ENDPOINT_URL_LAMBDA says.
func operator(ctx context.Context, p *wiring.Process) (*admin.Operator, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var opts []func(*awsconfig.LoadOptions) error
	if p.Config.Region != "" {
		opts = append(opts, awsconfig.WithRegion(p.Config.Region))
	}
	aws, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "AWS settings can't be loaded").Because(err)
	}
	a := p.Admin()
	queues, ok := a.Queue.(queue.Operator)
	if !ok {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "the queues of this deployment can't be operated")
	}
	var creator queue.Creator
	if p.Config.Kind == config.KindLocal {
		if creator, ok = a.Queue.(queue.Creator); !ok {
			return nil, llmq.Errorf(llmq.CodeConfiguration, "the queues of this deployment can't be made")
		}
	}
	lanes := map[llmq.Lane]admin.LaneRule{}
	for lane, l := range p.Config.Lanes {
		lanes[lane] = admin.LaneRule{
			Worker: p.Config.SourceTarget(lane), BatchSize: l.BatchSize, MaxConcurrency: l.MaxConcurrency, Timeout: l.Timeout, Visibility: l.FunctionTimeout,
		}
	}
	jobs := map[string]admin.LaneRule{}
	for _, j := range p.Config.Jobs {
		jobs[j.Name] = admin.LaneRule{
			Worker: p.Config.JobTarget(j.Name), BatchSize: 1, MaxConcurrency: j.MaxConcurrency(), Timeout: p.Catalogue.Timeout(j.Name, llmq.OpJob, llmq.LaneBulk),
			Visibility: j.FunctionTimeout(),
		}
	}
	return admin.NewOperator(a, admin.OperatorDeps{
		Queue: queues, Creator: creator, Sources: eventsource.New(lambda.NewFromConfig(aws)), Lanes: lanes, Jobs: jobs,
		Governed: p.Config.Governor.Enabled, Forecast: p.Forecast(), Senders: p.Config.Senders(), Trail: p.Trail(), Metrics: p.Metrics(),
	}), nil
}

// keys wires the verbs of callers' keys.
func keys(p *wiring.Process) (*admin.Keys, error) {
	registry, err := p.Keys()
	if err != nil {
		return nil, err
	}
	return admin.NewKeys(registry, p.Catalogue, p.Trail()), nil
}
