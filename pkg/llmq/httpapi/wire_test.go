package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// A18: a call on a wire that its model does not speak is refused with a URL that works, for every pair of wires and
// every route, and what is named works.
func TestServeHTTP_A18WrongWireNamesAURLThatWorks(t *testing.T) {
	t.Parallel()
	speaks := map[llmq.Wire]string{llmq.WireOpenAI: "chat-a", llmq.WireConverse: "conv-a", llmq.WireInvoke: "raw-a"}
	for _, rt := range table() {
		for wire, model := range speaks {
			if rt.op == "" || rt.op.Wire() == wire {
				continue
			}
			t.Run(string(rt.op)+" of "+model, func(t *testing.T) {
				t.Parallel()
				b := setup(t, ok)
				w := b.send(http.MethodPost, strings.Replace(rt.Path, modelID, model, 1), `{"model":"`+model+`"}`)
				if w.Code != http.StatusBadRequest || w.Header().Get("X-LLMQ-Error-Code") != "wrong_wire" || len(b.calls.requests()) != 0 {
					t.Fatalf("got %d %s", w.Code, w.Body)
				}
				for _, way := range ways(t, w.Body.String()) {
					method, path, _ := strings.Cut(way, " ")
					m, err := match(method, path)
					if err != nil || m.op.Wire() != wire {
						t.Errorf("%s does not serve %s: %v", way, wire, err)
					}
				}
			})
		}
	}
}

// ways are the calls that an error names.
func ways(t *testing.T, body string) []string {
	t.Helper()
	_, after, found := strings.Cut(body, "called at ")
	if !found {
		_, after, found = strings.Cut(body, "call it at ")
	}
	if !found {
		t.Fatalf("no way out: %s", body)
	}
	named, _, _ := strings.Cut(after, `"`)
	return strings.Split(named, " or ")
}

// What is named does the same: a reply that comes whole or in events, vectors or text.
func TestServeHTTP_A18WayOutIsOfTheSameKind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, body, want string }{
		{"/model/chat-a/converse", `{}`, "POST /v1/chat/completions or POST /v1/responses"},
		{"/model/chat-a/converse-stream", `{}`, "POST /v1/chat/completions or POST /v1/responses"},
		{"/model/chat-a/invoke", `{}`, "POST /v1/chat/completions or POST /v1/responses or POST /v1/embeddings"},
		{"/model/conv-a/invoke", `{}`, "POST /model/conv-a/converse"},
		{"/model/conv-a/invoke-with-response-stream", `{}`, "POST /model/conv-a/converse-stream"},
		{"/model/raw-a/converse", `{}`, "POST /model/raw-a/invoke"},
		{"/model/raw-a/converse-stream", `{}`, "POST /model/raw-a/invoke-with-response-stream"},
		{"/v1/chat/completions", `{"model":"` + testARN + `"}`, "POST /model/" + url.PathEscape(testARN) + "/converse or POST /model/" + url.PathEscape(testARN) + "/converse-stream"},
		{"/v1/responses", `{"model":"raw-a"}`, "POST /model/raw-a/invoke or POST /model/raw-a/invoke-with-response-stream"},
		{"/v1/embeddings", `{"model":"raw-a"}`, "POST /model/raw-a/invoke"},
	} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, tc.path, tc.body)
		if got := strings.Join(ways(t, w.Body.String()), " or "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.path, got, tc.want)
		}
	}
}

// A8: what is asked for on each route reaches the call as it came, under its own operation; a model id may be an ARN.
func TestServeHTTP_OperationsReachTheCall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		path, body string
		op         llmq.Op
		model      string
		stream     bool
	}{
		{"/v1/responses", ` {"model":"chat-a","input":"<b>","store":true,"n":1.0}`, llmq.OpResponses, "chat-a", false},
		{"/v1/responses", `{"model":"chat-a@eu","input":[],"stream":true}`, llmq.OpResponses, "chat-a@eu", true},
		{"/model/raw-a/invoke", ` {"top_p":1.0e1,"stream":true}`, llmq.OpInvoke, "raw-a", false},
		{"/model/" + url.PathEscape(rawARN) + "/invoke", `{"inputText":"x"}`, llmq.OpInvoke, rawARN, false},
		{"/model/" + strings.ReplaceAll(url.QueryEscape(rawARN), "+", "%20") + "/invoke-with-response-stream", `{}`, llmq.OpInvokeStream, rawARN, true},
	} {
		b := setup(t, ok)
		b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
			return nil, llmq.Errorf(llmq.CodeTimeout, "enough")
		}
		w := b.send(http.MethodPost, tc.path, tc.body)
		rs := b.calls.requests()
		if len(rs) != 1 {
			t.Errorf("%s: %d %s", tc.path, w.Code, w.Body)
			continue
		}
		if r := rs[0]; r.Op != tc.op || r.Model.String() != tc.model || r.Stream != tc.stream || string(r.Body) != tc.body {
			t.Errorf("%s: handed over %+v", tc.path, r)
		}
	}
}

// A20: refused with the field's name, in the caller's shape, before anything is handed over.
func TestServeHTTP_A20BackgroundAndStoredResponsesAre400(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]string{"background": "true", "previous_response_id": `"resp_1"`, "conversation": `"conv_1"`} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, "/v1/responses", `{"model":"chat-a","input":"x","`+field+`":`+value+`}`)
		b.refused(t, w, http.StatusBadRequest, llmq.CodeUnsupported)
		if !strings.Contains(w.Body.String(), `"param":"`+field+`"`) {
			t.Errorf("%s is not named: %s", field, w.Body)
		}
	}
}

// A18: the list of models says which wires each speaks.
func TestModels_ListWires(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	var list struct {
		Data []struct {
			ID    string      `json:"id"`
			Wires []llmq.Wire `json:"wires"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b.send(http.MethodGet, "/v1/models", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range list.Data {
		for _, w := range m.Wires {
			got[m.ID] += string(w) + " "
		}
	}
	for id, want := range map[string]string{"chat-a": "openai ", "conv-a": "converse ", "both-a": "openai converse ", "raw-a": "invoke "} {
		if got[id] != want {
			t.Errorf("%s speaks %q, want %q", id, got[id], want)
		}
	}
}

// A1: what goes with an invocation's body reaches the call; another media type than JSON is refused.
func TestServeHTTP_InvocationsCarryTheirHeaders(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/model/raw-a/invoke", "/model/raw-a/invoke-with-response-stream"} {
		b := setup(t, ok)
		b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
			return nil, llmq.Errorf(llmq.CodeTimeout, "enough")
		}
		b.send(http.MethodPost, path, `{}`, "x-amzn-bedrock-guardrailidentifier", "gr-1", "X-Amzn-Bedrock-Trace", "ENABLED", "X-Amzn-Bedrock-Other", "x")
		if r := b.calls.requests()[0]; len(r.Headers) != 2 || r.Headers["X-Amzn-Bedrock-Guardrailidentifier"] != "gr-1" || r.Headers["X-Amzn-Bedrock-Trace"] != "ENABLED" {
			t.Errorf("%s: %v", path, r.Headers)
		}
	}
	for _, h := range [][2]string{
		{"Accept", "image/png"},
		{"Accept", "application/json;q=0"},
		{"Accept", "*/*, application/json;q=0.0"},
		{"Accept", "application/json;q=0, */*"},
		{"Accept", "application/json;q=x"},
		{"Content-Type", "image/png"},
		{"Content-Type", "application/octet-streams"},
	} {
		b := setup(t, ok)
		if w := b.send(http.MethodPost, "/model/raw-a/invoke", `{}`, h[0], h[1]); w.Code != http.StatusUnsupportedMediaType || !strings.Contains(w.Body.String(), h[0]) || len(b.calls.requests()) != 0 {
			t.Errorf("%v: %d %s", h, w.Code, w.Body)
		}
	}
	b := setup(t, ok)
	if w := b.send(http.MethodPost, "/model/conv-a/converse", `{}`, "X-Amzn-Bedrock-Trace", "ENABLED", "Accept", "image/png"); w.Code != http.StatusOK || b.calls.requests()[0].Headers != nil {
		t.Errorf("Converse: %d %s", w.Code, w.Body)
	}
}

// A8: AWS's SDKs name no media type of an invocation's body, or a general one, unless they are told; what is read is JSON all the same.
func TestServeHTTP_InvocationsNeedNoMediaType(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/model/raw-a/invoke", "/model/raw-a/invoke-with-response-stream"} {
		for _, media := range []string{"", "application/octet-stream", "Application/JSON"} {
			for body, reaches := range map[string]int{`{"a":1}`: 1, `{"a":1,"a":2}`: 0, `PNG`: 0} {
				b := setup(t, ok)
				b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
					return nil, llmq.Errorf(llmq.CodeTimeout, "enough")
				}
				if w := b.send(http.MethodPost, path, body, "Content-Type", media); len(b.calls.requests()) != reaches || reaches == 0 && w.Code != http.StatusBadRequest {
					t.Errorf("%s as %q: %d %s", body, media, w.Code, w.Body)
				}
			}
		}
	}
	for _, path := range []string{"/model/conv-a/converse", "/v1/chat/completions", "/llmq/v1/calls"} {
		for _, media := range []string{"", "application/octet-stream"} {
			b := setup(t, ok)
			if w := b.send(http.MethodPost, path, `{}`, "Content-Type", media); w.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s as %q: %d %s", path, media, w.Code, w.Body)
			}
		}
	}
}

// A8: an Accept header is a list with weights, of which one range that takes JSON is enough.
func TestServeHTTP_InvocationsServeWhoTakesJSON(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{
		"", "*/*", "application/*", "application/json", "application/json, text/plain, */*", "*/*;q=0.1", "application/json;q=1", "Application/JSON; charset=utf-8", "image/png, */*;q=0.01",
		"*/*;q=0, application/json",
	} {
		b := setup(t, ok)
		if w := b.send(http.MethodPost, "/model/raw-a/invoke", `{}`, "Accept", accept); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", accept, w.Code, w.Body)
		}
		b = setup(t, ok)
		b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
			return nil, llmq.Errorf(llmq.CodeTimeout, "enough")
		}
		if b.send(http.MethodPost, "/model/raw-a/invoke-with-response-stream", `{}`, "X-Amzn-Bedrock-Accept", accept, "Accept", "application/vnd.amazon.eventstream"); len(b.calls.requests()) != 1 {
			t.Errorf("a stream with %q was refused", accept)
		}
	}
}
