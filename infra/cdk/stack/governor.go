package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// governedEvery is how often the governor looks, and how long an event of its schedule is worth anything.
const (
	governedEvery   = "rate(1 minute)"
	governedSeconds = 60
)

// newGovernor makes the governor where the environment turns it on: the admin artifact under a role of its own, invoked
// each minute. Nothing is tried again: what a run leaves is the next one's.
func newGovernor(s awscdk.Stack, env Environment, place placement, queues pairs) {
	if !env.Config.Governor.Enabled {
		return
	}
	m := newMember(s, env, "governor")
	place.cache.admit(m, place.cache.governor)
	grantSources(m, env, []llmq.Lane{llmq.LaneBG, llmq.LaneBulk}, nil) // those of jobs are as wide as their slots
	m.allow("ReadDepths", []string{"sqs:GetQueueAttributes"}, queues.sourceARNs(m.scope)...)
	f := place.function(m, sizing{
		artifact: admin, user: place.cache.governor, memoryMB: memoryMB, timeout: adminTimeout,
		about: "sets each minute how many invocations background queues may have, and reads how much waits",
	})
	f.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		MaxEventAge: awscdk.Duration_Seconds(jsii.Number(governedSeconds)), RetryAttempts: jsii.Number(0),
	})
	scope := constructs.NewConstruct(m.scope, jsii.String("Clock"))
	name := env.name("governor")
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		// Only this account's schedule of this name: the service asks on behalf of anybody (the confused deputy).
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("scheduler.amazonaws.com"), &awsiam.ServicePrincipalOpts{
			Conditions: &map[string]any{"StringEquals": map[string]any{
				"aws:SourceAccount": s.Account(),
				"aws:SourceArn":     s.FormatArn(&awscdk.ArnComponents{Service: jsii.String("scheduler"), Resource: jsii.String("schedule-group"), ResourceName: jsii.String("default")}),
			}},
		}),
		Description: jsii.String("lets the schedule invoke " + m.name),
	})
	role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid: jsii.String("Invoke"), Actions: jsii.Strings("lambda:InvokeFunction"), Resources: &[]*string{f.FunctionArn()},
	}))
	schedule := awsscheduler.NewCfnSchedule(scope, jsii.String("Schedule"), &awsscheduler.CfnScheduleProps{
		Name: jsii.String(name), ScheduleExpression: jsii.String(governedEvery),
		FlexibleTimeWindow: &awsscheduler.CfnSchedule_FlexibleTimeWindowProperty{Mode: jsii.String("OFF")},
		Target: &awsscheduler.CfnSchedule_TargetProperty{
			Arn: f.FunctionArn(), RoleArn: role.RoleArn(),
			RetryPolicy: &awsscheduler.CfnSchedule_RetryPolicyProperty{
				MaximumEventAgeInSeconds: jsii.Number(governedSeconds), MaximumRetryAttempts: jsii.Number(0),
			},
		},
	})
	schedule.Node().AddDependency(role)
}

// grantSources lets a function read which event sources there are, and change those of the workers of lanes and jobs. Reading takes no
// resource in IAM; an update could point a source at another function, so it is bound to the ones that are ours.
func grantSources(m member, env Environment, lanes []llmq.Lane, jobs []config.JobQueue) {
	s := awscdk.Stack_Of(m.scope)
	var workers []any
	for _, l := range lanes {
		if len(env.models(l)) > 0 {
			// Sources invoke the alias; whether IAM then compares with its ARN or with the function's, no document says.
			workers = append(workers, functionARN(s, env.Config.WorkerFunction(l)), functionARN(s, env.Config.SourceTarget(l)))
		}
	}
	for _, j := range jobs {
		workers = append(workers, functionARN(s, env.Config.JobFunction(j.Name)), functionARN(s, env.Config.JobTarget(j.Name)))
	}
	m.allow("ListSources", []string{"lambda:ListEventSourceMappings"}, jsii.String("*"))
	m.allowWhen("ChangeSources", []string{"lambda:UpdateEventSourceMapping"}, &map[string]any{
		"ArnEquals": map[string]any{"lambda:FunctionArn": workers},
	}, s.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("lambda"), Resource: jsii.String("event-source-mapping"), ResourceName: jsii.String("*"),
		ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
	}))
}
