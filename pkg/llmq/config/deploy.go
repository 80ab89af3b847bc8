package config

import "regexp"

// Deploy is what the CDK app makes around an environment, aws only. Functions read none of it.
type Deploy struct {
	LambdaConcurrency int // the account's quota of concurrent executions in the region; default 1000

	AlarmEmail       string // whom alarms and the budget tell; "" is nobody
	AlarmTopicARN    string // SNS topic that alarms tell in its place
	MonthlyBudgetUSD int    // of the whole account; 0 is no budget

	DomainName     string // of the callers' API; "" is API Gateway's own
	CertificateARN string // of ACM, for DomainName
	WAFRequests    int    // that an address may send in 5 min; 0 is no WAF

	OperatorARNs []string // roles and users that the operators' API lets in; none: whoever IAM lets in

	LogKeyARN string // KMS key of log groups; "" is CloudWatch's own

	Zones     []string // availability zones of a VPC
	NAT       string   // of a VPC: "none" (default), "one" or "each"
	Endpoints bool     // interface endpoints of a VPC; default true
}

// The ways in which a VPC's functions get out to providers that are not on AWS.
const (
	NATNone = "none"
	NATOne  = "one"
	NATEach = "each"
)

var (
	emailPattern  = regexp.MustCompile(`^[^@ ,<>]{1,64}@[A-Za-z0-9.-]{1,190}$`)
	topicARN      = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)
	domainPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)
	certARN       = regexp.MustCompile(`^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/[a-f0-9-]{36}$`)
	kmsARN        = regexp.MustCompile(`^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]{36}$`)
	zonePattern   = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$`)
)

// deploying is what only the CDK app reads. A function that is given it does nothing with it.
func deploying() []setting {
	return []setting{
		{
			path: "deploy.lambda_concurrency", form: formCount, def: "1000", low: 10, high: 1000000, why: "Lambda's quotas",
			doc: "the account's quota of concurrent executions; what prod reserves must leave 100 of it, as Lambda wants. `aws lambda get-account-settings` tells it: a new account may have 10", at: func(s *scope) any { return &s.cfg.Deploy.LambdaConcurrency },
		},
		{
			path: "deploy.alarm_email", pattern: emailPattern, why: "it is an address", defNote: "nobody is told",
			doc: "whom alarms and the budget tell; the first mail asks for consent", at: func(s *scope) any { return &s.cfg.Deploy.AlarmEmail },
		},
		{
			path: "deploy.alarm_topic_arn", pattern: topicARN, why: "it is the ARN of an SNS topic", defNote: "one is made where deploy.alarm_email is given",
			doc: "a topic of yours that alarms tell in the place of deploy.alarm_email", at: func(s *scope) any { return &s.cfg.Deploy.AlarmTopicARN },
		},
		{
			path: "deploy.monthly_budget_usd", form: formCount, low: 1, high: 1000000000, why: "whole dollars", defNote: "none",
			doc: "tells deploy.alarm_email when the account has spent 80 % of it, or is about to pass it. It is the whole account's: Bedrock's bill knows no stack", at: func(s *scope) any { return &s.cfg.Deploy.MonthlyBudgetUSD },
		},
		{
			path: "deploy.domain_name", pattern: domainPattern, why: "it is a host's name", defNote: "API Gateway's own endpoint",
			doc: "the callers' API under a name of yours, which alone is open then; point its DNS record to the output DomainTarget", at: func(s *scope) any { return &s.cfg.Deploy.DomainName },
		},
		{
			path: "deploy.certificate_arn", pattern: certARN, why: "it is the ARN of a certificate in ACM",
			doc: "of that name, in the same region", at: func(s *scope) any { return &s.cfg.Deploy.CertificateARN },
		},
		{
			path: "deploy.waf_requests", form: formCount, low: 10, high: 2000000000, why: "what a rate rule of WAF takes", defNote: "no WAF",
			doc: "a web ACL before the callers' API: requests that one address may send in 5 min, and AWS's list of bad addresses. No rule looks into bodies: honest prompts would be refused", at: func(s *scope) any { return &s.cfg.Deploy.WAFRequests },
		},
		{
			path: "deploy.operator_arns", form: formList, pattern: roleARN, why: "it is the ARN of a role or user of IAM", defNote: "whoever of the account IAM lets call it",
			doc: "the only ones whom the operators' API lets in; their own policies must let them, too", at: func(s *scope) any { return &s.cfg.Deploy.OperatorARNs },
		},
		{
			path: "deploy.log_key_arn", pattern: kmsARN, why: "it is the ARN of a KMS key", defNote: "CloudWatch's own key",
			doc: "key of all log groups; its policy must let logs.REGION.amazonaws.com use it", at: func(s *scope) any { return &s.cfg.Deploy.LogKeyARN },
		},
		{
			path: "deploy.zones", form: formList, pattern: zonePattern, why: "it is a zone, such as eu-west-1a", defNote: "a and b of the region",
			doc: "valkey.network: vpc only: two or three availability zones", at: func(s *scope) any { return &s.cfg.Deploy.Zones },
		},
		{
			path: "deploy.nat", def: NATNone, words: []string{NATNone, NATOne, NATEach},
			doc: "valkey.network: vpc only: NAT gateways, which providers outside AWS need: one, or one for each zone", at: func(s *scope) any { return &s.cfg.Deploy.NAT },
		},
		{
			path: "deploy.endpoints", form: formBool, def: "true",
			doc: "valkey.network: vpc only: interface endpoints for SQS, Secrets Manager, Lambda and Bedrock; without them deploy.nat must be given", at: func(s *scope) any { return &s.cfg.Deploy.Endpoints },
		},
	}
}

// deploy checks what is made around an environment.
func (c *checker) deploy() {
	d := c.cfg.Deploy
	if d.AlarmEmail != "" && d.AlarmTopicARN != "" {
		c.fault("deploy.alarm_topic_arn", "is given with alarm_email; alarms tell one of the two")
	}
	if d.MonthlyBudgetUSD > 0 && d.AlarmEmail == "" && c.ok("deploy.alarm_email") {
		c.fault("deploy.monthly_budget_usd", "needs alarm_email: a budget that tells nobody holds nothing up")
	}
	if (d.DomainName == "") != (d.CertificateARN == "") && c.ok("deploy.domain_name") && c.ok("deploy.certificate_arn") {
		c.fault("deploy.domain_name", "and certificate_arn go together")
	}
	if c.cfg.Valkey.Network != "vpc" {
		return
	}
	if n := len(d.Zones); n == 1 || n > 3 {
		c.fault("deploy.zones", "has %d zones; ElastiCache wants two or three", n)
	}
	if len(d.Zones) == 0 && c.cfg.Region == "" && c.ok("deploy.zones") {
		c.fault("deploy.zones", "is missing: without a region nobody knows them")
	}
	if !d.Endpoints && d.NAT == NATNone {
		c.fault("deploy.nat", "is none, and endpoints are off: nothing could reach SQS")
	}
}
