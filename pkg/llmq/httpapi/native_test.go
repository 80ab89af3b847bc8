package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	callsPath = "/llmq/v1/calls"
	submitted = `{"id":"r-1","op":"chat","model":"chat-a","lane":"bg","timeout_secs":60,"user":"u","session":"s","body":{"messages": [ 1.0 ],"x":"<é>"}}`
)

func (b *bundle) submit(body string, h ...string) *httptest.ResponseRecorder {
	return b.send(http.MethodPost, callsPath, body, h...)
}

func (b *bundle) get(path string, h ...string) *httptest.ResponseRecorder {
	return b.send(http.MethodGet, callsPath+path, "", h...)
}

// stands puts a call of the test's tenant.
func (b *bundle) stands(c llmq.Call) {
	b.calls.mu.Lock()
	defer b.calls.mu.Unlock()
	b.calls.put("team-a", c)
}

func doneCall(body string) llmq.Call {
	return llmq.Call{ID: "r-1", State: llmq.StateDone, Created: callCreated, Attempts: 2, Reply: &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(body), Meta: testMeta}}
}

// nativeError reads an error of our own routes.
func nativeErrorOf(t *testing.T, w *httptest.ResponseRecorder) nativeError {
	t.Helper()
	var e nativeBody
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("status %d: no error of ours: %v\n%s", w.Code, err, w.Body)
	}
	return e.Error
}

func document(t *testing.T, w *httptest.ResponseRecorder) callJSON {
	t.Helper()
	var c callJSON
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatalf("status %d: no call: %v\n%s", w.Code, err, w.Body)
	}
	return c
}

// A9: 202 with the id, the state, the deadline and where to ask; the body goes on byte for byte.
func TestSubmit_Answers202AndHandsTheBytesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	before := time.Now()
	w := b.submit(submitted, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	c := document(t, w)
	if w.Code != http.StatusAccepted || c.ID != "r-1" || c.State != llmq.StateQueued || w.Header().Get("Location") != "calls/r-1" ||
		w.Header().Get("Retry-After") != "1" || w.Header().Get("X-LLMQ-Request-Id") != "r-1" || w.Header().Get("Preference-Applied") != "" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if left := c.Deadline.Sub(before); left < 59*time.Second || left > 61*time.Second {
		t.Errorf("deadline in %s", left)
	}
	r := b.calls.requests()[0]
	want := llmq.Request{
		ID: "r-1", Tenant: "team-a", KeyID: testKey.Record.KID, Allowed: r.Allowed, Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneBG,
		Fallback: llmq.FallbackChain, Deadline: r.Deadline, Body: []byte(`{"messages": [ 1.0 ],"x":"<é>"}`), User: "hashed-1", Session: "hashed-1",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("handed over (-want +got):\n%s", diff)
	}
}

// Links are relative to the URL that was asked, whatever stands before the door's paths: a stage's name, say.
func TestCalls_LinksLeadToTheCall(t *testing.T) {
	t.Parallel()
	const before = "https://x.example/stage"
	b := setup(t, nil)
	for path, w := range map[string]*httptest.ResponseRecorder{
		callsPath: b.submit(strings.Replace(submitted, "r-1", "a:b", 1)), callsPath + "/a:b": b.get("/a:b"), callsPath + "/a:b/result": b.get("/a:b/result"),
		callsPath + "/a%3Ab": b.get("/a%3Ab"),
	} {
		base, err := url.Parse(before + path)
		if err != nil {
			t.Fatal(err)
		}
		for link, want := range map[string]string{
			document(t, w).URLs.Self: "/a:b", document(t, w).URLs.Result: "/a:b/result", document(t, w).URLs.Stream: "/a:b/stream",
		} {
			if to, err := base.Parse(link); err != nil || to.String() != before+callsPath+want {
				t.Errorf("%s: %q leads to %v, %v", path, link, to, err)
			}
		}
	}
}

// A9, RFC 7240: who prefers to wait gets the result where it comes in time, and else 202; never 504.
func TestSubmit_PrefersToWait(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		prefer, applied string
		ends            time.Duration
		status          int
		took            time.Duration
	}{
		{"wait=10", "wait=10", 3 * time.Second, 200, 3 * time.Second},
		{"wait=10", "wait=10", 20 * time.Second, 202, 10 * time.Second},
		{"respond-async, WAIT = \"7\"; x=y", "wait=7", 20 * time.Second, 202, 7 * time.Second},
		{"wait=9999", "wait=280", time.Hour, 202, 280 * time.Second},
		{"wait=0", "", time.Hour, 202, 0},
		{"wait=soon", "", time.Hour, 202, 0},
		{"wait", "", time.Hour, 202, 0},
		{"return=minimal", "", time.Hour, 202, 0},
	} {
		t.Run(tc.prefer, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				b.calls.ends = make(chan llmq.Call, 1)
				ending := time.AfterFunc(tc.ends, func() { b.calls.ends <- doneCall(`{"a": 1.0}`) })
				defer ending.Stop()
				begun := time.Now()
				w := b.submit(submitted, "Prefer", tc.prefer)
				if took := time.Since(begun); w.Code != tc.status || took != tc.took || w.Header().Get("Preference-Applied") != tc.applied {
					t.Errorf("after %s: %d %v", took, w.Code, w.Header())
				}
				if holds := strings.Contains(w.Body.String(), `"result":{"content_type":"application/json","body":{"a": 1.0}}`); holds != (tc.status == 200) {
					t.Errorf("answer: %s", w.Body)
				}
			})
		})
	}
}

// A17: what is wrong is named, in the native shape, and nothing is handed over.
func TestSubmit_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	const rest = `"op":"chat","model":"chat-a","body":{}`
	for _, tc := range []struct {
		name, body, field string
		status            int
		code              llmq.Code
		says              string
	}{
		{"unknown field", `{"lan":"bg",` + rest + `}`, "lan", 400, llmq.CodeInvalidRequest, "did you mean lane?"},
		{"a field of the body", `{"messages":[],` + rest + `}`, "messages", 400, llmq.CodeInvalidRequest, "belongs into body"},
		{"case", `{"Op":"chat",` + rest + `}`, "Op", 400, llmq.CodeInvalidRequest, "unknown"},
		{"null", `{"lane":null,` + rest + `}`, "lane", 400, llmq.CodeInvalidRequest, "leave it out"},
		{"twice", `{"op":"chat",` + rest + `}`, "op", 400, llmq.CodeInvalidJSON, "twice"},
		{"no op", `{"model":"chat-a","body":{}}`, "op", 400, llmq.CodeInvalidRequest, "missing; it is one of chat, responses, embeddings, converse"},
		{"no model", `{"op":"chat","body":{}}`, "model", 400, llmq.CodeInvalidRequest, "missing; GET /v1/models"},
		{"no body", `{"op":"chat","model":"chat-a"}`, "body", 400, llmq.CodeInvalidRequest, "missing"},
		{"op of another kind", `{"op":1,"model":"chat-a","body":{}}`, "op", 400, llmq.CodeInvalidRequest, "must be a string"},
		{"unknown op", `{"op":"chats","model":"chat-a","body":{}}`, "op", 400, llmq.CodeInvalidRequest, "unknown"},
		{"unknown model", `{"op":"chat","model":"chat-b","body":{}}`, "model", 404, llmq.CodeModelNotFound, "chat-a"},
		{"wrong wire", `{"op":"chat","model":"conv-a","body":{}}`, "model", 400, llmq.CodeWrongWire, "/model/conv-a/converse"},
		{"another model within", `{"op":"chat","model":"chat-a","body":{"model":"both-a"}}`, "body.model", 400, llmq.CodeInvalidRequest, "body.model"},
		{"twice within", `{"op":"chat","model":"chat-a","body":{"n":1,"n":2}}`, "body.n", 400, llmq.CodeInvalidJSON, "twice"},
		{"case within", `{"op":"chat","model":"chat-a","body":{"Model":"chat-a"}}`, "body.Model", 400, llmq.CodeInvalidRequest, "case"},
		{"no object within", `{"op":"chat","model":"chat-a","body":[]}`, "body", 400, llmq.CodeInvalidRequest, "not a JSON object"},
		{"stream within", `{"op":"chat","model":"chat-a","body":{"stream":1}}`, "body.stream", 400, llmq.CodeInvalidRequest, "true or false"},
		{"lane", `{"lane":"fast",` + rest + `}`, "lane", 400, llmq.CodeInvalidRequest, "rt, bg or bulk"},
		{"fallback", `{"fallback":"x",` + rest + `}`, "fallback", 400, llmq.CodeInvalidRequest, "chain or target"},
		{"id", `{"id":"a b",` + rest + `}`, "id", 400, llmq.CodeInvalidRequest, "illegal"},
		{"timeout as text", `{"timeout_secs":"5",` + rest + `}`, "timeout_secs", 400, llmq.CodeInvalidRequest, "must be a number"},
		{"timeout of parts", `{"timeout_secs":1.5,` + rest + `}`, "timeout_secs", 400, llmq.CodeInvalidRequest, "whole seconds from 1 to 300"},
		{"timeout too long", `{"timeout_secs":301,` + rest + `}`, "timeout_secs", 400, llmq.CodeInvalidRequest, "from 1 to 300"},
		{"both", `{"timeout_secs":5,"deadline":"2030-01-01T00:00:00Z",` + rest + `}`, "deadline", 400, llmq.CodeInvalidRequest, "both"},
		{"past", `{"deadline":"2020-01-01T00:00:00Z",` + rest + `}`, "deadline", 400, llmq.CodeInvalidRequest, "past"},
		{"user", `{"user":"` + strings.Repeat("x", 257) + `",` + rest + `}`, "user", 400, llmq.CodeInvalidRequest, "256"},
		{"headers of another op", `{"headers":{"X-Amzn-Bedrock-Trace":"ENABLED"},` + rest + `}`, "headers", 400, llmq.CodeInvalidRequest, "not passed on with chat"},
		{"headers of another kind", `{"headers":{"X-Amzn-Bedrock-Trace":1},` + rest + `}`, "headers", 400, llmq.CodeInvalidRequest, "an object of strings"},
		{"a media type", `{"headers":{"Accept":"image/png"},"op":"invoke","model":"raw-a","body":{}}`, "headers", 400, llmq.CodeInvalidRequest, "not passed on with invoke"},
		{"a header twice", `{"headers":{"X-Amzn-Bedrock-Trace":"a","x-amzn-bedrock-trace":"b"},"op":"invoke","model":"raw-a","body":{}}`, "headers", 400, llmq.CodeInvalidRequest, "twice"},
		{"not JSON", `{`, "", 400, llmq.CodeInvalidJSON, "cut short"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			w := b.submit(tc.body)
			e := nativeErrorOf(t, w)
			if w.Code != tc.status || e.Code != string(tc.code) || e.Field != tc.field || !strings.Contains(e.Message, tc.says) || e.Retryable || w.Header().Get("X-Should-Retry") != "false" {
				t.Errorf("got %d %+v", w.Code, e)
			}
			if len(b.calls.requests()) != 0 {
				t.Error("it was handed over")
			}
		})
	}
}

// A10: an Idempotency-Key is the id; what headers steer elsewhere stands in the body here.
func TestSubmit_Headers(t *testing.T) {
	t.Parallel()
	const body = `{"op":"chat","model":"chat-a","body":{}}`
	for _, tc := range []struct {
		body   string
		h      []string
		status int
		id     string
	}{
		{body, []string{"Idempotency-Key", "k-1"}, 202, "k-1"},
		{submitted, []string{"Idempotency-Key", "r-1"}, 202, "r-1"},
		{submitted, []string{"Idempotency-Key", "k-1"}, 400, ""},
		{body, []string{"Idempotency-Key", "a b"}, 400, ""},
		{body, []string{"X-LLMQ-Lane", "bg"}, 400, ""},
		{body, []string{"X-Amzn-Bedrock-GuardrailIdentifier", "gr-1"}, 400, ""},
		{body, []string{"Content-Type", "text/plain"}, 415, ""},
		{body, nil, 202, ""},
	} {
		b := setup(t, nil)
		w := b.submit(tc.body, tc.h...)
		if w.Code != tc.status {
			t.Errorf("%v: got %d %s", tc.h, w.Code, w.Body)
			continue
		}
		if tc.status == 202 {
			if got := document(t, w).ID; tc.id != "" && got != tc.id || !strings.HasPrefix(got, "req_") && tc.id == "" {
				t.Errorf("%v: id %s", tc.h, got)
			}
			if b.calls.requests()[0].OneOff {
				t.Error("its id is known to its caller")
			}
		}
	}
}

// A10: a header that is read elsewhere is answered with the field to say it in.
func TestSubmit_HeaderNamesItsField(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"X-LLMQ-Lane": "say it in the field lane of", "X-LLMQ-Timeout-Secs": "the field timeout_secs", "X-LLMQ-Deadline": "the field deadline", "X-LLMQ-Fallback": "the field fallback",
		"X-LLMQ-Request-Id": "the field id", "X-LLMQ-User": "the field user", "X-LLMQ-Session": "the field session", "X-LLMQ-Colour": "leave it out",
		"X-Amzn-Bedrock-Trace": "the field headers",
	} {
		b := setup(t, nil)
		if e := nativeErrorOf(t, b.submit(`{"op":"chat","model":"chat-a","body":{}}`, header, "x")); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %q, want %q", header, e.Message, want)
		}
	}
}

// A8: an invocation's guardrail and the like go along; their names count without case.
func TestSubmit_HandsAnInvocationsHeadersOn(t *testing.T) {
	t.Parallel()
	for _, op := range []llmq.Op{llmq.OpInvoke, llmq.OpInvokeStream} {
		b := setup(t, nil)
		w := b.submit(`{"op":"` + string(op) + `","model":"raw-a","headers":{"x-amzn-bedrock-guardrailIdentifier":"gr-1","X-Amzn-Bedrock-Trace":"ENABLED"},"body":{}}`)
		if w.Code != http.StatusAccepted {
			t.Fatalf("%s: %s", op, w.Body)
		}
		want := map[string]string{"X-Amzn-Bedrock-Guardrailidentifier": "gr-1", "X-Amzn-Bedrock-Trace": "ENABLED"}
		if diff := cmp.Diff(want, b.calls.requests()[0].Headers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", op, diff)
		}
	}
}
