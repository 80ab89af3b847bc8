package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// aCloud is what the doctor asks of AWS, and its answers; a path that is not listed answers as a missing right does.
func aCloud(t *testing.T, answers map[string]string) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		scope := strings.Split(req.Header.Get("Authorization"), "/")
		if len(scope) < 4 || !strings.HasPrefix(scope[0], "AWS4-HMAC-SHA256 Credential=AKIDTEST") {
			t.Errorf("%s is not signed: %q", req.URL, req.Header.Get("Authorization"))
			return
		}
		what := scope[3] + " " + req.URL.EscapedPath() // the service that it is signed for
		if target := req.Header.Get("X-Amz-Target"); target != "" {
			what = scope[3] + " " + target
		}
		if id := secretID(body); id != "" {
			what += " " + id
		}
		if form, err := url.ParseQuery(string(body)); err == nil && form.Get("Action") != "" {
			what = scope[3] + " " + form.Get("Action") + " " + form.Get("PolicySourceArn")
			if form.Get("ResourceArns.member.2") != "arn:aws:sqs:eu-central-1:111122223333:llm-chat-a-rt" {
				t.Errorf("asked about %s", form)
			}
		}
		answer, known := answers[what]
		if !known {
			w.WriteHeader(http.StatusForbidden)
			answer = `{"message":"not authorized: ` + what + `"}`
		}
		if status, text, found := strings.Cut(answer, "!"); found && len(status) == 3 {
			answer = text
			w.WriteHeader(map[string]int{"400": 400, "404": 404}[status])
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	var env []string
	for _, service := range []string{"BEDROCK", "SERVICE_QUOTAS", "LAMBDA", "IAM", "SECRETS_MANAGER"} {
		env = append(env, "AWS_ENDPOINT_URL_"+service+"="+server.URL)
	}
	return env
}

func secretID(body []byte) string {
	var in struct {
		SecretID string `json:"SecretId"`
	}
	if json.Unmarshal(body, &in) != nil {
		return ""
	}
	return in.SecretID
}

// deployed is an admin API whose doctor found nothing wrong, and a door that is well.
func deployed(t *testing.T, d admin.Deployment) (admins, door string) {
	t.Helper()
	told, err := json.Marshal(admin.Diagnosis{Findings: []admin.Finding{{Check: "state store", Verdict: admin.OK}}, Deployment: d})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/health" {
			fmt.Fprint(w, `{"status":"ok"}`)
			return
		}
		w.Write(told) //nolint:errcheck // the test's own client
	}))
	t.Cleanup(server.Close)
	return server.URL, server.URL
}

// G1, E5: what only an identity of the account may see: each fault with its next step, what may not be read told as that, and the exit
// code of what failed. The answers are in the form that AWS's models of the services give; no account was asked.
func TestDoctor_OnAWS(t *testing.T) { //nolint:paralleltest // the SDK reads the process's environment
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	const secret = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:llmq/"
	granted := `{"agreementAvailability":{"status":"AVAILABLE"},"authorizationStatus":"AUTHORIZED","entitlementAvailability":"AVAILABLE","regionAvailability":"AVAILABLE"}`
	admins, door := deployed(t, admin.Deployment{
		Kind: "aws", Region: "eu-central-1", Account: "111122223333", Concurrency: 12, Queues: []queue.Name{"llm-chat-a", "llm-chat-a-rt"},
		Bedrock: []admin.BedrockTarget{
			{Target: "nova@eu", ModelID: "eu.amazon.nova-lite-v1:0", Region: "eu-central-1"},
			{Target: "claude@main", ModelID: "anthropic.claude-3-5-sonnet-20240620-v1:0", Region: "eu-central-1"},
			{Target: "gone@main", ModelID: "vendor.gone-v1:0", Region: "eu-central-1"},
			{Target: "own@main", ModelID: "arn:aws:bedrock:eu-central-1:111122223333:application-inference-profile/abc", Region: "eu-central-1"},
		},
		Secrets:   []admin.SecretRef{{Setting: "good", ARN: secret + "good"}, {Setting: "none", ARN: secret + "none"}, {Setting: "empty", ARN: secret + "empty"}, {Setting: "hidden", ARN: secret + "hidden"}},
		Producers: []admin.DoctorProducer{{Name: "nightly", RoleARN: "arn:aws:iam::111122223333:role/nightly"}, {Name: "mute", RoleARN: "arn:aws:iam::111122223333:role/mute"}},
	})
	env := append(aCloud(t, map[string]string{
		"lambda /2016-08-19/account-settings/":                                             `{"AccountLimit":{"ConcurrentExecutions":10,"UnreservedConcurrentExecutions":10}}`,
		"bedrock /foundation-model-availability/amazon.nova-lite-v1:0":                     granted,
		"bedrock /foundation-model-availability/anthropic.claude-3-5-sonnet-20240620-v1:0": strings.Replace(granted, `"AUTHORIZED"`, `"NOT_AUTHORIZED"`, 1),
		"bedrock /foundation-model-availability/vendor.gone-v1:0":                          `404!{"message":"no such model"}`,
		"servicequotas ServiceQuotasV20190624.ListServiceQuotas": `{"Quotas":[
			{"QuotaName":"Cross-region model inference requests per minute for Amazon Nova Lite","QuotaCode":"L-1","Value":0},
			{"QuotaName":"On-demand model inference requests per minute for Amazon Nova Lite","QuotaCode":"L-2","Value":100},
			{"QuotaName":"On-demand model inference tokens per minute for Anthropic Claude 3 Sonnet","QuotaCode":"L-3","Value":0},
			{"QuotaName":"On-demand model inference tokens per minute for Anthropic Claude 3.5 Sonnet","QuotaCode":"L-4","Value":4000}]}`,
		"secretsmanager secretsmanager.DescribeSecret " + secret + "good":  `{"VersionIdsToStages":{"v":["AWSCURRENT"]}}`,
		"secretsmanager secretsmanager.DescribeSecret " + secret + "none":  `400!{"__type":"ResourceNotFoundException","message":"Secrets Manager can't find the specified secret."}`,
		"secretsmanager secretsmanager.DescribeSecret " + secret + "empty": `{}`,
		"iam SimulatePrincipalPolicy arn:aws:iam::111122223333:role/nightly": `<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>
			<member><EvalResourceName>a</EvalResourceName><EvalDecision>allowed</EvalDecision></member><member><EvalResourceName>b</EvalResourceName><EvalDecision>implicitDeny</EvalDecision></member>
			</EvaluationResults></SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>`,
		"iam SimulatePrincipalPolicy arn:aws:iam::111122223333:role/mute": `<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>
			<member><EvalDecision>explicitDeny</EvalDecision></member></EvaluationResults></SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>`,
	}), "LLMQ_ADMIN_KEY="+testKey)
	got := invoke(t, at{env: env}, "doctor", "--admin-url", admins, "--url", door)
	if got.code != exitFailed || !strings.Contains(got.err, "checks that failed: 6 of 16") {
		t.Errorf("code %d: %s", got.code, got.err)
	}
	var all findings
	if err := json.Unmarshal([]byte(got.out), &all); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	for _, want := range []struct {
		check, subject string
		verdict        admin.Verdict
		text           string // of what was found and what to do
	}{
		{"door", door[len("http://"):], admin.OK, "answers"},
		{"concurrency", "eu-central-1", admin.Warn, "10 invocations at once, the event sources together 12"},
		{"model access", "nova@eu", admin.OK, "granted"},
		{"model access", "claude@main", admin.Fail, "NOT_AUTHORIZED"},
		{"model access", "gone@main", admin.Fail, "has no model vendor.gone-v1:0"},
		{"model access", "own@main", admin.Skipped, "does not tell"},
		{"model quota", "nova@eu", admin.Fail, "throttled for ever: Cross-region model inference requests per minute for Amazon Nova Lite (L-1)"},
		{"model quota", "claude@main", admin.OK, "Claude 3.5 Sonnet: 4000"},
		{"model quota", "gone@main", admin.Skipped, "no quota"},
		{"secret", "good", admin.OK, ""},
		{"secret", "none", admin.Fail, "no such secret"},
		{"secret", "empty", admin.Fail, "no value"},
		{"secret", "hidden", admin.Skipped, "your identity needs secretsmanager:DescribeSecret"},
		{"producer", "nightly", admin.OK, "1 of 2 queues"},
		{"producer", "mute", admin.Fail, "and denies it"},
	} {
		found := false
		for _, f := range all.Findings {
			if f.Check == want.check && f.Subject == want.subject {
				found = true
				if f.Verdict != want.verdict || !strings.Contains(f.Detail+" "+f.Next, want.text) {
					t.Errorf("found %+v, want %+v", f, want)
				}
			}
		}
		if !found {
			t.Errorf("nothing was found of %s %s", want.check, want.subject)
		}
	}
}

func TestModelOf_ReadsIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"amazon.nova-lite-v1:0":    "amazon.nova-lite-v1:0 false",
		"us.amazon.nova-lite-v1:0": "amazon.nova-lite-v1:0 true",
		"arn:aws:bedrock:eu-central-1::foundation-model/amazon.titan-embed-text-v2:0":                      "amazon.titan-embed-text-v2:0 false",
		"arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.vendor.model-v1:0":                 "vendor.model-v1:0 true",
		"arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abcdef":                   " false",
		"arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abcdef":                                  " false",
		"arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-x-20250101-v1:0": "anthropic.claude-x-20250101-v1:0 true",
	} {
		if model, cross := modelOf(id); fmt.Sprint(model, " ", cross) != want {
			t.Errorf("%s: %q %v, want %s", id, model, cross, want)
		}
	}
}

func TestNames_TellsModelsApart(t *testing.T) {
	t.Parallel()
	const q = "on-demand model inference tokens per minute for "
	for _, tt := range []struct {
		quota, model string
		want         bool
	}{
		{q + "amazon nova lite", "amazon.nova-lite-v1:0", true},
		{q + "amazon nova pro", "amazon.nova-lite-v1:0", false},
		{q + "anthropic claude 3.5 sonnet", "anthropic.claude-3-5-sonnet-20240620-v1:0", true},
		{q + "anthropic claude 3 sonnet", "anthropic.claude-3-5-sonnet-20240620-v1:0", false},
		{q + "anthropic claude 3.5 sonnet", "anthropic.claude-3-sonnet-20240229-v1:0", false},
		{q + "anthropic claude sonnet 4 v1", "anthropic.claude-sonnet-4-20250514-v1:0", true},
		{q + "amazon titan text embeddings v2", "amazon.titan-embed-text-v2:0", false}, // its name has other words: it is told as unknown
	} {
		if got := names(tt.quota, tt.model); got != tt.want {
			t.Errorf("%q of %s: %v", tt.quota, tt.model, got)
		}
	}
}
