package stack

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// explained is a finding of cdk-nag that stands, and why.
type explained struct{ rule, resource, why string } // rule and resource are regular expressions

func explanations() []explained {
	return []explained{
		{"AwsSolutions-APIG2", "/DoorAPI/API/|/AdminAPI/API/", "the door passes bodies on byte for byte and checks them itself, with errors in the caller's shape; so does admin, field by field"},
		{"AwsSolutions-APIG3", "/DoorAPI/API/|/AdminAPI/API/", "a web ACL is an option (deploy.waf_requests); the operators' API is behind IAM"},
		{"AwsSolutions-APIG4", "/DoorAPI/API/Default/", "bearer keys are checked in the door: API Gateway's keys and IAM fit neither OpenAI's nor Bedrock's SDKs"},
		{"AwsSolutions-COG4", "/DoorAPI/API/Default/", "bearer keys are checked in the door, as said above"},
		{"AwsSolutions-COG4", "/AdminAPI/API/Default/", "operators sign by IAM"},
		{"AwsSolutions-IAM5", "/(enqueue|admin|governor|worker-[a-z]+|Rollout|GatewayLogging)/Role/", "TestPolicies_NameWhatTheyAllow has each wildcard with its reason, and refuses any other"},
		{"AwsSolutions-IAM5", "/Producers/", "TestPolicies_NameWhatTheyAllow holds these too"},
		{"AwsSolutions-SMG4", "/Keys/Pepper/", "a value that comes by itself would end all keys of the value before last: operators put a new one once they have rotated them"},
		{"Serverless-APIGWXrayEnabled", "API/DeploymentStage", "traces are OpenTelemetry's, from the caller to the provider; X-Ray would sample its own"},
		{"Serverless-LambdaTracing", "/Function/Resource$", "traces are OpenTelemetry's, as said above"},
		{"Serverless-LambdaDLQ", "/Function/Resource$", "none is invoked asynchronously but the governor, whose next run sees all again"},
		{"Serverless-LambdaAsyncFailureDestination", "/governor/", "the run of the next minute sees all again"},
		{"Serverless-LambdaEventSourceMappingDestination", "/Feed$", "sources of SQS take no destination: what fails stays on the queue, and workers bury what can't be done"},
		{"Serverless-SQSRedrivePolicy", "/Dead/Resource$", "it is the dead-letter queue"},
	}
}

// SEC32: the rules of AWS Solutions and of Serverless find nothing that is not explained above, and each explanation is needed.
// They look at the app alone: no template holds their notes.
func TestNag_FindsNothingUnexplained(t *testing.T) {
	checks := func(app awscdk.App) {
		// As errors they would end the synthesis before they could be read.
		app.Node().SetContext(jsii.String("@aws-cdk/core:annotationsInValidationReport"), false)
		props := &cdknag.NagPackProps{Reports: jsii.Bool(true), ReportFormats: &[]cdknag.NagReportFormat{cdknag.NagReportFormat_JSON}}
		awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(props), nil)
		awscdk.Aspects_Of(app).Add(cdknag.NewServerlessChecks(props), nil)
	}
	s, err := synthesise(checks, environmentFile("dev"), environmentFile("prod"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.nag) < 4 {
		t.Fatalf("%d reports", len(s.nag))
	}
	needed := map[int]bool{}
	looked := 0
	for name, raw := range s.nag {
		var report struct {
			Lines []struct{ RuleID, ResourceID, Compliance, RuleInfo string }
		}
		if err := json.Unmarshal(raw, &report); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, line := range report.Lines {
			looked++
			if line.Compliance == "Compliant" || line.Compliance == "N/A" {
				continue
			}
			found := false
			for i, e := range explanations() {
				if regexp.MustCompile("^("+e.rule+")$").MatchString(line.RuleID) && regexp.MustCompile(e.resource).MatchString(line.ResourceID) {
					found, needed[i] = true, true
				}
			}
			if !found {
				t.Errorf("%s: %s %s: %s", line.RuleID, line.ResourceID, line.Compliance, line.RuleInfo)
			}
		}
	}
	if looked < 100 {
		t.Errorf("the rules looked at %d things", looked)
	}
	for i, e := range explanations() {
		if !needed[i] || len(e.why) < 10 {
			t.Errorf("nothing is found by %s at %s any more", e.rule, e.resource)
		}
	}
}
