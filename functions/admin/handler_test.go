package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

type fakeVerbs struct{}

func (fakeVerbs) SourceStates(context.Context) []admin.SourceStatus {
	return []admin.SourceStatus{{Queue: "llm-chat-a", Model: "chat-a", Lane: "bg", State: "Disabled", Paused: true, MaxConcurrency: 4, Ceiling: 10}}
}

func (fakeVerbs) Queues(context.Context) []admin.QueueState { return []admin.QueueState{} }

func (fakeVerbs) Dead(_ context.Context, by string, r admin.DeadRequest) (admin.DeadLetters, error) {
	return admin.DeadLetters{Queue: r.Queue, Letters: []admin.DeadLetter{{Reason: by}}, Left: r.Limit}, nil
}

func (fakeVerbs) Redrive(_ context.Context, by string, r admin.RedriveRequest) (admin.Redriven, error) {
	return admin.Redriven{Queue: "llm-" + queue.Name(r.Model), DryRun: r.DryRun, Reasons: map[string]int{by: r.MaxRate}}, nil
}

func (fakeVerbs) Purge(_ context.Context, _ string, r admin.PurgeRequest) (admin.Purged, error) {
	return admin.Purged{}, llmq.Errorf(llmq.CodeRateLimited, "%s was purged", r.Queue).After(time.Minute).At("queue")
}

func (fakeVerbs) Pause(_ context.Context, _ string, r admin.SwitchRequest) (admin.Switched, error) {
	return admin.Switched{Queue: queue.Name(r.Model), State: queue.SourceDisabling}, nil
}

func (fakeVerbs) Resume(_ context.Context, _ string, r admin.SwitchRequest) (admin.Switched, error) {
	return admin.Switched{Queue: queue.Name(r.Model), State: queue.SourceEnabling}, nil
}

// fakeKeys answer with what they were asked.
type fakeKeys struct{}

func (fakeKeys) CreateKey(_ context.Context, by string, r admin.CreateKeyRequest) (admin.NewKey, error) {
	return admin.NewKey{Key: "llmq_once", View: admin.KeyView{KID: "k", Tenant: r.Tenant, CreatedBy: by}}, nil
}

func (fakeKeys) RotateKey(_ context.Context, _ string, r admin.RotateKeyRequest) (admin.NewKey, error) {
	n := -1
	if r.OverlapHours != nil {
		n = *r.OverlapHours
	}
	return admin.NewKey{Key: "llmq_twice", View: admin.KeyView{KID: r.KID, CallsPerMinute: n}}, nil
}

func (fakeKeys) RevokeKey(_ context.Context, by string, r admin.KeyRequest) (admin.KeyView, error) {
	return admin.KeyView{KID: r.KID, RevokedBy: by}, nil
}

func (fakeKeys) ShowKey(_ context.Context, kid string) (admin.KeyView, error) {
	return admin.KeyView{KID: kid}, nil
}

func (fakeKeys) ListKeys(_ context.Context, after string) (admin.KeyList, error) {
	return admin.KeyList{Next: after}, nil
}

func (fakeVerbs) Govern(context.Context) admin.Governed { return admin.Governed{Sources: 2, Moved: 1} }

func (fakeVerbs) Status(context.Context) admin.Status {
	return admin.Status{Queues: []admin.QueueStatus{{Queue: "llm-chat-a", Model: "chat-a", Lane: "bg", Waiting: 3}}, Targets: []admin.TargetStatus{}}
}

func (fakeVerbs) Create(_ context.Context, by string, r admin.CreateRequest) (admin.Created, error) {
	return admin.Created{Queues: []admin.CreatedQueue{{Queue: r.Queue, DLQ: queue.Name(by), Created: true}}}, nil
}

func (fakeVerbs) Metrics(context.Context) admin.MetricsView { return admin.MetricsView{Series: 12} }

func (fakeVerbs) Limiter(_ context.Context, r admin.TargetRequest) ([]admin.TargetStatus, error) {
	return []admin.TargetStatus{{Target: r.Model + "@" + r.Target}}, nil
}

func (fakeVerbs) ResetLimiter(_ context.Context, by string, r admin.TargetRequest) (admin.Forgotten, error) {
	return admin.Forgotten{Targets: []string{r.Model + "@" + r.Target}, Note: "limits by " + by}, nil
}

func (fakeVerbs) Breakers(_ context.Context, r admin.TargetRequest) ([]admin.BreakerStatus, error) {
	return []admin.BreakerStatus{{Target: r.Model + "@" + r.Target, Breaker: "open"}}, nil
}

func (fakeVerbs) ResetBreaker(_ context.Context, by string, _ admin.TargetRequest) (admin.Forgotten, error) {
	return admin.Forgotten{Note: "breaker by " + by}, nil
}

func (fakeVerbs) TestFallback(_ context.Context, _ string, r admin.FallbackTest) (admin.FallbackTested, error) {
	return admin.FallbackTested{Model: r.Model, Takes: "m@t"}, nil
}

type fakeDoctor struct{}

func (fakeDoctor) Diagnose(_ context.Context, by string, r admin.DoctorRequest) (admin.Diagnosis, error) {
	return admin.Diagnosis{Findings: []admin.Finding{{Check: "c", Subject: by, Verdict: admin.OK, Detail: fmt.Sprint("new: ", r.NewStore)}}}, nil
}

func event(method, path string, headers map[string]string, userARN string) events.APIGatewayProxyRequest {
	ev := events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Headers: headers}
	ev.RequestContext.Identity.UserArn = userARN
	return ev
}

// KT7: operators only; a caller's way in is none of theirs.
func TestAdmin_WhoGetsIn(t *testing.T) {
	t.Parallel()
	local, aws := gate{key: "k-local"}, gate{}
	bearer := func(k string) map[string]string { return map[string]string{"authorization": "Bearer " + k} }
	for _, tt := range []struct {
		name   string
		g      gate
		ev     events.APIGatewayProxyRequest
		status int
		code   string
	}{
		{"local key", local, event("GET", "/status", bearer("k-local"), ""), 200, ""},
		{"local, no key", local, event("GET", "/status", nil, ""), 401, "invalid_api_key"},
		{"local, wrong key", local, event("GET", "/status", bearer("k-other"), ""), 401, "invalid_api_key"},
		{"local, signed", local, event("GET", "/status", nil, "arn:aws:iam::000000000000:user/local"), 200, ""},
		{"local, empty key configured", gate{}, event("GET", "/status", bearer(""), ""), 401, "invalid_api_key"},
		{"aws, signed", aws, event("GET", "/status", nil, "arn:aws:sts::111122223333:assumed-role/ops/s"), 200, ""},
		{"aws, bearer key", aws, event("GET", "/status", bearer("k-local"), ""), 401, "invalid_api_key"},
		{"health is open", aws, event("GET", "/health", nil, ""), 200, ""},
		{"unknown path", local, event("GET", "/key", bearer("k-local"), ""), 404, "unknown_route"},
		{"wrong method", local, event("POST", "/status", bearer("k-local"), ""), 405, "method_not_allowed"},
		{"zero event", local, events.APIGatewayProxyRequest{}, 401, "invalid_api_key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, err := newHandler(fakeVerbs{}, fakeKeys{}, fakeLive{}, fakeDoctor{}, tt.g)(t.Context(), tt.ev)
			if err != nil {
				t.Fatal(err)
			}
			var body struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal([]byte(resp.Body), &body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || body.Error.Code != tt.code {
				t.Errorf("answer = %d %q, want %d %q", resp.StatusCode, body.Error.Code, tt.status, tt.code)
			}
			if strings.Contains(resp.Body, "k-other") {
				t.Error("a presented key came back")
			}
		})
	}
}

func TestAdmin_StatusIsJSON(t *testing.T) {
	t.Parallel()
	resp, err := newHandler(fakeVerbs{}, fakeKeys{}, fakeLive{}, fakeDoctor{}, gate{})(t.Context(), event("GET", "/status", nil, "arn"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"queues":[{"queue":"llm-chat-a","model":"chat-a","lane":"bg","waiting":3,"received":0,"delayed":0,"dead_letters":0}],"targets":[],` +
		`"sources":[{"queue":"llm-chat-a","model":"chat-a","lane":"bg","state":"Disabled","paused":true,"max_concurrency":4,"ceiling":10}],` +
		`"routing":{"revision":0,"killed":true,"models":null}}`
	if resp.Body != want {
		t.Errorf("body = %s\nwant   %s", resp.Body, want)
	}
}

// B12: verbs take exactly their fields; who asks is handed on.
func TestAdmin_VerbsTakeTheirArguments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		want                     string // part of the answer
	}{
		{"redrive", "POST", "/queues/redrive", `{"model":"m","lane":"bg","max_rate":7,"dry_run":true}`, 200, `"reasons":{"arn:ops":7}`},
		{"dead letters", "POST", "/queues/dead", `{"queue":"q","limit":7}`, 200, `{"queue":"q","letters":[{"reason":"arn:ops",`},
		{"pause", "POST", "/queues/pause", `{"model":"m","lane":"bg"}`, 200, `"state":"Disabling"`},
		{"resume", "POST", "/queues/resume", ` {"model":"m","lane":"bg"} `, 200, `"state":"Enabling"`},
		{"purge again", "POST", "/queues/purge", `{"queue":"q","confirm":"q"}`, 429, `"field":"queue"`},
		{"queues", "GET", "/queues", "", 200, `{"queues":[]}`},
		{"create a key", "POST", "/keys/create", `{"tenant":"t","models":["m"],"scopes":["call"],"lanes":["rt"]}`, 200, `"created_by":"arn:ops"`},
		{"rotate a key", "POST", "/keys/rotate", `{"kid":"k"}`, 200, `"calls_per_minute":-1`},
		{"rotate a key at once", "POST", "/keys/rotate", `{"kid":"k","overlap_hours":0}`, 200, `"calls_per_minute":0`},
		{"revoke a key", "POST", "/keys/revoke", `{"kid":"k"}`, 200, `"revoked_by":"arn:ops"`},
		{"show a key", "GET", "/keys/0123456789", "", 200, `"kid":"0123456789"`},
		{"list keys", "GET", "/keys", "", 200, `{"keys":null}`},
		{"settings of a model", "GET", "/settings?model=m", "", 200, `"model":"m"`},
		{"settings of a provider", "GET", "/settings?provider=p", "", 200, `"provider":"p"`},
		{"set", "POST", "/settings/set", `{"model":"m","set":{"max_concurrency":5,"rate_window":"fixed"}}`, 200, `arn:ops m 5 fixed`},
		{"set of an old revision", "POST", "/settings/set", `{"provider":"p","set":{"max_concurrency":"5"},"revision":2}`, 400, `"field":"revision"`},
		{"set to a list", "POST", "/settings/set", `{"model":"m","set":{"max_concurrency":[5]}}`, 400, `can't be a JSON value of a setting`},
		{"set to nothing", "POST", "/settings/set", `{"model":"m","set":{"max_concurrency":null}}`, 400, `can't be a JSON value of a setting`},
		{"unset", "POST", "/settings/unset", `{"model":"m","unset":["a","b"]}`, 200, `"revision":2`},
		{"reset", "POST", "/settings/reset", `{}`, 200, `reset by arn:ops`},
		{"audit", "GET", "/settings/audit", "", 200, `{"changes":[{`},
		{"routing", "GET", "/routing", "", 200, `"killed":true`},
		{"route", "POST", "/routing/set", `{"model":"m","mode":"auto"}`, 200, `"note":"m auto"`},
		{"kill", "POST", "/routing/kill", `{"on":true}`, 200, `"note":"killed"`},
		{"reset routes", "POST", "/routing/reset", `{}`, 200, `routes reset`},
		{"limiter", "GET", "/limiter?model=m", "", 200, `{"targets":[{"target":"m@"}]}`},
		{"reset a limiter", "POST", "/limiter/reset", `{"model":"m","target":"t"}`, 200, `"note":"limits by arn:ops"`},
		{"breaker", "GET", "/breaker?model=m", "", 200, `{"breakers":[{"target":"m@","breaker":"open"}]}`},
		{"reset a breaker", "POST", "/breaker/reset", `{"model":"m"}`, 200, `"note":"breaker by arn:ops"`},
		{"fallback", "GET", "/fallback", "", 200, `{"revision":3,`},
		{"set a chain", "POST", "/fallback/set", `{"model":"m","chain":[{"model":"n","require_headroom":true}]}`, 200, `"note":"m n true"`},
		{"try a chain", "POST", "/fallback/test", `{"model":"m"}`, 200, `"takes":"m@t"`},
		{"reset a chain", "POST", "/fallback/reset", `{"model":"m"}`, 200, `"note":"chain of m reset"`},
		{"doctor", "POST", "/doctor", `{"new_store":true}`, 200, `"detail":"new: true"`},
		{"doctor, asked nothing", "POST", "/doctor", `{}`, 200, `"subject":"arn:ops"`},
		{"create by GET", "GET", "/keys/create", "", 405, `use POST`},
		{"revoke by a path", "POST", "/keys/0123456789", `{}`, 405, `use GET`},
		{"deeper", "GET", "/keys/a/b", "", 404, `/keys/{kid}`},
		{"a misspelt right", "POST", "/keys/create", `{"tenant":"t","model":["m"]}`, 400, `no field \"model\"`},
		{"a misspelt field", "POST", "/queues/redrive", `{"model":"m","lane":"bg","dryrun":true}`, 400, `no field \"dryrun\"; it takes model, lane, queue, reason, max_rate, dry_run, cursor`},
		{"a wrong type", "POST", "/queues/redrive", `{"max_rate":"7"}`, 400, `"field":"max_rate"`},
		{"no object", "POST", "/queues/pause", `[1]`, 400, `must be a JSON object`},
		{"no JSON", "POST", "/queues/pause", `{`, 400, `invalid_json`},
		{"two values", "POST", "/queues/pause", `{}{}`, 400, `more than one`},
		{"nothing", "POST", "/queues/pause", ``, 400, `a JSON object: model, lane, queue"`},
		{"too much", "POST", "/queues/pause", strings.Repeat(" ", maxBodyBytes+1), 413, `request_too_large`},
		{"read a verb", "GET", "/queues/purge", ``, 405, `use POST`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path, query, _ := strings.Cut(tt.path, "?")
			ev := event(tt.method, path, nil, "arn:ops")
			if name, value, given := strings.Cut(query, "="); given {
				ev.QueryStringParameters = map[string]string{name: value}
			}
			ev.Body = tt.body
			resp, err := newHandler(fakeVerbs{}, fakeKeys{}, fakeLive{}, fakeDoctor{}, gate{})(t.Context(), ev)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || !strings.Contains(resp.Body, tt.want) {
				t.Errorf("answer = %d %s, want %d with %s", resp.StatusCode, resp.Body, tt.status, tt.want)
			}
			if tt.status == 429 && resp.Headers["Retry-After"] != "60" {
				t.Errorf("Retry-After = %q", resp.Headers["Retry-After"])
			}
		})
	}
}

// unrecorded revokes a key, of which no record is written.
type unrecorded struct{ fakeKeys }

func (unrecorded) RevokeKey(_ context.Context, by string, r admin.KeyRequest) (admin.KeyView, error) {
	return admin.KeyView{KID: r.KID, RevokedBy: by}, fmt.Errorf("%w: the bucket is away", admin.ErrUnrecorded)
}

// KT7: what is done and not recorded is answered as done, and its operator is told.
func TestHandler_TellsOfAMissingRecord(t *testing.T) {
	t.Parallel()
	ev := event("POST", "/keys/revoke", nil, "arn:ops")
	ev.Body = `{"kid":"0123456789"}`
	resp, err := newHandler(fakeVerbs{}, unrecorded{}, fakeLive{}, fakeDoctor{}, gate{})(t.Context(), ev)
	if err != nil || resp.StatusCode != 200 || resp.Headers["X-LLMQ-Audit"] != "missing" || !strings.Contains(resp.Body, `"revoked_by":"arn:ops"`) {
		t.Errorf("answer = %+v, %v", resp, err)
	}
	resp, err = newHandler(fakeVerbs{}, fakeKeys{}, fakeLive{}, fakeDoctor{}, gate{})(t.Context(), ev)
	if _, told := resp.Headers["X-LLMQ-Audit"]; err != nil || told {
		t.Errorf("recorded: %+v, %v", resp.Headers, err)
	}
}

// C11: the same artifact hears the schedule; nothing else makes the governor run.
func TestFunction_TellsEventsApart(t *testing.T) {
	t.Parallel()
	told := 0
	f := newFunction(newHandler(fakeVerbs{}, fakeKeys{}, fakeLive{}, fakeDoctor{}, gate{key: "k"}), fakeVerbs{}, func() { told++ })
	for event, want := range map[string]string{
		`{"version":"0","id":"1","detail-type":"Scheduled Event","source":"aws.scheduler","detail":"{}"}`:                   `"moved":1`,
		`{"httpMethod":"GET","path":"/health"}`:                                                                             `"statusCode":200`,
		`{"httpMethod":"GET","path":"/status","source":"aws.scheduler"}`:                                                    `"statusCode":401`,
		`{"httpMethod":"GET","path":"/status","body":"{\"source\":\"aws.scheduler\",\"detail-type\":\"Scheduled Event\"}"}`: `"statusCode":401`,
	} {
		out, err := f(t.Context(), json.RawMessage(event))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(out); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s -> %s, %v; want %s", event, text, err, want)
		}
		if told != 1 {
			t.Errorf("%s: what was counted is told %d times, want once", event, told)
		}
		told = 0
	}
}
