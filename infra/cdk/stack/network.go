package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// network is the VPC of an environment with valkey.network: vpc; with public there is none, and its fields are nil.
type network struct {
	vpc              awsec2.Vpc
	subnets          *awsec2.SubnetSelection
	functions, cache awsec2.SecurityGroup
}

// newNetwork makes a VPC for those who may not use an endpoint of Valkey that is open to the internet, though only to IAM.
//
// What it costs a month, in us-east-1: an interface endpoint $7.30 in each zone, so that the four of two zones are $58.40; a NAT
// gateway $32.85, and $0.045 a GB. `make cost` has the sum.
func newNetwork(s awscdk.Stack, env Environment) network {
	if env.Config.Valkey.Network != "vpc" {
		return network{}
	}
	scope := constructs.NewConstruct(s, jsii.String("Network"))
	zones := env.zones()
	inside, nats := awsec2.SubnetType_PRIVATE_ISOLATED, 0
	subnets := []*awsec2.SubnetConfiguration{}
	switch env.Config.Deploy.NAT {
	case config.NATOne:
		nats = 1
	case config.NATEach:
		nats = len(zones)
	}
	if nats > 0 {
		inside = awsec2.SubnetType_PRIVATE_WITH_EGRESS
		subnets = append(subnets, &awsec2.SubnetConfiguration{Name: jsii.String("outside"), SubnetType: awsec2.SubnetType_PUBLIC, CidrMask: jsii.Number(28), MapPublicIpOnLaunch: jsii.Bool(false)})
	}
	// Functions take an address for each environment that runs at once and then share: a /22 has a thousand.
	subnets = append(subnets, &awsec2.SubnetConfiguration{Name: jsii.String("inside"), SubnetType: inside, CidrMask: jsii.Number(22)})
	n := network{subnets: &awsec2.SubnetSelection{SubnetType: inside}}
	n.vpc = awsec2.NewVpc(scope, jsii.String("VPC"), &awsec2.VpcProps{
		VpcName: jsii.String(env.name()), AvailabilityZones: jsii.Strings(zones...), NatGateways: jsii.Number(float64(nats)), SubnetConfiguration: &subnets,
		// It would bring a function of its own with rights on security groups. Nothing here uses the default one.
		RestrictDefaultSecurityGroup: jsii.Bool(false),
	})
	n.vpc.AddFlowLog(jsii.String("Refused"), &awsec2.FlowLogOptions{
		TrafficType: awsec2.FlowLogTrafficType_REJECT,
		Destination: awsec2.FlowLogDestination_ToCloudWatchLogs(newLog(scope, "Refusals", env, "/llmq/"+env.name()+"/network"), nil),
	})
	n.functions = newGroup(scope, "Functions", n.vpc, "functions of "+env.name())
	n.cache = newGroup(scope, "Cache", n.vpc, "state store of "+env.name())
	n.functions.AddEgressRule(awsec2.Peer_AnyIpv4(), awsec2.Port_Tcp(jsii.Number(443)), jsii.String("AWS and providers"), nil)
	ports := awsec2.Port_TcpRange(jsii.Number(6379), jsii.Number(6380)) // 6380 is for reads
	n.functions.AddEgressRule(n.cache, ports, jsii.String("state store"), nil)
	n.cache.AddIngressRule(n.functions, ports, jsii.String("functions"), nil)
	n.addEndpoints(scope, env)
	return n
}

// addEndpoints lets functions reach AWS without leaving the VPC: the one for S3 is free, the others are not.
func (n network) addEndpoints(scope constructs.Construct, env Environment) {
	account := awscdk.Stack_Of(scope).Account()
	only := func(conditions map[string]any) awsiam.PolicyStatement {
		conditions["aws:PrincipalAccount"] = account
		return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Principals: &[]awsiam.IPrincipal{awsiam.NewAnyPrincipal()}, Actions: jsii.Strings("*"), Resources: jsii.Strings("*"),
			Conditions: &map[string]any{"StringEquals": conditions},
		})
	}
	ours := func() awsiam.PolicyStatement { return only(map[string]any{"aws:ResourceAccount": account}) }
	n.vpc.AddGatewayEndpoint(jsii.String("S3"), &awsec2.GatewayVpcEndpointOptions{Service: awsec2.GatewayVpcEndpointAwsService_S3()}).AddToPolicy(ours())
	if !env.Config.Deploy.Endpoints {
		return
	}
	group := newGroup(scope, "Endpoints", n.vpc, "endpoints of "+env.name())
	group.AddIngressRule(n.functions, awsec2.Port_Tcp(jsii.Number(443)), jsii.String("functions"), nil)
	for _, e := range []struct {
		name    string
		service awsec2.IInterfaceVpcEndpointService
		policy  awsiam.PolicyStatement
	}{
		{"SQS", awsec2.InterfaceVpcEndpointAwsService_SQS(), ours()},
		{"Secrets", awsec2.InterfaceVpcEndpointAwsService_SECRETS_MANAGER(), ours()},
		{"Lambda", awsec2.InterfaceVpcEndpointAwsService_LAMBDA(), ours()},                           // event sources: governor, admin
		{"Bedrock", awsec2.InterfaceVpcEndpointAwsService_BEDROCK_RUNTIME(), only(map[string]any{})}, // foundation models are no account's
	} {
		n.vpc.AddInterfaceEndpoint(jsii.String(e.name), &awsec2.InterfaceVpcEndpointOptions{
			Service: e.service, Subnets: n.subnets, SecurityGroups: &[]awsec2.ISecurityGroup{group}, Open: jsii.Bool(false), PrivateDnsEnabled: jsii.Bool(true),
		}).AddToPolicy(e.policy)
	}
}

// newGroup is a security group that lets nothing in and nothing out by itself.
func newGroup(scope constructs.Construct, id string, vpc awsec2.Vpc, about string) awsec2.SecurityGroup {
	return awsec2.NewSecurityGroup(scope, jsii.String(id), &awsec2.SecurityGroupProps{Vpc: vpc, Description: jsii.String(about), AllowAllOutbound: jsii.Bool(false)})
}

// grant lets a member be in the network.
func (n network) grant(m member) {
	if n.vpc == nil {
		return
	}
	// Lambda makes network interfaces with the function's role, and IAM lets it name none before they are there.
	m.allow("UseNetwork", []string{
		"ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:DeleteNetworkInterface",
		"ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
	}, jsii.String("*"))
}

// subnetIDs are those of the state store and of the functions.
func (n network) subnetIDs() *[]any {
	var ids []any
	for _, id := range *n.vpc.SelectSubnets(n.subnets).SubnetIds {
		ids = append(ids, *id)
	}
	return &ids
}

// zones are the VPC's.
func (e Environment) zones() []string {
	if z := e.Config.Deploy.Zones; len(z) > 0 {
		return z
	}
	return []string{e.Config.Region + "a", e.Config.Region + "b"}
}

// leaves reports a provider that a VPC without NAT can't reach; "" is none.
func (e Environment) leaves() string {
	for _, p := range e.Config.Providers {
		if p.Type != config.ProviderBedrock || p.Region != e.Config.Region {
			return p.Name
		}
	}
	return ""
}
