package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/awscost"
)

// metered is an account of AWS with a deployment prod, another whose name begins alike, and a day's metrics by
// "namespace metric dimension=value" or by a word of an expression; a metric that is not listed has no value.
func metered(t *testing.T, sums map[string]float64) []string {
	t.Helper()
	service := func(req *http.Request) string {
		scope := strings.Split(req.Header.Get("Authorization"), "/")
		if len(scope) < 4 || !strings.HasPrefix(scope[0], "AWS4-HMAC-SHA256 Credential=AKIDTEST") {
			t.Errorf("%s is not signed: %q", req.URL, req.Header.Get("Authorization"))
			return ""
		}
		return scope[3]
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch what := service(req) + " " + req.URL.Path + " " + req.URL.Query().Get("Marker"); what {
		case "lambda /2015-03-31/functions/ ":
			fmt.Fprint(w, `{"Functions":[{"FunctionName":"llmq-prod-enqueue","MemorySize":256},{"FunctionName":"llmq-prod-eu-enqueue","MemorySize":512},{"FunctionName":"other","MemorySize":128}],"NextMarker":"p 2"}`)
		case "lambda /2015-03-31/functions/ p 2":
			fmt.Fprint(w, `{"Functions":[{"FunctionName":"llmq-prod-worker-rt","MemorySize":128},{"FunctionName":"llmq-prod-governor","MemorySize":256},{"FunctionName":"llmq-prod-admin","MemorySize":256}]}`)
		case "lambda /2015-03-31/event-source-mappings/ ":
			fmt.Fprint(w, `{"EventSourceMappings":[
				{"EventSourceArn":"arn:aws:sqs:eu-central-1:111122223333:llm-a-rt","FunctionArn":"arn:aws:lambda:eu-central-1:111122223333:function:llmq-prod-worker-rt:live"},
				{"EventSourceArn":"arn:aws:sqs:eu-central-1:111122223333:others","FunctionArn":"arn:aws:lambda:eu-central-1:111122223333:function:other"},
				{"EventSourceArn":"arn:aws:kinesis:eu-central-1:111122223333:stream/x","FunctionArn":"arn:aws:lambda:eu-central-1:111122223333:function:llmq-prod-worker-rt"}],"NextMarker":""}`)
		case "monitoring / ":
			writeSums(t, w, req, sums)
		default:
			t.Errorf("asked %s", what)
		}
	}))
	t.Cleanup(server.Close)
	return []string{"AWS_ENDPOINT_URL_LAMBDA=" + server.URL, "AWS_ENDPOINT_URL_CLOUDWATCH=" + server.URL}
}

// writeSums answers GetMetricData in the form of its reference.
func writeSums(t *testing.T, w http.ResponseWriter, req *http.Request, sums map[string]float64) {
	t.Helper()
	if err := req.ParseForm(); err != nil {
		t.Error(err)
	}
	form := req.PostForm
	if form.Get("Action") != "GetMetricData" || form.Get("StartTime") != "2026-11-29T00:00:00Z" || form.Get("EndTime") != "2026-11-30T00:00:00Z" {
		t.Errorf("asked %v", form)
	}
	fmt.Fprint(w, `<GetMetricDataResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"><GetMetricDataResult><MetricDataResults>`)
	for i := 1; ; i++ {
		at := fmt.Sprintf("MetricDataQueries.member.%d.", i)
		id := form.Get(at + "Id")
		if id == "" {
			break
		}
		what := form.Get(at + "Expression")
		if what == "" {
			m := at + "MetricStat.Metric."
			what = form.Get(m+"Namespace") + " " + form.Get(m+"MetricName") + " " + form.Get(m+"Dimensions.member.1.Name") + "=" + form.Get(m+"Dimensions.member.1.Value")
			if form.Get(at+"MetricStat.Stat") != "Sum" || form.Get(at+"MetricStat.Period") != "86400" {
				t.Errorf("%s is not summed over the day: %v", what, form)
			}
		}
		values := ""
		if sum, found := sums[what]; found {
			values = fmt.Sprintf("<member>%g</member>", sum)
		}
		fmt.Fprintf(w, `<member><Id>%s</Id><Label>x</Label><StatusCode>Complete</StatusCode><Timestamps/><Values>%s</Values></member>`, id, values)
	}
	fmt.Fprint(w, `</MetricDataResults></GetMetricDataResult></GetMetricDataResponse>`)
}

// F6: a real day, by CloudWatch's own metrics of this deployment's parts and no other's.
func TestCost_ADayOfADeployment(t *testing.T) {
	// not parallel: the SDK reads the process's environment
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	env := metered(t, map[string]float64{
		"AWS/SQS NumberOfMessagesSent QueueName=llm-a-rt":                                      1000,
		"AWS/SQS NumberOfMessagesReceived QueueName=llm-a-rt":                                  1010,
		"AWS/SQS NumberOfMessagesDeleted QueueName=llm-a-rt":                                   1000,
		"AWS/SQS NumberOfEmptyReceives QueueName=llm-a-rt":                                     21600,
		"AWS/Lambda Invocations FunctionName=llmq-prod-enqueue":                                1200,
		"AWS/Lambda Duration FunctionName=llmq-prod-enqueue":                                   1e7,
		"AWS/Lambda Invocations FunctionName=llmq-prod-worker-rt":                              400,
		"AWS/Lambda Duration FunctionName=llmq-prod-worker-rt":                                 4e6,
		"AWS/Lambda Invocations FunctionName=llmq-prod-governor":                               1440,
		"AWS/Lambda Duration FunctionName=llmq-prod-governor":                                  432000,
		"AWS/Logs IncomingBytes LogGroupName=/aws/lambda/llmq-prod-enqueue":                    2e6,
		"AWS/Logs IncomingBytes LogGroupName=/llmq/llmq-prod/access":                           5e5,
		"AWS/ApiGateway Count ApiName=llmq-prod":                                               1200,
		"AWS/ApiGateway Count ApiName=llmq-prod-admin":                                         12,
		"AWS/ElastiCache ElastiCacheProcessingUnits clusterId=llmq-prod":                       64000,
		`SUM(SEARCH('Namespace="llmq/prod" MetricName="llmq_sqs_acked_total"', 'Sum', 86400))`: 1000,
		`SUM(SEARCH('Namespace="llmq/prod" MetricName="llmq_direct_total"', 'Sum', 86400))`:    20,
	})
	got := invoke(t, at{env: env}, "cost", "--env", "prod", "--day", "2026-11-29")
	var s statement
	if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.code != exitOK {
		t.Fatalf("code %d, %v: %s%s", got.code, err, got.out, got.err)
	}
	if len(s.Counts.Uncounted) == 0 || !strings.Contains(got.err, "not counted: ") {
		t.Errorf("it does not say what is not counted: %s", got.err)
	}
	s.Counts.Uncounted = nil
	want := awscost.Counts{
		Seconds: 86400, Calls: 1020, APIRequests: 1200, AdminRequests: 12,
		Functions: []awscost.Function{
			{Name: "llmq-prod-enqueue", Role: awscost.RoleDoor, MemoryMB: 256, Invocations: 1200, BilledMS: 1e7},
			{Name: "llmq-prod-worker-rt", Role: awscost.RoleWorker, MemoryMB: 128, Invocations: 400, BilledMS: 4e6},
			{Name: "llmq-prod-governor", Role: awscost.RoleGovernor, MemoryMB: 256, Invocations: 1440, BilledMS: 432000},
			{Name: "llmq-prod-admin", Role: awscost.RoleAdmin, MemoryMB: 256},
		},
		SQS:           map[string]float64{"SendMessage": 1000, "ReceiveMessage": 22610, "DeleteMessage": 1000},
		EmptyReceives: 21600, Grouped: 1000, ECPU: 64000, LogBytes: 2.5e6,
	}
	if diff := cmp.Diff(want, s.Counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"cost --env staging":              {exitUnreachable, "no functions of llmq-staging"},
		"cost --env prod --day yesterday": {exitUsage, "must be a date"},
	} {
		if got := invoke(t, at{env: env}, strings.Fields(args)...); got.code != want.code || !strings.Contains(got.err, want.text) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
