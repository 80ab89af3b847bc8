package config

import (
	"strings"
	"testing"
)

const deployable = `kind: aws
env: prod
region: eu-west-1
id_hash_salt: {arn: "arn:aws:secretsmanager:eu-west-1:111122223333:secret:salt-AbCdEf"}
providers: {bedrock: {type: bedrock}}
models: {nova: {targets: [{name: us, provider: bedrock, model_id: us.amazon.nova-lite-v1:0}]}}
`

// G1: what doesn't fit together is told before a template is made of it.
func TestDeploy_Rules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, want string }{
		{"nothing said", "", ""},
		{"alarms by mail, with a budget", "deploy: {alarm_email: ops@example.com, monthly_budget_usd: 500}\n", ""},
		{"a VPC as it comes", "valkey: {network: vpc}\n", ""},
		{"a domain", "deploy: {domain_name: llm.example.com, certificate_arn: \"arn:aws:acm:eu-west-1:111122223333:certificate/12345678-1234-1234-1234-123456789012\"}\n", ""},
		{"mail and topic", "deploy: {alarm_email: ops@example.com, alarm_topic_arn: \"arn:aws:sns:eu-west-1:111122223333:ops\"}\n", "one of the two"},
		{"a budget that tells nobody", "deploy: {monthly_budget_usd: 500}\n", "needs alarm_email"},
		{"a domain without a certificate", "deploy: {domain_name: llm.example.com}\n", "go together"},
		{
			"a VPC, and a program outside of it", "valkey: {network: vpc}\nproducers: [{name: n, sender_id: AROANIGHTLY00001, role_arn: \"arn:aws:iam::111122223333:role/n\", tenant: t, program: true}]\n",
			"needs valkey.network: public",
		},
		{"one zone", "valkey: {network: vpc}\ndeploy: {zones: [eu-west-1a]}\n", "two or three"},
		{"a VPC without a way out", "valkey: {network: vpc}\ndeploy: {endpoints: false}\n", "nothing could reach SQS"},
		{"one zone, but no VPC", "deploy: {zones: [eu-west-1a]}\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("x", []byte(deployable+tt.file), nil)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
