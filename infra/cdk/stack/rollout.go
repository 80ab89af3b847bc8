package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// rollout brings new versions of functions into use: at once, or in production bit by bit, and back where they fail. Callers
// and event sources know a function by its alias, which stays.
type rollout struct {
	env         Environment
	application awscodedeploy.LambdaApplication // nil: at once
	role        awsiam.Role
}

func newRollout(s awscdk.Stack, env Environment) rollout {
	r := rollout{env: env}
	if !env.production() {
		return r
	}
	scope := constructs.NewConstruct(s, jsii.String("Rollout"))
	r.application = awscodedeploy.NewLambdaApplication(scope, jsii.String("Application"), &awscodedeploy.LambdaApplicationProps{ApplicationName: jsii.String(env.name())})
	r.role = awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("codedeploy.amazonaws.com"), nil),
		Description: jsii.String("lets CodeDeploy shift the traffic of " + env.name() + "'s functions"),
	})
	allow := func(sid string, on []*string, actions ...string) {
		r.role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{Sid: jsii.String(sid), Actions: jsii.Strings(actions...), Resources: &on}))
	}
	var functions []*string
	for _, part := range env.gradual() {
		functions = append(functions, functionARN(s, env.name(part)), functionARN(s, env.name(part)+":"+config.Alias))
	}
	allow("ShiftTraffic", functions, "lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig")
	allow("WatchNewVersions", []*string{s.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("cloudwatch"), Resource: jsii.String("alarm"), ResourceName: jsii.String(env.name("new-version") + "-*"),
		ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})}, "cloudwatch:DescribeAlarms")
	return r
}

// gradual lists the parts whose new versions come into use bit by bit: those that serve calls.
func (e Environment) gradual() []string {
	parts := []string{"enqueue"}
	for _, l := range e.lanes() {
		parts = append(parts, "worker-"+string(l))
	}
	for _, j := range e.Config.Jobs {
		parts = append(parts, jobPart(j))
	}
	return parts
}

// functionARN is a function of this account and region by its name, with an alias or without.
func functionARN(s awscdk.Stack, name string) *string {
	return s.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String("lambda"), Resource: jsii.String("function"), ResourceName: jsii.String(name), ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})
}

// alias is what callers and event sources invoke. In production a tenth of the invocations goes to a new version for five
// minutes; one that fails in that time is taken back. What the old version does wrong counts for nothing, so that a mend
// can be deployed while its alarms ring.
func (r rollout) alias(m member, f awslambda.Function) awslambda.Alias {
	version := f.CurrentVersion()
	alias := awslambda.NewAlias(m.scope, jsii.String("Live"), &awslambda.AliasProps{AliasName: jsii.String(config.Alias), Version: version})
	if r.application == nil {
		return alias
	}
	failing := awscloudwatch.NewAlarm(m.scope, jsii.String("NewVersionFails"), &awscloudwatch.AlarmProps{
		AlarmName:        jsii.String(r.env.name("new-version") + "-" + m.part),
		AlarmDescription: jsii.String("the version of " + m.name + " that is being brought into use fails: the one before takes over again"),
		Metric: awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
			Namespace: jsii.String("AWS/Lambda"), MetricName: jsii.String("Errors"), Statistic: jsii.String("Sum"), Period: seconds(minute),
			DimensionsMap: &map[string]*string{"FunctionName": jsii.String(m.name), "Resource": jsii.String(m.name + ":" + config.Alias), "ExecutedVersion": version.Version()},
		}),
		Threshold: jsii.Number(1), EvaluationPeriods: jsii.Number(1),
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
	})
	alias.Node().AddDependency(failing) // it has to watch the new version before that gets anything
	awscodedeploy.NewLambdaDeploymentGroup(m.scope, jsii.String("Shift"), &awscodedeploy.LambdaDeploymentGroupProps{
		Application: r.application, Alias: alias, DeploymentGroupName: jsii.String(m.name),
		DeploymentConfig: awscodedeploy.LambdaDeploymentConfig_CANARY_10PERCENT_5MINUTES(),
		Role:             r.role.WithoutPolicyUpdates(nil), // it would get AWS's managed policy, which invokes any function
		Alarms:           &[]interfacesawscloudwatch.IAlarmRef{failing},
	})
	return alias
}
