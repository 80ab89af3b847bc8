package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

// account asks AWS what only an identity of the account may ask: whoever runs the program is signed in as one.
type account struct {
	a   *app
	cfg aws.Config
	admin.Deployment
}

// lookAtAWS looks at what the deployment's functions have no right to look at. What the identity may not read either is
// skipped, and says which right it would take.
func (a *app) lookAtAWS(ctx context.Context, d admin.Deployment) []admin.Finding {
	cfg, region, err := a.aws(ctx, d.Region)
	if err != nil {
		return []admin.Finding{{Check: "aws", Verdict: admin.Skipped, Detail: err.Error(), Next: "sign in to AWS (aws sso login)"}}
	}
	d.Region = region
	at := account{a, cfg, d}
	out := at.concurrency(ctx)
	out = append(out, at.access(ctx)...)
	out = append(out, at.quotas(ctx)...)
	out = append(out, at.secrets(ctx)...)
	return append(out, at.producers(ctx)...)
}

// ask sends a signed request to a service of AWS. The variable is the SDK's own for its endpoint.
func (at account) ask(ctx context.Context, service, variable, region, method, path string, header http.Header, body []byte) ([]byte, error) {
	base := at.a.env["AWS_ENDPOINT_URL_"+variable]
	if base == "" {
		base = "https://" + service + "." + region + ".amazonaws.com"
		if service == "iam" {
			base = "https://iam.amazonaws.com"
		}
	}
	api, err := at.a.open(base, remote.SigV4(at.cfg.Credentials, service, region))
	if err != nil {
		return nil, err
	}
	resp, err := api.Do(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it was read to its end, or the read's error is returned
	return io.ReadAll(io.LimitReader(resp.Body, 8<<20))
}

// call asks a service that takes an action's name in a header and JSON in the body.
func (at account) call(ctx context.Context, service, variable, region, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	text, err := at.ask(ctx, service, variable, region, http.MethodPost, "/", http.Header{
		"X-Amz-Target": {target}, "Content-Type": {"application/x-amz-json-1.1"},
	}, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// unread is the finding where the identity may not look, or the service did not answer.
func unread(check, subject, right string, err error) admin.Finding {
	return admin.Finding{Check: check, Subject: subject, Verdict: admin.Skipped, Detail: err.Error(), Next: "your identity needs " + right}
}

// concurrency looks at how many invocations the account may have at once: new accounts have 10.
func (at account) concurrency(ctx context.Context) []admin.Finding {
	const check = "concurrency"
	text, err := at.ask(ctx, "lambda", "LAMBDA", at.Region, http.MethodGet, "/2016-08-19/account-settings/", nil, nil)
	var told struct {
		AccountLimit struct{ ConcurrentExecutions, UnreservedConcurrentExecutions int }
	}
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil {
		return []admin.Finding{unread(check, at.Region, "lambda:GetAccountSettings", err)}
	}
	limit := told.AccountLimit.ConcurrentExecutions
	f := admin.Finding{
		Check: check, Subject: at.Region, Verdict: admin.OK,
		Detail: fmt.Sprintf("the account may run %d invocations at once, the event sources together %d", limit, at.Concurrency),
	}
	if limit <= at.Concurrency { // and the door needs some
		f.Verdict, f.Next = admin.Warn, "ask for more of Lambda's quota L-B99A9384 (Concurrent executions), or lower max_concurrency of lanes"
	}
	return []admin.Finding{f}
}

// profile is what an inference profile puts before the model's own id.
var profile = regexp.MustCompile(`^(us|us-gov|eu|apac|jp|au|ca|global)\.`)

// modelOf is the foundation model behind a target's id; "" where that does not tell.
func modelOf(id string) (model string, crossRegion bool) {
	if strings.HasPrefix(id, "arn:") {
		kind, name, _ := strings.Cut(id[strings.LastIndexByte(id, ':')+1:], "/")
		if parts := strings.SplitN(id, ":", 6); len(parts) == 6 {
			kind, name, _ = strings.Cut(parts[5], "/")
		}
		if kind != "foundation-model" && kind != "inference-profile" {
			return "", false
		}
		id = name
	}
	if at := profile.FindString(id); at != "" {
		return id[len(at):], true
	}
	return id, false
}

// access looks at whether the account may use each model that Bedrock serves.
func (at account) access(ctx context.Context) []admin.Finding {
	const check = "model access"
	var out []admin.Finding
	for _, t := range at.Bedrock {
		model, _ := modelOf(t.ModelID)
		if model == "" {
			out = append(out, admin.Finding{Check: check, Subject: t.Target, Verdict: admin.Skipped, Detail: "its id does not tell the model"})
			continue
		}
		text, err := at.ask(ctx, "bedrock", "BEDROCK", t.Region, http.MethodGet, "/foundation-model-availability/"+url.PathEscape(model), nil, nil)
		var told struct {
			AgreementAvailability struct{ Status string }
			AuthorizationStatus   string
			EntitlementAvailability,
			RegionAvailability string
		}
		if err == nil {
			err = json.Unmarshal(text, &told)
		}
		var gone *remote.Refused
		switch {
		case errors.As(err, &gone) && gone.Status == http.StatusNotFound:
			out = append(out, admin.Finding{Check: check, Subject: t.Target, Verdict: admin.Fail, Detail: t.Region + " has no model " + model, Next: "mend model_id, or the provider's region"})
			continue
		case err != nil:
			out = append(out, unread(check, t.Target, "bedrock:GetFoundationModelAvailability", err))
			continue
		}
		f := admin.Finding{Check: check, Subject: t.Target, Verdict: admin.OK, Detail: "granted in " + t.Region}
		switch {
		case told.RegionAvailability == "NOT_AVAILABLE" && !profile.MatchString(t.ModelID):
			f.Verdict, f.Detail, f.Next = admin.Fail, "the model is not in "+t.Region, "set the provider's region, or use an inference profile"
		case told.AuthorizationStatus != "AUTHORIZED" || told.AgreementAvailability.Status != "AVAILABLE" || told.EntitlementAvailability == "NOT_AVAILABLE":
			f.Verdict = admin.Fail
			f.Detail = fmt.Sprintf("not granted: authorization %s, agreement %s, entitlement %s", told.AuthorizationStatus, told.AgreementAvailability.Status, told.EntitlementAvailability)
			f.Next = "ask for the model in Bedrock's console, Model access, in " + t.Region
		}
		out = append(out, f)
	}
	return out
}

// quota is an applied quota.
type quota struct {
	QuotaName, QuotaCode string
	Value                float64
}

// maxQuotaPages bounds what is read; Bedrock has some thousand quotas, a hundred a page.
const maxQuotaPages = 50

func (at account) appliedQuotas(ctx context.Context, region string) ([]quota, error) {
	var all []quota
	token := ""
	for range maxQuotaPages {
		in := map[string]any{"ServiceCode": "bedrock", "MaxResults": 100}
		if token != "" {
			in["NextToken"] = token
		}
		var page struct {
			Quotas    []quota
			NextToken string
		}
		if err := at.call(ctx, "servicequotas", "SERVICE_QUOTAS", region, "ServiceQuotasV20190624.ListServiceQuotas", in, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Quotas...)
		if token = page.NextToken; token == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("Bedrock has more than %d pages of quotas", maxQuotaPages) //nolint:staticcheck // a name
}

// quotas looks at what Bedrock grants the account of each model. One that is 0 throttles every call, for ever, which looks
// like a provider that is busy.
func (at account) quotas(ctx context.Context) []admin.Finding {
	const check = "model quota"
	var out []admin.Finding
	read := map[string][]quota{}
	failed := map[string]bool{}
	for _, t := range at.Bedrock {
		if _, known := read[t.Region]; !known && !failed[t.Region] {
			qs, err := at.appliedQuotas(ctx, t.Region)
			if err != nil {
				failed[t.Region] = true
				out = append(out, unread(check, t.Region, "servicequotas:ListServiceQuotas", err))
			} else {
				read[t.Region] = qs
			}
		}
		model, crossRegion := modelOf(t.ModelID)
		if failed[t.Region] || model == "" {
			continue
		}
		out = append(out, lookAtQuotas(check, t, model, crossRegion, read[t.Region]))
	}
	return out
}

func lookAtQuotas(check string, t admin.BedrockTarget, model string, crossRegion bool, all []quota) admin.Finding {
	f := admin.Finding{Check: check, Subject: t.Target, Verdict: admin.OK}
	var told, zero []string
	for _, q := range all {
		name := strings.ToLower(q.QuotaName)
		if !strings.Contains(name, "per minute") || crossRegion != strings.Contains(name, "cross-region") || !names(name, model) {
			continue
		}
		told = append(told, fmt.Sprintf("%s: %.0f", q.QuotaName, q.Value))
		if q.Value == 0 {
			zero = append(zero, q.QuotaName+" ("+q.QuotaCode+")")
		}
	}
	switch {
	case len(zero) > 0:
		f.Verdict, f.Detail = admin.Fail, "0, so every call is throttled for ever: "+strings.Join(zero, "; ")
		f.Next = "ask for more in Service Quotas of " + t.Region + ", or AWS's support where the quota can't be changed"
	case len(told) == 0:
		f.Verdict, f.Detail = admin.Skipped, "no quota of "+t.Region+" names "+model
		f.Next = "look it up in Service Quotas: their names are for people"
	default:
		f.Detail = strings.Join(told, "; ")
	}
	return f
}

var (
	words   = regexp.MustCompile(`[a-z]+|[0-9]+`)
	release = regexp.MustCompile(`(-[0-9]{8})?(-v[0-9]+)?(:[0-9a-z:]+)?$`) // of a model's id: a date, a version
)

// names reports whether a quota's name is about a model: all words of the model's id are in it, and no number beside them.
func names(quota, model string) bool {
	_, id, found := strings.Cut(model, ".")
	if !found {
		id = model
	}
	id = release.ReplaceAllString(strings.ToLower(id), "")
	have := words.FindAllString(quota, -1)
	want := words.FindAllString(id, -1)
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	for _, h := range have { // Claude 3.5 is not Claude 3
		if h[0] >= '0' && h[0] <= '9' && !slices.Contains(want, h) && !strings.Contains(quota, "v"+h) {
			return false
		}
	}
	return len(want) > 0
}

// secrets looks at whether each secret is there and has a value; the values are not read.
func (at account) secrets(ctx context.Context) []admin.Finding {
	const check = "secret"
	var out []admin.Finding
	for _, s := range at.Secrets {
		var told struct {
			DeletedDate        *float64
			VersionIdsToStages map[string][]string
		}
		region := at.Region
		if parts := strings.Split(s.ARN, ":"); len(parts) > 3 {
			region = parts[3]
		}
		err := at.call(ctx, "secretsmanager", "SECRETS_MANAGER", region, "secretsmanager.DescribeSecret", map[string]string{"SecretId": s.ARN}, &told)
		current := false
		for _, stages := range told.VersionIdsToStages {
			current = current || slices.Contains(stages, "AWSCURRENT")
		}
		f := admin.Finding{Check: check, Subject: s.Setting, Verdict: admin.OK, Detail: "there"}
		var refused *remote.Refused
		switch {
		case errors.As(err, &refused) && refused.Status == http.StatusBadRequest && strings.Contains(refused.Message, "can't find"):
			f.Verdict, f.Detail, f.Next = admin.Fail, "there is no such secret", "make it, or give its whole ARN: the last six characters are part of it"
		case err != nil:
			f = unread(check, s.Setting, "secretsmanager:DescribeSecret", err)
		case told.DeletedDate != nil:
			f.Verdict, f.Detail, f.Next = admin.Fail, "it is to be deleted", "aws secretsmanager restore-secret --secret-id "+s.ARN
		case !current:
			f.Verdict, f.Detail, f.Next = admin.Fail, "it has no value", "aws secretsmanager put-secret-value --secret-id "+s.ARN+" --secret-string file://…"
		}
		out = append(out, f)
	}
	return out
}

// producers looks at whether each producer's own policy lets it send: the queues' own, which deny it to all others, are the
// stack's.
func (at account) producers(ctx context.Context) []admin.Finding {
	const check = "producer"
	var out []admin.Finding
	for _, p := range at.Producers {
		form := url.Values{"Action": {"SimulatePrincipalPolicy"}, "Version": {"2010-05-08"}, "PolicySourceArn": {p.RoleARN}, "ActionNames.member.1": {"sqs:SendMessage"}}
		for i, q := range at.Queues {
			form.Set(fmt.Sprintf("ResourceArns.member.%d", i+1), "arn:aws:sqs:"+at.Region+":"+at.Account+":"+string(q))
		}
		text, err := at.ask(ctx, "iam", "IAM", "us-east-1", http.MethodPost, "/", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
		var told struct {
			Results []struct {
				EvalResourceName, EvalDecision string
			} `xml:"SimulatePrincipalPolicyResult>EvaluationResults>member"`
		}
		if err == nil {
			err = xml.Unmarshal(text, &told)
		}
		if err != nil {
			out = append(out, unread(check, p.Name, "iam:SimulatePrincipalPolicy", err))
			continue
		}
		may, denied := 0, false
		for _, r := range told.Results {
			if r.EvalDecision == "allowed" {
				may++
			}
			denied = denied || r.EvalDecision == "explicitDeny"
		}
		f := admin.Finding{Check: check, Subject: p.Name, Verdict: admin.OK, Detail: fmt.Sprintf("its policy lets it send to %d of %d queues", may, len(at.Queues))}
		if may == 0 {
			f.Verdict, f.Next = admin.Fail, "give "+p.RoleARN+" sqs:SendMessage on the queues that it is to send to"
			if denied {
				f.Detail += ", and denies it"
			}
		}
		out = append(out, f)
	}
	return out
}
