package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// jobPart is the function of a queue of jobs as a part of the environment.
func jobPart(j config.JobQueue) string { return "job-" + j.Name }

// jobPair is a queue of jobs and its dead-letter queue.
func jobPair(env Environment, j config.JobQueue) pair {
	return pair{name: env.Config.JobQueue(j), lane: llmq.LaneBulk, jobs: &j}
}

// jobs is the function of a queue of jobs.
func (p placement) jobs(m member, j config.JobQueue) awslambda.Function {
	return p.function(m, sizing{
		artifact: artifact(j.Artifact), user: p.cache.worker, memoryMB: j.MemoryMB, timeout: j.FunctionTimeout(),
		reserved: j.MaxConcurrency(), loops: true, about: "runs the jobs of " + j.Name,
	})
}

// newJobs makes a queue of jobs, what feeds it to its function, and its alarms, as a nested stack like a model's.
func newJobs(s awscdk.Stack, env Environment, j config.JobQueue, feed *string, staff parties) {
	nested := awscdk.NewNestedStack(s, jsii.String("Jobs-"+j.Name), &awscdk.NestedStackProps{
		Description: jsii.String("the queue of jobs " + j.Name + " of llmq " + env.Config.Env),
	})
	p := jobPair(env, j)
	at := constructs.NewConstruct(nested, jsii.String("jobs"))
	p.feed(at, env, p.make(at, env, staff), feed)
	p.watch(at, env, staff.bell)
}
