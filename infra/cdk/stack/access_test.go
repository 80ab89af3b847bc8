package stack

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// statementsOf lists what the policies of a role say.
func statementsOf(tpl template, role string) []any {
	var all []any
	for _, p := range listOf(tpl.Resources[role].Properties["Policies"]) {
		all = append(all, listOf(at(p, "PolicyDocument", "Statement"))...)
	}
	policies := tpl.of("AWS::IAM::Policy")
	maps.Copy(policies, tpl.of("AWS::IAM::ManagedPolicy")) // what an inline policy has no room for
	for _, p := range policies {
		if slices.ContainsFunc(listOf(p.Properties["Roles"]), func(r any) bool { return target(r) == role }) {
			all = append(all, listOf(at(p.Properties, "PolicyDocument", "Statement"))...)
		}
	}
	return all
}

// kindOf is a resource as the table below names it.
func kindOf(tpl template, v any) string {
	if s, ok := v.(string); ok {
		if strings.HasPrefix(s, "arn:aws:secretsmanager:") {
			return "secret " + s[strings.LastIndex(s, ":")+1:]
		}
		return s
	}
	if id := target(v); id != "" {
		r := tpl.Resources[id]
		switch r.Type {
		case "AWS::SQS::Queue":
			return "queue " + r.Properties["QueueName"].(string)
		case "AWS::Logs::LogGroup":
			return "log " + r.Properties["LogGroupName"].(string)
		case "AWS::ElastiCache::User":
			return "user " + r.Properties["UserId"].(string)
		case "AWS::ElastiCache::ServerlessCache":
			return "cache"
		}
		return r.Type
	}
	if target(at(v, "Fn::Join", 1, 0)) != "" {
		return "bucket" + at(v, "Fn::Join", 1, 1).(string)
	}
	arn := resolved(v)
	for _, q := range tpl.of("AWS::SQS::Queue") {
		if name := q.Properties["QueueName"].(string); arn == "arn:aws:sqs:us-east-1:111122223333:"+name {
			return "queue " + name
		}
	}
	return arn
}

// SECURITY-DESIGN section 11, as far as this release goes: these actions on these
// resources, and nothing else.
func TestRoles_MayDoThisAndNothingElse(t *testing.T) {
	const profile = "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.amazon.nova-lite-v1:0"
	worker := func(lane, suffix string) []string {
		queues := []string{"queue llm-dev-mini" + suffix, "queue llm-dev-nova" + suffix}
		var w []string
		for _, q := range queues {
			for _, a := range []string{"ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes"} {
				w = append(w, "sqs:"+a+" "+q)
			}
			w = append(w, "sqs:SendMessage "+q+"-dlq")
		}
		return append(w,
			"logs:CreateLogStream log /aws/lambda/llmq-dev-worker-"+lane,
			"logs:PutLogEvents log /aws/lambda/llmq-dev-worker-"+lane,
			"elasticache:Connect cache", "elasticache:Connect user llmq-dev-worker",
			"s3:GetObject bucket/off/*", "s3:PutObject bucket/off/*", "s3:DeleteObject bucket/off/*", "s3:PutObject bucket/res/*",
			"s3:PutObject bucket/spill/*", "s3:GetObject bucket/spill/*", "s3:DeleteObject bucket/spill/*",
			"s3:GetObject bucket/keys/*",
			"secretsmanager:GetSecretValue secret llmq/dev/openai-GhIjKl",
			"bedrock:InvokeModel "+profile, "bedrock:InvokeModelWithResponseStream "+profile,
			"bedrock:InvokeModel arn:aws:bedrock:*::foundation-model/amazon.nova-lite-v1:0 if bedrock:InferenceProfileArn is "+profile,
			"bedrock:InvokeModelWithResponseStream arn:aws:bedrock:*::foundation-model/amazon.nova-lite-v1:0 if bedrock:InferenceProfileArn is "+profile,
		)
	}
	door := []string{
		"logs:CreateLogStream log /aws/lambda/llmq-dev-enqueue", "logs:PutLogEvents log /aws/lambda/llmq-dev-enqueue",
		"elasticache:Connect cache", "elasticache:Connect user llmq-dev-door",
		"s3:PutObject bucket/off/*", "s3:GetObject bucket/res/*",
		"secretsmanager:GetSecretValue secret llmq/dev/id-salt-MnOpQr",
		"s3:GetObject bucket/keys/*", "secretsmanager:GetSecretValue AWS::SecretsManager::Secret",
		// What it runs itself, of rt:
		"s3:PutObject bucket/res/*", "s3:PutObject bucket/spill/*", "s3:GetObject bucket/spill/*", "s3:DeleteObject bucket/spill/*",
		"secretsmanager:GetSecretValue secret llmq/dev/openai-GhIjKl",
		"bedrock:InvokeModel " + profile, "bedrock:InvokeModelWithResponseStream " + profile,
		"bedrock:InvokeModel arn:aws:bedrock:*::foundation-model/amazon.nova-lite-v1:0 if bedrock:InferenceProfileArn is " + profile,
		"bedrock:InvokeModelWithResponseStream arn:aws:bedrock:*::foundation-model/amazon.nova-lite-v1:0 if bedrock:InferenceProfileArn is " + profile,
	}
	operator := []string{
		"logs:CreateLogStream log /aws/lambda/llmq-dev-admin", "logs:PutLogEvents log /aws/lambda/llmq-dev-admin",
		"elasticache:Connect cache", "elasticache:Connect user llmq-dev-admin",
		"s3:GetObject bucket/keys/*", "s3:PutObject bucket/keys/*", "s3:ListBucket AWS::S3::Bucket", "s3:PutObject bucket/off/*",
		"s3:PutObject bucket/audit/* if it is new",
		"secretsmanager:GetSecretValue AWS::SecretsManager::Secret",
	}
	for _, q := range []string{"llm-dev-nova-rt", "llm-dev-nova", "llm-dev-nova-bulk", "llm-dev-mini-rt", "llm-dev-mini", "llm-dev-mini-bulk"} {
		door = append(door, "sqs:SendMessage queue "+q)
		operator = append(operator, "sqs:SendMessage queue "+q)
		for _, a := range []string{"GetQueueAttributes", "PurgeQueue"} {
			operator = append(operator, "sqs:"+a+" queue "+q, "sqs:"+a+" queue "+q+"-dlq")
		}
		for _, a := range []string{"ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"} {
			operator = append(operator, "sqs:"+a+" queue "+q+"-dlq")
		}
	}
	operator = append(operator, "lambda:ListEventSourceMappings *", "lambda:UpdateEventSourceMapping arn:aws:lambda:us-east-1:111122223333:event-source-mapping:*")
	want := map[string][]string{
		"llmq-dev-enqueue": door, "llmq-dev-admin": operator,
		"llmq-dev-worker-rt": worker("rt", "-rt"), "llmq-dev-worker-bg": worker("bg", ""), "llmq-dev-worker-bulk": worker("bulk", "-bulk"),
	}

	s, err := synthesised()
	if err != nil {
		t.Fatal(err)
	}
	tpl := s.templates["dev"]
	got := map[string][]string{}
	for _, f := range tpl.of("AWS::Lambda::Function") {
		name := f.Properties["FunctionName"].(string)
		for _, st := range statementsOf(tpl, target(f.Properties["Role"])) {
			if at(st, "Effect") != "Allow" {
				t.Errorf("%s has the statement %s", name, text(st))
			}
			when := ""
			if c := at(st, "Condition", "StringEquals", "bedrock:InferenceProfileArn"); c != nil {
				when = " if bedrock:InferenceProfileArn is " + resolved(c)
			}
			if at(st, "Condition", "Null", "s3:if-none-match") == "false" {
				when = " if it is new"
			}
			for _, action := range listOf(at(st, "Action")) {
				for _, r := range listOf(at(st, "Resource")) {
					got[name] = append(got[name], action.(string)+" "+kindOf(tpl, r)+when)
				}
			}
		}
	}
	for name := range want {
		slices.Sort(want[name])
		slices.Sort(got[name])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// A13, MS5: the workers alone may tell producers how their calls ended: on the queues that the file lists, and below the prefix of
// results. Where it lists none, nobody may send outside.
func TestReplies_GoToTheListedQueuesAndTheBucketAlone(t *testing.T) {
	want := map[string][]string{"dev": nil, "prod": {"arn:aws:sqs:us-east-1:111122223333:nightly-replies"}}
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for _, f := range tpl.of("AWS::Lambda::Function") {
			name := f.Properties["FunctionName"].(string)
			var outside, put []string
			for _, st := range statementsOf(tpl, target(f.Properties["Role"])) {
				for _, r := range listOf(at(st, "Resource")) {
					actions, kind := listOf(at(st, "Action")), kindOf(tpl, r)
					if slices.Contains(actions, any("sqs:SendMessage")) && !strings.HasPrefix(kind, "queue ") {
						outside = append(outside, kind)
						if len(actions) != 1 || at(st, "Condition") != nil {
							t.Errorf("%s tells producers by %s", name, text(st))
						}
					}
					if slices.Contains(actions, any("s3:PutObject")) {
						put = append(put, kind)
					}
				}
			}
			worker := strings.Contains(name, "-worker-")
			if tells := want[env.Config.Env]; worker && !slices.Equal(outside, tells) || !worker && outside != nil {
				t.Errorf("%s sends to %q, outside llmq's queues", name, outside)
			}
			slices.Sort(put)
			if worker && !slices.Equal(put, []string{"bucket/off/*", "bucket/res/*", "bucket/spill/*"}) {
				t.Errorf("%s puts to %q", name, put)
			}
		}
	})
}

// Every wildcard has its reason here.
func TestPolicies_NameWhatTheyAllow(t *testing.T) {
	reasons := map[string]string{
		"/off/*":        "bodies of requests: their names are made at run time",
		"/in/nightly/*": "a producer's bodies: it names them",
		"/res/*":        "bodies of results: likewise",
		"/spill/*":      "replies that were not stored: likewise",
		"/keys/*":       "records of keys: likewise",
		"/off/" + llmq.TenantHash("acme-reports") + "/*": "a program's bodies: likewise",
		"/res/" + llmq.TenantHash("acme-reports") + "/*": "results of a producer's calls: likewise",
		"/audit/*": "records of operators' verbs: likewise",
		"arn:aws:bedrock:*::foundation-model/amazon.nova-lite-v1:0": "Bedrock chooses the region; the profile is a condition",
		"*":                              "API Gateway names its execution logs itself, for all APIs of the account; IAM lets no resource be named for listing event sources",
		":alarm:llmq-prod-new-version-*": "those of the functions that are rolled out bit by bit",
		":event-source-mapping:*":        "their ids are CloudFormation's; the workers they belong to are a condition",
	}
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		gateway := ""
		for _, a := range tpl.of("AWS::ApiGateway::Account") {
			gateway = target(a.Properties["CloudWatchRoleArn"])
		}
		statements := map[string][]any{}
		for id := range tpl.of("AWS::IAM::Role") {
			statements[id] = statementsOf(tpl, id)
		}
		for id, p := range tpl.of("AWS::IAM::ManagedPolicy") {
			statements[id] = listOf(at(p.Properties, "PolicyDocument", "Statement"))
		}
		for id, all := range statements {
			for _, st := range all {
				for _, action := range listOf(at(st, "Action")) {
					if strings.Contains(action.(string), "*") {
						t.Errorf("%s allows %v", id, action)
					}
				}
				for _, r := range listOf(at(st, "Resource")) {
					wild := ""
					for _, part := range append(listOf(at(r, "Fn::Join", 1)), r) {
						if s, ok := part.(string); ok && strings.Contains(s, "*") {
							wild = s
						}
					}
					lists := at(st, "Action") == "lambda:ListEventSourceMappings"
					if wild != "" && (reasons[wild] == "" || wild == "*" && id != gateway && !lists) {
						t.Errorf("%s allows %s on %s without a reason", id, text(at(st, "Action")), text(r))
					}
				}
			}
		}
	})
}

// A producer's rights are a policy that its team attaches to a role of theirs: no role of ours has it.
func TestProducers_HaveAPolicyEach(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		got, want := map[string][]string{}, map[string][]string{}
		for _, p := range tpl.of("AWS::IAM::ManagedPolicy") {
			var may []string
			for _, st := range listOf(at(p.Properties, "PolicyDocument", "Statement")) {
				may = append(may, at(st, "Sid").(string))
			}
			got[p.Properties["ManagedPolicyName"].(string)] = may
			if p.Properties["Roles"] != nil || p.Properties["Users"] != nil || p.Properties["Groups"] != nil {
				t.Errorf("%v is attached", p.Properties["ManagedPolicyName"])
			}
		}
		if env.production() { // nightly is a program; dev has no producer
			want["llmq-prod-producer-nightly"] = []string{"PutLargeBodies", "GetItsResults", "PutItsRequests", "ReadSalt", "SignInToCache", "SendCalls"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("policies of producers (-want +got):\n%s", diff)
		}
	})
}

func TestRoles_HaveNoManagedPoliciesAndOneService(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for id, r := range tpl.of("AWS::IAM::Role") {
			if p := r.Properties["ManagedPolicyArns"]; p != nil {
				t.Errorf("%s has %s", id, text(p))
			}
			trusts := listOf(at(r.Properties, "AssumeRolePolicyDocument", "Statement"))
			service := at(trusts, 0, "Principal", "Service")
			if len(trusts) != 1 || !slices.Contains([]any{"lambda.amazonaws.com", "apigateway.amazonaws.com", "scheduler.amazonaws.com", "codedeploy.amazonaws.com"}, service) {
				t.Errorf("%s is assumed by %s", id, text(trusts))
			}
		}
	})
}

func TestBedrockAccess_NamesTheModel(t *testing.T) {
	here := place{partition: "aws", region: "eu-west-1", account: "111122223333"}
	for _, tc := range []struct {
		name, id string
		want     access
	}{
		{"foundation model", "amazon.titan-embed-text-v2:0", access{resource: "arn:aws:bedrock:eu-west-1::foundation-model/amazon.titan-embed-text-v2:0"}},
		{"vendor with two letters", "ai21.jamba-1-5-mini-v1:0", access{resource: "arn:aws:bedrock:eu-west-1::foundation-model/ai21.jamba-1-5-mini-v1:0"}},
		{"profile", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", access{
			resource: "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
			through:  "arn:aws:bedrock:*::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0",
		}},
		{"global profile", "global.amazon.nova-2-lite-v1:0", access{
			resource: "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/global.amazon.nova-2-lite-v1:0",
			through:  "arn:aws:bedrock:*::foundation-model/amazon.nova-2-lite-v1:0",
		}},
		{"government profile", "us-gov.amazon.nova-pro-v1:0", access{
			resource: "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/us-gov.amazon.nova-pro-v1:0",
			through:  "arn:aws:bedrock:*::foundation-model/amazon.nova-pro-v1:0",
		}},
		{"ARN of a profile", "arn:aws-cn:bedrock:cn-north-1:444455556666:inference-profile/apac.amazon.nova-lite-v1:0", access{
			resource: "arn:aws-cn:bedrock:cn-north-1:444455556666:inference-profile/apac.amazon.nova-lite-v1:0",
			through:  "arn:aws-cn:bedrock:*::foundation-model/amazon.nova-lite-v1:0",
		}},
		{"ARN of an application profile", "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/a1b2c3", access{
			resource: "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/a1b2c3",
			through:  "arn:aws:bedrock:*::foundation-model/*",
		}},
		{"ARN of a provisioned model", "arn:aws:bedrock:us-east-1:111122223333:provisioned-model/a1b2c3", access{
			resource: "arn:aws:bedrock:us-east-1:111122223333:provisioned-model/a1b2c3",
		}},
		{"ARN that is cut short", "arn:aws:bedrock", access{resource: "arn:aws:bedrock"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, bedrockAccess(tc.id, here), cmp.AllowUnexported(access{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
