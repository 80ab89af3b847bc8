package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
)

const (
	day = 24 * time.Hour
	// daysBack is how far back CloudWatch finds metrics by a search: those that were told in the last two weeks.
	daysBack = 14
)

// countsOfDay reads a day of a deployment from CloudWatch, by the identity of whoever runs the program: the metrics that AWS keeps of
// each part by itself, and our own for the calls.
func (a *app) countsOfDay(ctx context.Context, text string) (awscost.Counts, error) {
	began := time.Now().UTC().Truncate(day).Add(-day)
	if text != "" {
		var err error
		if began, err = time.Parse(time.DateOnly, text); err != nil {
			return awscost.Counts{}, usagef("--day is %q, must be a date as 2026-11-30", text)
		}
		if today := time.Now().UTC().Truncate(day); !began.Before(today) || today.Sub(began) > daysBack*day {
			return awscost.Counts{}, usagef("--day is %s, must be one of the %d days before today, of which CloudWatch has the whole", text, daysBack)
		}
	}
	cfg, region, err := a.aws(ctx, "")
	if err != nil {
		return awscost.Counts{}, err
	}
	at := account{a, cfg, admin.Deployment{Region: region}}
	functions, err := at.functions(ctx, "llmq-"+a.envName)
	if err != nil {
		return awscost.Counts{}, fmt.Errorf("list the functions (your identity needs lambda:ListFunctions): %w", err)
	}
	if len(functions) == 0 {
		return awscost.Counts{}, notFound{fmt.Sprintf("%s has no functions of llmq-%s", region, a.envName)}
	}
	queues, err := at.queues(ctx, functions)
	if err != nil {
		return awscost.Counts{}, fmt.Errorf("list the event sources (your identity needs lambda:ListEventSourceMappings): %w", err)
	}
	counts, wanted := wantedOf(a.envName, queues, functions)
	if err := at.sums(ctx, began, wanted); err != nil {
		return awscost.Counts{}, fmt.Errorf("ask CloudWatch (your identity needs cloudwatch:GetMetricData): %w", err)
	}
	return *counts, nil
}

// wanted is a metric's sum over the day, and where it goes.
type wanted struct {
	namespace, metric string
	dimensions        [][2]string
	search            string // an expression in place of the metric: all sets of dimensions, summed up
	add               func(sum float64)
}

// wantedOf are the metrics to ask for, which fill the counts.
func wantedOf(env string, queues []string, functions []awscost.Function) (*awscost.Counts, []wanted) {
	c := &awscost.Counts{
		Seconds: day.Seconds(), Functions: functions, SQS: map[string]float64{},
		Uncounted: []string{
			"SQS has no metric of requests: each message counts as one to send, one to receive and one to delete, though batches make them fewer; those that hold messages, and those beyond 64 KB, are not in it",
			"starts of functions: Lambda's Duration leaves them out, its bill does not",
			"requests to S3, bytes to the internet, and series of own metrics",
		},
	}
	to := func(x *float64) func(float64) { return func(sum float64) { *x += sum } }
	var out []wanted
	for _, q := range queues {
		of := [][2]string{{"QueueName", q}}
		requests := func(op string, also *float64) func(float64) {
			return func(sum float64) {
				c.SQS[op] += sum
				*also += sum
			}
		}
		var nothing float64
		out = append(out,
			wanted{namespace: "AWS/SQS", metric: "NumberOfMessagesSent", dimensions: of, add: requests("SendMessage", &c.Grouped)}, // all have a group: their tenant
			wanted{namespace: "AWS/SQS", metric: "NumberOfMessagesReceived", dimensions: of, add: requests("ReceiveMessage", &nothing)},
			wanted{namespace: "AWS/SQS", metric: "NumberOfEmptyReceives", dimensions: of, add: requests("ReceiveMessage", &c.EmptyReceives)},
			wanted{namespace: "AWS/SQS", metric: "NumberOfMessagesDeleted", dimensions: of, add: requests("DeleteMessage", &nothing)},
		)
	}
	for i := range functions {
		f := &functions[i]
		of := [][2]string{{"FunctionName", f.Name}}
		out = append(out,
			wanted{namespace: "AWS/Lambda", metric: "Invocations", dimensions: of, add: to(&f.Invocations)},
			wanted{namespace: "AWS/Lambda", metric: "Duration", dimensions: of, add: to(&f.BilledMS)},
			wanted{namespace: "AWS/Logs", metric: "IncomingBytes", dimensions: [][2]string{{"LogGroupName", "/aws/lambda/" + f.Name}}, add: to(&c.LogBytes)},
		)
	}
	name := "llmq-" + env
	search := func(metric string) string {
		return fmt.Sprintf(`SUM(SEARCH('Namespace="llmq/%s" MetricName="%s"', 'Sum', %d))`, env, metric, int(day.Seconds()))
	}
	return c, append(out,
		wanted{namespace: "AWS/ApiGateway", metric: "Count", dimensions: [][2]string{{"ApiName", name}}, add: to(&c.APIRequests)},
		wanted{namespace: "AWS/ApiGateway", metric: "Count", dimensions: [][2]string{{"ApiName", name + "-admin"}}, add: to(&c.AdminRequests)},
		wanted{namespace: "AWS/Logs", metric: "IncomingBytes", dimensions: [][2]string{{"LogGroupName", "/llmq/" + name + "/access"}}, add: to(&c.LogBytes)},
		wanted{namespace: "AWS/ElastiCache", metric: "ElastiCacheProcessingUnits", dimensions: [][2]string{{"clusterId", name}}, add: to(&c.ECPU)},
		wanted{search: search("llmq_sqs_acked_total"), add: to(&c.Calls)},
		wanted{search: search("llmq_direct_total"), add: to(&c.Calls)},
	)
}

// functions lists those of a deployment, by their names.
func (at account) functions(ctx context.Context, deployment string) ([]awscost.Function, error) {
	type listed struct {
		Functions []struct {
			FunctionName string
			MemorySize   float64
		}
		NextMarker string
	}
	var out []awscost.Function
	err := pages(ctx, at, "/2015-03-31/functions/", func(page listed) string {
		for _, f := range page.Functions {
			if role, ours := roleIn(deployment, f.FunctionName); ours {
				out = append(out, awscost.Function{Name: f.FunctionName, Role: role, MemoryMB: f.MemorySize})
			}
		}
		return page.NextMarker
	})
	return out, err
}

// queues lists those that feed functions.
func (at account) queues(ctx context.Context, functions []awscost.Function) ([]string, error) {
	type listed struct {
		EventSourceMappings []struct{ EventSourceArn, FunctionArn string }
		NextMarker          string
	}
	var out []string
	err := pages(ctx, at, "/2015-03-31/event-source-mappings/", func(page listed) string {
		for _, m := range page.EventSourceMappings {
			// arn:aws:lambda:REGION:ACCOUNT:function:NAME:ALIAS and arn:aws:sqs:REGION:ACCOUNT:NAME
			function, source := strings.Split(m.FunctionArn, ":"), strings.Split(m.EventSourceArn, ":")
			if len(function) < 7 || len(source) != 6 || source[2] != "sqs" {
				continue
			}
			if slices.ContainsFunc(functions, func(f awscost.Function) bool { return f.Name == function[6] }) {
				out = append(out, source[5])
			}
		}
		return page.NextMarker
	})
	return out, err
}

// pages reads a list of Lambda's, page by page. take returns where the next begins, "" after the last.
func pages[T any](ctx context.Context, at account, path string, take func(T) (next string)) error {
	const most = 200 // pages, of 50
	query := url.Values{"MaxItems": {"50"}}
	for range most {
		text, err := at.ask(ctx, "lambda", "LAMBDA", at.Region, http.MethodGet, path+"?"+query.Encode(), nil, nil)
		if err != nil {
			return err
		}
		var page T
		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("read the list: %w", err)
		}
		next := take(page)
		if next == "" {
			return nil
		}
		query.Set("Marker", next)
	}
	return fmt.Errorf("the list has more than %d pages", most)
}

// roleIn is what a function of that name is in a deployment. One of another environment, whose name begins alike, is none.
func roleIn(deployment, name string) (role awscost.Role, ours bool) {
	part, ours := strings.CutPrefix(name, deployment+"-")
	switch {
	case !ours:
		return "", false
	case part == "enqueue":
		return awscost.RoleDoor, true
	case part == "admin":
		return awscost.RoleAdmin, true
	case part == "governor":
		return awscost.RoleGovernor, true
	case strings.HasPrefix(part, "worker-"), strings.HasPrefix(part, "job-"):
		return awscost.RoleWorker, true
	}
	return "", false
}

// sums asks CloudWatch for the day's sums of metrics. One that has no value has none.
func (at account) sums(ctx context.Context, began time.Time, all []wanted) error {
	const most = 500 // of a request
	for some := range slices.Chunk(all, most) {
		form := url.Values{
			"Action": {"GetMetricData"}, "Version": {"2010-08-01"},
			"StartTime": {began.Format(time.RFC3339)}, "EndTime": {began.Add(day).Format(time.RFC3339)},
		}
		for i, w := range some {
			w.write(form, i)
		}
		text, err := at.ask(ctx, "monitoring", "CLOUDWATCH", at.Region, http.MethodPost, "/", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
		if err != nil {
			return err
		}
		var told struct {
			Results []struct {
				ID     string    `xml:"Id"`
				Values []float64 `xml:"Values>member"`
			} `xml:"GetMetricDataResult>MetricDataResults>member"`
		}
		if err := xml.Unmarshal(text, &told); err != nil {
			return fmt.Errorf("read CloudWatch's answer: %w", err)
		}
		for _, r := range told.Results {
			i, err := strconv.Atoi(strings.TrimPrefix(r.ID, "m"))
			if err != nil || i < 0 || i >= len(some) {
				return fmt.Errorf("CloudWatch answers for %q, which it was not asked for", r.ID)
			}
			for _, v := range r.Values {
				some[i].add(v)
			}
		}
	}
	return nil
}

// write adds the metric as the query m<i> to a request.
func (w wanted) write(form url.Values, i int) {
	at := fmt.Sprintf("MetricDataQueries.member.%d.", i+1)
	form.Set(at+"Id", "m"+strconv.Itoa(i))
	if w.search != "" {
		form.Set(at+"Expression", w.search)
		return
	}
	form.Set(at+"MetricStat.Stat", "Sum")
	form.Set(at+"MetricStat.Period", strconv.Itoa(int(day.Seconds())))
	form.Set(at+"MetricStat.Metric.Namespace", w.namespace)
	form.Set(at+"MetricStat.Metric.MetricName", w.metric)
	for j, d := range w.dimensions {
		form.Set(fmt.Sprintf("%sMetricStat.Metric.Dimensions.member.%d.Name", at, j+1), d[0])
		form.Set(fmt.Sprintf("%sMetricStat.Metric.Dimensions.member.%d.Value", at, j+1), d[1])
	}
}
