package stack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// with synthesises an environment whose file has more settings, and without some text.
func with(t *testing.T, name, more string, without ...string) (Environment, template) {
	t.Helper()
	source, err := os.ReadFile(environmentFile(name))
	if err != nil {
		t.Fatal(err)
	}
	changed := string(source)
	for i := 0; i < len(without); i += 2 {
		if !strings.Contains(changed, without[i]) {
			t.Fatalf("%s.yaml has no %q", name, without[i])
		}
		changed = strings.Replace(changed, without[i], without[i+1], 1)
	}
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(changed+more), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := synthesise(nil, file)
	if err != nil {
		t.Fatal(err)
	}
	return s.environments[name], s.templates[name]
}

// valkey.network: vpc, one setting: the store is in the VPC, all functions are, and nothing else reaches it. No zone is looked
// up, so that no credentials are needed.
func TestVPC_HoldsTheStoreAndTheFunctions(t *testing.T) {
	_, tpl := with(t, "prod", "valkey: {network: vpc}\ndeploy: {nat: one, zones: [us-east-1a, us-east-1c]}\n",
		"program: true", "program: false") // which reaches the store from outside
	for id, c := range tpl.of("AWS::ElastiCache::ServerlessCache") {
		if c.Properties["ConnectionType"] != nil || len(listOf(c.Properties["SubnetIds"])) != 2 || len(listOf(c.Properties["SecurityGroupIds"])) != 1 {
			t.Errorf("%s: %s", id, text(c.Properties))
		}
	}
	for id, f := range tpl.of("AWS::Lambda::Function") {
		if len(listOf(at(f.Properties, "VpcConfig", "SubnetIds"))) != 2 {
			t.Errorf("%s is in %s", id, text(f.Properties["VpcConfig"]))
		}
	}
	counts := []int{len(tpl.of("AWS::EC2::NatGateway")), len(tpl.of("AWS::EC2::VPCEndpoint")), len(tpl.of("AWS::EC2::FlowLog")), len(tpl.of("AWS::Lambda::Function"))}
	if diff := cmp.Diff([]int{1, 5, 1, 6}, counts); diff != "" {
		t.Errorf("NAT gateways, endpoints, flow logs, functions: %s", diff)
	}
	var zones []string
	for _, s := range tpl.of("AWS::EC2::Subnet") {
		zones = append(zones, s.Properties["AvailabilityZone"].(string))
	}
	slices.Sort(zones)
	if diff := cmp.Diff([]string{"us-east-1a", "us-east-1a", "us-east-1c", "us-east-1c"}, zones); diff != "" {
		t.Errorf("subnets in %s", diff)
	}
	for id, in := range tpl.of("AWS::EC2::SecurityGroupIngress") {
		if in.Properties["CidrIp"] != nil {
			t.Errorf("%s lets in %s", id, text(in.Properties))
		}
	}
	for id, e := range tpl.of("AWS::EC2::VPCEndpoint") {
		if at(e.Properties, "PolicyDocument", "Statement", 0, "Condition", "StringEquals", "aws:PrincipalAccount") == nil {
			t.Errorf("%s serves every account: %s", id, text(e.Properties["PolicyDocument"]))
		}
	}
}

func TestVPC_WithoutNATHasNoWayOut(t *testing.T) {
	_, tpl := with(t, "dev", "valkey: {network: vpc}\n",
		"  openai:\n    type: openai\n    base_url: https://api.openai.com/v1\n    api_key: {arn: \"arn:aws:secretsmanager:us-east-1:111122223333:secret:llmq/dev/openai-GhIjKl\"}\n", "",
		"provider: openai\n        model_id: gpt-5-mini", "provider: bedrock\n        model_id: us.amazon.nova-micro-v1:0")
	if n := len(tpl.of("AWS::EC2::NatGateway")) + len(tpl.of("AWS::EC2::InternetGateway")); n > 0 {
		t.Errorf("%d ways out", n)
	}
}

// Domain, web ACL, mail and budget are there where they are asked for.
func TestOptions_AreMadeWhereTheyAreAskedFor(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for _, kind := range []string{"AWS::ApiGateway::DomainName", "AWS::WAFv2::WebACL", "AWS::SNS::Topic", "AWS::Budgets::Budget", "AWS::EC2::VPC"} {
			if len(tpl.of(kind)) > 0 {
				t.Errorf("%s, which nobody asked for", kind)
			}
		}
	})
	env, tpl := with(t, "dev", `deploy:
  alarm_email: ops@example.com
  monthly_budget_usd: 500
  domain_name: llm.example.com
  certificate_arn: arn:aws:acm:us-east-1:111122223333:certificate/12345678-1234-1234-1234-123456789012
  waf_requests: 2000
  operator_arns: [arn:aws:iam::111122223333:role/operators]
  log_key_arn: arn:aws:kms:us-east-1:111122223333:key/12345678-1234-1234-1234-123456789012
`)
	for _, a := range tpl.of("AWS::ApiGateway::RestApi") {
		if closed := a.Properties["DisableExecuteApiEndpoint"] == true; closed != (a.Properties["Name"] == env.name()) {
			t.Errorf("API %v: its own endpoint is closed: %t", a.Properties["Name"], closed)
		}
	}
	for _, a := range tpl.of("AWS::ApiGateway::RestApi") {
		denied := at(a.Properties, "Policy", "Statement", 0)
		if a.Properties["Name"] == env.name() {
			if denied != nil {
				t.Errorf("callers are denied by %s", text(denied))
			}
			continue
		}
		if at(denied, "Effect") != "Deny" || text(at(denied, "Condition")) != `{"ArnNotEquals":{"aws:PrincipalArn":["arn:aws:iam::111122223333:role/operators"]}}` {
			t.Errorf("operators: %s", text(a.Properties["Policy"]))
		}
	}
	if got := at(tpl.Outputs, "OpenAIBaseURL", "Value"); got != "https://llm.example.com/v1" {
		t.Errorf("callers' base URL: %v", got)
	}
	for _, d := range tpl.of("AWS::ApiGateway::DomainName") {
		if d.Properties["SecurityPolicy"] != "TLS_1_2" || at(tpl.Outputs, "DomainTarget", "Value") == nil {
			t.Errorf("domain: %s", text(d.Properties))
		}
	}
	for id, a := range tpl.of("AWS::CloudWatch::Alarm") {
		if len(listOf(a.Properties["AlarmActions"])) != 1 {
			t.Errorf("%s tells %s", id, text(a.Properties["AlarmActions"]))
		}
	}
	for id, g := range tpl.of("AWS::Logs::LogGroup") {
		if g.Properties["KmsKeyId"] == nil {
			t.Errorf("%s has CloudWatch's key", id)
		}
	}
	got := []int{len(tpl.of("AWS::WAFv2::WebACL")), len(tpl.of("AWS::WAFv2::WebACLAssociation")), len(tpl.of("AWS::SNS::Topic")), len(tpl.of("AWS::Budgets::Budget"))}
	if diff := cmp.Diff([]int{1, 1, 1, 1}, got); diff != "" {
		t.Errorf("web ACL, its association, topic, budget: %s", diff)
	}
	for _, w := range tpl.of("AWS::WAFv2::WebACL") {
		if at(w.Properties, "Rules", 1, "Statement", "RateBasedStatement", "Limit") != 2000.0 {
			t.Errorf("web ACL: %s", text(w.Properties["Rules"]))
		}
	}
}
