package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

const (
	sourceDays = 4
	// deadDays is longer: a message that is moved keeps the time it was first sent at.
	deadDays = 14
	// maxReceives is a last guard only. Every wait for capacity is a receive, and workers
	// bury what can't be served themselves, with its reason.
	maxReceives = 1000
)

// pair is the queue of a model's lane and its dead-letter queue.
type pair struct {
	name         queue.Name
	lane         llmq.Lane
	source, dead awssqs.Queue
}

// pairs is every queue, in the order of the file.
type pairs []pair

// of lists the queues of a lane.
func (ps pairs) of(l llmq.Lane) pairs {
	var some pairs
	for _, p := range ps {
		if p.lane == l {
			some = append(some, p)
		}
	}
	return some
}

func (ps pairs) sourceARNs() []*string {
	arns := make([]*string, len(ps))
	for i, p := range ps {
		arns[i] = p.source.QueueArn()
	}
	return arns
}

func (ps pairs) deadARNs() []*string {
	arns := make([]*string, len(ps))
	for i, p := range ps {
		arns[i] = p.dead.QueueArn()
	}
	return arns
}

// newQueues makes every model's queues.
func newQueues(s awscdk.Stack, env Environment, door, operator member, workers map[llmq.Lane]member) pairs {
	scope := constructs.NewConstruct(s, jsii.String("Queues"))
	names := env.Config.Queues.Names()
	var ps pairs
	for _, m := range env.Config.Models {
		model := constructs.NewConstruct(scope, jsii.String(m.Alias))
		for _, l := range m.Lanes {
			p := pair{name: names.Model(m.Alias, l), lane: l}
			p.make(s, constructs.NewConstruct(model, jsii.String(string(l))), env, door, operator, workers[l])
			ps = append(ps, p)
		}
	}
	return ps
}

func (p *pair) make(s awscdk.Stack, at constructs.Construct, env Environment, door, operator, worker member) {
	// By its name: the two queues would otherwise have to be made before each other.
	source := awssqs.Queue_FromQueueArn(at, jsii.String("SourceByName"), s.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("sqs"), Resource: jsii.String(string(p.name)),
	}))
	p.dead = awssqs.NewQueue(at, jsii.String("Dead"), &awssqs.QueueProps{
		QueueName:       jsii.String(string(p.name.DLQ())),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(deadDays)),
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		RedriveAllowPolicy: &awssqs.RedriveAllowPolicy{
			RedrivePermission: awssqs.RedrivePermission_BY_QUEUE, SourceQueues: &[]awssqs.IQueue{source},
		},
	})
	p.source = awssqs.NewQueue(at, jsii.String("Source"), &awssqs.QueueProps{
		QueueName:       jsii.String(string(p.name)),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(sourceDays)),
		// Of a function that was killed; one that works shortens its lease and renews it.
		VisibilityTimeout: seconds(env.Config.Lanes[p.lane].FunctionTimeout),
		Encryption:        awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: p.dead, MaxReceiveCount: jsii.Number(maxReceives)},
	})
	senders := []any{door.role.RoleArn(), operator.role.RoleArn()} // operators send dead letters again
	for _, producer := range env.Config.Producers {
		senders = append(senders, producer.RoleARN)
	}
	onlySenders(p.source, "OnlyListedSend", senders)
	onlySenders(p.dead, "OnlyItsWorkersSend", []any{worker.role.RoleArn()})
}

// onlySenders denies sending to all but these roles (SECURITY-DESIGN MS1): what a message
// says of its tenant is believed because of who may send it. It lets nobody send: that is
// for the sender's own policy.
func onlySenders(q awssqs.Queue, sid string, roles []any) {
	q.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid: jsii.String(sid), Effect: awsiam.Effect_DENY,
		Principals: &[]awsiam.IPrincipal{awsiam.NewAnyPrincipal()},
		Actions:    jsii.Strings("sqs:SendMessage"),
		Resources:  &[]*string{q.QueueArn()},
		Conditions: &map[string]any{"ArnNotEquals": map[string]any{"aws:PrincipalArn": roles}},
	}))
}
