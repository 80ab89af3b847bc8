package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// newLog makes a log group, which forgets after 30 days (SECURITY-DESIGN DP3). CloudWatch encrypts every log with a key of its
// own; deploy.log_key_arn gives another.
func newLog(scope constructs.Construct, id string, env Environment, name string) awslogs.LogGroup {
	props := &awslogs.LogGroupProps{
		LogGroupName:  jsii.String(name),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	}
	if key := env.Config.Deploy.LogKeyARN; key != "" {
		props.EncryptionKey = awskms.Key_FromKeyArn(scope, jsii.String(id+"Key"), jsii.String(key))
	}
	return awslogs.NewLogGroup(scope, jsii.String(id), props)
}
