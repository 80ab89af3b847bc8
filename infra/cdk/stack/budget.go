package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbudgets"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// newBudget tells operators what the account spends, once 80 % are spent and once the month is forecast to pass the budget. It
// watches the whole account: what Bedrock and providers charge carries no stack's tag.
func newBudget(scope constructs.Construct, env Environment) {
	d := env.Config.Deploy
	if d.MonthlyBudgetUSD == 0 {
		return
	}
	tell := func(kind string, percent float64) any {
		return &awsbudgets.CfnBudget_NotificationWithSubscribersProperty{
			Notification: &awsbudgets.CfnBudget_NotificationProperty{
				NotificationType: jsii.String(kind), ComparisonOperator: jsii.String("GREATER_THAN"), Threshold: jsii.Number(percent), ThresholdType: jsii.String("PERCENTAGE"),
			},
			Subscribers: &[]any{&awsbudgets.CfnBudget_SubscriberProperty{SubscriptionType: jsii.String("EMAIL"), Address: jsii.String(d.AlarmEmail)}},
		}
	}
	awsbudgets.NewCfnBudget(scope, jsii.String("Budget"), &awsbudgets.CfnBudgetProps{
		Budget: &awsbudgets.CfnBudget_BudgetDataProperty{
			BudgetName: jsii.String(env.name()), BudgetType: jsii.String("COST"), TimeUnit: jsii.String("MONTHLY"),
			BudgetLimit: &awsbudgets.CfnBudget_SpendProperty{Amount: jsii.Number(float64(d.MonthlyBudgetUSD)), Unit: jsii.String("USD")},
		},
		NotificationsWithSubscribers: &[]any{tell("ACTUAL", 80), tell("FORECASTED", 100)},
	})
}
