package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a call behind the door: it keeps what it is given.
// The key that stands in events as k-test.
var (
	testKeys = authtest.New()
	testKey  = testKeys.Issue(authtest.All("team-a", "chat-a", "emb-a", "conv-a"))
)

type recorder struct {
	httpapi.Calls // nil: nobody asks by an id here

	mu   sync.Mutex
	seen []llmq.Request // guarded by mu
}

func (c *recorder) Do(_ context.Context, r llmq.Request) (*llmq.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, r)
	return &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(`{"ok":"<yes>"}`), Meta: llmq.Meta{Model: "served", Attempts: 1}}, nil
}

func (c *recorder) Stream(context.Context, llmq.Request) (llmq.Stream, error) {
	return nil, llmq.Errorf(llmq.CodeInternal, "no test streams")
}

func (c *recorder) requests() []llmq.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]llmq.Request(nil), c.seen...)
}

func newDoor(t *testing.T) (handler, *recorder) {
	t.Helper()
	target := func(alias, id string, w llmq.Wire) llmq.Model {
		return llmq.Model{Alias: alias, Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: alias, Name: "eu", Provider: "p", ModelID: id, Wires: []llmq.Wire{w}, MaxConcurrency: 1}}}
	}
	calls := &recorder{}
	door, err := httpapi.New(httpapi.DefaultConfig(), httpapi.Deps{
		Calls: calls, Keys: testKeys.Checker, Rates: authtest.NoRates{}, Logger: slog.New(slog.DiscardHandler), HashID: func(id string) string { return id },
		Catalogue: llmq.NewCatalogue([]llmq.Model{
			target("chat-a", "c", llmq.WireOpenAI), target("emb-a", "e", llmq.WireOpenAI),
			target("conv-a", "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.vendor.model-v1:0", llmq.WireConverse),
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return newHandler(door, func() {}), calls
}

// answer is a response as API Gateway would read it.
type answer struct {
	StatusCode        int                 `json:"statusCode"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	body              string
}

func invoke(t *testing.T, h handler, event string) answer {
	t.Helper()
	res, err := h(t.Context(), json.RawMessage(strings.ReplaceAll(event, "k-test", testKey.Key)))
	if err != nil {
		t.Fatalf("the handler returned an error: %v", err)
	}
	return drain(t, res)
}

func drain(t *testing.T, res *events.APIGatewayProxyStreamingResponse) answer {
	t.Helper()
	all, err := io.ReadAll(res)
	if err != nil {
		t.Fatalf("read the response: %v", err)
	}
	if err := res.Close(); err != nil {
		t.Fatalf("close the response: %v", err)
	}
	prelude, body, ok := bytes.Cut(all, make([]byte, 8))
	if !ok {
		t.Fatalf("no prelude in %q", all)
	}
	var a answer
	if err := json.Unmarshal(prelude, &a); err != nil {
		t.Fatal(err)
	}
	a.body = string(body)
	return a
}

const h01Body = `{"model":"chat-a","messages":[{"role":"user","content":"café ☕"}]}`

// h01 is case H01's event b, changed by set; a nil value removes a key.
func h01(set map[string]any) string {
	e := map[string]any{
		"httpMethod": "POST", "path": "/v1/chat/completions",
		"headers":           map[string]string{"AUTHORIZATION": "Bearer k-test", "Content-Type": "application/json; charset=utf-8"},
		"multiValueHeaders": nil, "queryStringParameters": nil,
		"requestContext": map[string]any{"stage": "prod", "path": "/prod/v1/chat/completions"},
		"body":           h01Body, "isBase64Encoded": false,
	}
	for k, v := range set {
		e[k] = v
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // a fault of this test
	}
	return string(b)
}

func TestHandler_H01TakesTheRESTEventInAllItsForms(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]map[string]any{
		"b":                              {},
		"b in base64":                    {"body": base64.StdEncoding.EncodeToString([]byte(h01Body)), "isBase64Encoded": true},
		"d":                              {"path": "/prod/v1/chat/completions"},
		"e as it is":                     {"requestContext": map[string]any{"stage": "v1", "path": "/v1/v1/chat/completions"}},
		"e with the stage in the path":   {"path": "/v1/v1/chat/completions", "requestContext": map[string]any{"stage": "v1"}},
		"headers null":                   {"headers": nil, "multiValueHeaders": map[string][]string{"authorization": {"Bearer k-test"}, "CONTENT-TYPE": {"application/json"}}},
		"both header maps, cases differ": {"multiValueHeaders": map[string][]string{"authorization": {"Bearer k-test"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, calls := newDoor(t)
			a := invoke(t, h, h01(set))
			reqs := calls.requests()
			if a.StatusCode != 200 || len(reqs) != 1 {
				t.Fatalf("got %d %s, %d calls", a.StatusCode, a.body, len(reqs))
			}
			if !bytes.Contains(reqs[0].Body, []byte("\x63\x61\x66\xc3\xa9\x20\xe2\x98\x95")) || string(reqs[0].Body) != h01Body {
				t.Errorf("the body was changed: %q", reqs[0].Body)
			}
		})
	}
}

func TestHandler_H01RefusesTheRestInOpenAIsShape(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		event string
		shape bool // says which event the door takes
	}{
		"f":                          {h01(map[string]any{"body": nil}), false},
		"a, HTTP API":                {`{"version":"2.0","routeKey":"$default","rawPath":"/v1/chat/completions","rawQueryString":"","headers":{"authorization":"Bearer k-test"},"requestContext":{"http":{"method":"POST","path":"/v1/chat/completions"},"stage":"$default"},"body":"{}","isBase64Encoded":false}`, true},
		"HTTP API, format 1.0":       {h01(map[string]any{"version": "1.0"}), true},
		"c, load balancer":           {`{"requestContext":{"elb":{"targetGroupArn":"arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/x/1"}},"httpMethod":"POST","path":"/v1/chat/completions","multiValueHeaders":{"authorization":["Bearer k-test"]},"body":"{}","isBase64Encoded":false}`, true},
		"load balancer with a stage": {h01(map[string]any{"requestContext": map[string]any{"stage": "prod", "elb": map[string]any{}}}), true},
		"empty":                      {`{}`, true},
		"null":                       {`null`, true},
		"a list":                     {`[]`, true},
		"not JSON":                   {`x`, true},
		"wrong types":                {`{"httpMethod":7}`, true},
		"no method":                  {h01(map[string]any{"httpMethod": ""}), true},
		"no path":                    {h01(map[string]any{"path": nil}), true},
		"relative path":              {h01(map[string]any{"path": "v1/chat/completions"}), true},
		"no stage":                   {h01(map[string]any{"requestContext": nil}), true},
		"SQS":                        {`{"Records":[{"messageId":"m","body":"{}"}]}`, true},
		"bad base64":                 {h01(map[string]any{"isBase64Encoded": true}), false},
		"bad method":                 {h01(map[string]any{"httpMethod": "PO ST"}), false},
		"two keys":                   {h01(map[string]any{"headers": map[string]string{"AUTHORIZATION": "Bearer k-test", "authorization": "Bearer k-test", "content-type": "application/json"}}), false},
		"CR LF in a header":          {h01(map[string]any{"headers": map[string]string{"authorization": "Bearer k-test", "content-type": "application/json", "idempotency-key": "a\r\nb"}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, calls := newDoor(t)
			a := invoke(t, h, tc.event)
			var e struct {
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.StatusCode != 400 || e.Error.Type != "invalid_request_error" || len(calls.requests()) != 0 {
				t.Fatalf("got %d %s, %d calls", a.StatusCode, a.body, len(calls.requests()))
			}
			if got := strings.Contains(e.Error.Message, "the door takes the proxy event of an API Gateway REST API"); got != tc.shape {
				t.Errorf("message: %s", e.Error.Message)
			}
		})
	}
}

// H01's why: the limit holds for the decoded body, not for its base64 text.
func TestHandler_H01LimitsTheDecodedBody(t *testing.T) {
	t.Parallel()
	h, calls := newDoor(t)
	for size, want := range map[int]int{4 << 20: 200, 4<<20 + 1: 413} {
		body := h01Body + strings.Repeat(" ", size-len(h01Body))
		a := invoke(t, h, h01(map[string]any{"body": base64.StdEncoding.EncodeToString([]byte(body)), "isBase64Encoded": true}))
		if a.StatusCode != want {
			t.Errorf("%d bytes: got %d %s", size, a.StatusCode, a.body)
		}
	}
	if n := len(calls.requests()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestRoute_LosesTheStageOnceAndOnlyWhereNothingMatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, stage, want string }{
		{"/v1/models", "v1", "/v1/models"},
		{"/v1/v1/models", "v1", "/v1/models"},
		{"/v1/v1/v1/models", "v1", "/v1/v1/models"},
		{"/prod/health", "prod", "/health"},
		{"/prod", "prod", "/prod"},
		{"/production/v1/models", "prod", "/production/v1/models"},
		{"/health", "health", "/health"},
		{"/model/x/converse", "model", "/model/x/converse"},
		{"/prod/model/arn%3Aaws%2Fx/converse", "prod", "/model/arn%3Aaws%2Fx/converse"},
		{"/prod/nothing", "prod", "/nothing"},
		{"/llmq/v1/calls/a:b/result", "llmq", "/llmq/v1/calls/a:b/result"}, // the default endpoint's stage
		{"/llmq/llmq/v1/calls", "llmq", "/llmq/v1/calls"},
		{"/llmq/v1/models", "llmq", "/v1/models"},
		{"/x", "", "/x"},
	} {
		if got := route(tc.path, tc.stage).EscapedPath(); got != tc.want {
			t.Errorf("%s on stage %q: got %s, want %s", tc.path, tc.stage, got, tc.want)
		}
	}
}

// A path comes encoded from a REST API; a front end that decoded it does no harm.
func TestParsePath_KeepsTheEncodingAndDefusesTheRest(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/model/arn%3Aaws%3Abedrock%2Fx/converse": "/model/arn%3Aaws%3Abedrock%2Fx/converse",
		"/model/arn:aws:bedrock/x/converse":       "/model/arn:aws:bedrock/x/converse",
		"/model/a%252Fb/converse":                 "/model/a%252Fb/converse",
		"/model/100%/converse":                    "/model/100%25/converse",
		"/a?b#c":                                  "/a%3Fb%23c",
		"/a b":                                    "/a%20b",
		"/é":                                      "/%C3%A9",
		"/%00":                                    "/%00",
	} {
		u := parsePath(in)
		if got := u.EscapedPath(); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		if u.RawQuery != "" || u.Fragment != "" {
			t.Errorf("%s: a part of it became a query or fragment", in)
		}
	}
}

func TestHandler_ModelIDsArriveEncodedOrDecoded(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.vendor.model-v1:0"
	for path, status := range map[string]int{
		"/model/" + url.PathEscape(arn) + "/converse":                 200,
		"/model/" + arn + "/converse":                                 200,
		"/prod/model/" + url.PathEscape(arn) + "/converse":            200,
		"/model/" + url.PathEscape(url.PathEscape(arn)) + "/converse": 404,
		"/model/%2e%2e%2Fconv-a/converse":                             404,
		"/model/conv-a%00/converse":                                   404,
		"/model/conv-a%/converse":                                     404,
	} {
		h, calls := newDoor(t)
		a := invoke(t, h, h01(map[string]any{"path": path, "body": `{"messages":[]}`}))
		if a.StatusCode != status || len(calls.requests()) != map[bool]int{true: 1, false: 0}[status == 200] {
			t.Errorf("%s: got %d %s", path, a.StatusCode, a.body)
		}
	}
}

// Every example event of the door is answered.
func TestHandler_TakesTheExampleEvents(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../events/door-*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var typed events.APIGatewayProxyRequest
		if err := json.Unmarshal(raw, &typed); err != nil || typed.RequestContext.Stage != "prod" {
			t.Errorf("%s is no REST API event: %v", file, err)
		}
		h, calls := newDoor(t)
		a := invoke(t, h, string(raw))
		if a.StatusCode != 200 || a.Headers["Content-Type"] != "application/json" || a.Headers["Cache-Control"] != "no-store" {
			t.Errorf("%s: got %d %v %s", file, a.StatusCode, a.Headers, a.body)
		}
		want := map[string]llmq.Op{"door-chat.json": llmq.OpChat, "door-embeddings.json": llmq.OpEmbeddings, "door-converse.json": llmq.OpConverse}[filepath.Base(file)]
		if reqs := calls.requests(); want == "" && len(reqs) != 0 || want != "" && (len(reqs) != 1 || reqs[0].Op != want || string(reqs[0].Body) != typed.Body) {
			t.Errorf("%s: handed over %+v", file, reqs)
		}
	}
}

func TestRequest_IsTheEvents(t *testing.T) {
	t.Parallel()
	r, _, err := request(t.Context(), json.RawMessage(h01(map[string]any{
		"queryStringParameters":           map[string]string{"a": "2", "b": "x&y"},
		"multiValueQueryStringParameters": map[string][]string{"a": {"1", "2"}},
		"multiValueHeaders":               map[string][]string{"X-Many": {"1", "2"}, "x-one": {"3"}},
		"headers":                         map[string]string{"X-MANY": "2", "X-Forwarded-For": "198.51.100.9"},
		"requestContext":                  map[string]any{"stage": "prod", "domainName": "api.example.com", "identity": map[string]any{"sourceIp": "2001:db8::7"}},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if r.Method != "POST" || r.Host != "api.example.com" || r.RemoteAddr != "[2001:db8::7]:0" || r.ContentLength != int64(len(h01Body)) || r.URL.RawQuery != "a=1&a=2&b=x%26y" {
		t.Errorf("got %s %s from %s, %d bytes, query %s", r.Method, r.Host, r.RemoteAddr, r.ContentLength, r.URL.RawQuery)
	}
	want := http.Header{"X-Many": {"1", "2"}, "X-One": {"3"}, "X-Forwarded-For": {"198.51.100.9"}}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func FuzzHandler(f *testing.F) {
	for _, s := range []string{h01(nil), `{}`, `{"version":"2.0"}`, h01(map[string]any{"path": "/model/%/converse"}), h01(map[string]any{"body": nil}), `{"httpMethod":"GET","path":"/health","requestContext":{"stage":"x"}}`} {
		f.Add([]byte(s))
	}
	h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			panic(err)
		}
	}), func() {})
	f.Fuzz(func(t *testing.T, raw []byte) {
		res, err := h(t.Context(), raw)
		if err != nil || res.StatusCode == 0 {
			t.Fatalf("got %v, %v", res, err)
		}
		drain(t, res)
	})
}
