package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awswafv2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// underName has the callers' API answer under the deployment's own name alone.
func underName(scope constructs.Construct, env Environment, props *awsapigateway.RestApiProps) {
	d := env.Config.Deploy
	if d.DomainName == "" {
		return
	}
	props.DisableExecuteApiEndpoint = jsii.Bool(true) // else it could be gone round
	props.DomainName = &awsapigateway.DomainNameOptions{
		DomainName:     jsii.String(d.DomainName),
		Certificate:    awscertificatemanager.Certificate_FromCertificateArn(scope, jsii.String("Certificate"), jsii.String(d.CertificateARN)),
		EndpointType:   awsapigateway.EndpointType_REGIONAL,
		SecurityPolicy: awsapigateway.SecurityPolicy_TLS_1_2,
	}
}

// baseURL is where callers reach the API.
func baseURL(env Environment, api awsapigateway.RestApi, path string) *string {
	if name := env.Config.Deploy.DomainName; name != "" {
		return jsii.String("https://" + name + path)
	}
	return api.UrlForPath(jsii.String(path))
}

// newFirewall puts a web ACL before the callers' API, where one is asked for (SECURITY-DESIGN DW6). It counts addresses and knows bad ones; it
// reads no body, of which it would see the first 16 KB and take honest prompts for attacks.
func newFirewall(scope constructs.Construct, env Environment, api awsapigateway.RestApi) {
	limit := env.Config.Deploy.WAFRequests
	if limit == 0 {
		return
	}
	seen := func(name string) *awswafv2.CfnWebACL_VisibilityConfigProperty {
		return &awswafv2.CfnWebACL_VisibilityConfigProperty{CloudWatchMetricsEnabled: true, SampledRequestsEnabled: false, MetricName: jsii.String(name)}
	}
	acl := awswafv2.NewCfnWebACL(scope, jsii.String("Firewall"), &awswafv2.CfnWebACLProps{
		Name: jsii.String(env.name()), Scope: jsii.String("REGIONAL"), VisibilityConfig: seen(env.name()),
		DefaultAction: &awswafv2.CfnWebACL_DefaultActionProperty{Allow: &awswafv2.CfnWebACL_AllowActionProperty{}},
		Rules: &[]any{
			&awswafv2.CfnWebACL_RuleProperty{
				Name: jsii.String("bad-addresses"), Priority: jsii.Number(0), VisibilityConfig: seen("bad-addresses"),
				OverrideAction: &awswafv2.CfnWebACL_OverrideActionProperty{None: map[string]any{}},
				Statement: &awswafv2.CfnWebACL_StatementProperty{ManagedRuleGroupStatement: &awswafv2.CfnWebACL_ManagedRuleGroupStatementProperty{
					VendorName: jsii.String("AWS"), Name: jsii.String("AWSManagedRulesAmazonIpReputationList"),
				}},
			},
			&awswafv2.CfnWebACL_RuleProperty{
				Name: jsii.String("too-many"), Priority: jsii.Number(1), VisibilityConfig: seen("too-many"),
				Action: &awswafv2.CfnWebACL_RuleActionProperty{Block: &awswafv2.CfnWebACL_BlockActionProperty{}},
				Statement: &awswafv2.CfnWebACL_StatementProperty{RateBasedStatement: &awswafv2.CfnWebACL_RateBasedStatementProperty{
					AggregateKeyType: jsii.String("IP"), Limit: jsii.Number(float64(limit)), EvaluationWindowSec: jsii.Number(300),
				}},
			},
		},
	})
	awswafv2.NewCfnWebACLAssociation(scope, jsii.String("FirewallBefore"), &awswafv2.CfnWebACLAssociationProps{
		ResourceArn: api.DeploymentStage().StageArn(), WebAclArn: acl.AttrArn(),
	})
}
