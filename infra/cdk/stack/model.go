package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// parties are the functions that deal with queues: who sends, and who reads what.
type parties struct {
	door, operator member
	workers        map[llmq.Lane]member
	feeds          map[llmq.Lane]*string // ARN of what a lane's event sources invoke
	jobs           map[string]member     // by queue of jobs
	bell           bell
}

// worker is the function that reads a queue.
func (s parties) worker(p pair) member {
	if p.jobs != nil {
		return s.jobs[p.jobs.Name]
	}
	return s.workers[p.lane]
}

// newModel makes what one model needs for itself: its queues, what feeds them to the lanes' workers, and its alarms. It is a
// nested stack, since a stack holds 500 resources and a model takes some thirty.
func newModel(s awscdk.Stack, env Environment, m config.Model, staff parties) {
	nested := awscdk.NewNestedStack(s, jsii.String("Model-"+m.Alias), &awscdk.NestedStackProps{
		Description: jsii.String("the queues of the model " + m.Alias + " of llmq " + env.Config.Env),
	})
	for _, l := range m.Lanes {
		p := pair{name: env.Config.Queues.Names().Model(m.Alias, l), lane: l}
		at := constructs.NewConstruct(nested, jsii.String(string(l)))
		p.feed(at, env, p.make(at, env, staff), staff.feeds[l])
		p.watch(at, env, staff.bell)
	}
}
