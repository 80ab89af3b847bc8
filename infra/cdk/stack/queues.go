package stack

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
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

// pair is the queue of a model's lane, or of jobs, and its dead-letter queue. Both are known by name before they are made, so that
// roles, which come first, can name them.
type pair struct {
	name queue.Name
	lane llmq.Lane
	jobs *config.JobQueue // nil: of a model
}

// pairs is every queue, in the order of the file.
type pairs []pair

func queuesOf(env Environment) pairs {
	names := env.Config.Queues.Names()
	var ps pairs
	for _, m := range env.Config.Models {
		for _, l := range m.Lanes {
			ps = append(ps, pair{name: names.Model(m.Alias, l), lane: l})
		}
	}
	for _, j := range env.Config.Jobs {
		ps = append(ps, jobPair(env, j))
	}
	return ps
}

// of lists the queues of a lane's worker.
func (ps pairs) of(l llmq.Lane) pairs {
	var some pairs
	for _, p := range ps {
		if p.lane == l && p.jobs == nil {
			some = append(some, p)
		}
	}
	return some
}

// sourceARNs names the queues, as a policy in scope's stack wants it.
func (ps pairs) sourceARNs(scope constructs.Construct) []*string {
	arns := make([]*string, len(ps))
	for i, p := range ps {
		arns[i] = queueARN(scope, p.name)
	}
	return arns
}

// deadARNs names their dead-letter queues.
func (ps pairs) deadARNs(scope constructs.Construct) []*string {
	arns := make([]*string, len(ps))
	for i, p := range ps {
		arns[i] = queueARN(scope, p.name.DLQ())
	}
	return arns
}

// queueARN is a queue of this account and region by its name.
func queueARN(scope constructs.Construct, name queue.Name) *string {
	return awscdk.Stack_Of(scope).FormatArn(&awscdk.ArnComponents{Service: jsii.String("sqs"), Resource: jsii.String(string(name))})
}

// visibility is the time of the function that reads the queue.
func (p pair) visibility(env Environment) time.Duration {
	if p.jobs != nil {
		return p.jobs.FunctionTimeout()
	}
	return env.Config.Lanes[p.lane].FunctionTimeout
}

// make makes both queues and gives the first.
func (p pair) make(at constructs.Construct, env Environment, staff parties) awssqs.Queue {
	// By its name: the two queues would otherwise have to be made before each other.
	named := awssqs.Queue_FromQueueArn(at, jsii.String("SourceByName"), queueARN(at, p.name))
	dead := awssqs.NewQueue(at, jsii.String("Dead"), &awssqs.QueueProps{
		QueueName:       jsii.String(string(p.name.DLQ())),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(deadDays)),
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		RemovalPolicy:   env.keeps(),
		RedriveAllowPolicy: &awssqs.RedriveAllowPolicy{
			RedrivePermission: awssqs.RedrivePermission_BY_QUEUE, SourceQueues: &[]awssqs.IQueue{named},
		},
	})
	source := awssqs.NewQueue(at, jsii.String("Source"), &awssqs.QueueProps{
		QueueName:       jsii.String(string(p.name)),
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(sourceDays)),
		// Of a function that was killed; one that works shortens its lease and renews it.
		VisibilityTimeout: seconds(p.visibility(env)),
		Encryption:        awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		RemovalPolicy:     env.keeps(),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(maxReceives)},
	})
	senders := []any{staff.door.role.RoleArn(), staff.operator.role.RoleArn()} // operators send dead letters again
	for _, producer := range env.Config.Producers {
		senders = append(senders, producer.RoleARN)
	}
	onlySenders(source, "OnlyListedSend", senders)
	onlySenders(dead, "OnlyItsWorkersSend", []any{staff.worker(p).role.RoleArn()})
	return source
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
