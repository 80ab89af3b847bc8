package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

// answerOrBadRequest holds what every body must lead to: an answer of valid JSON, or a 400.
func answerOrBadRequest(t *testing.T, s http.Handler, path string, body string) (answered bool) {
	t.Helper()
	got := do(s, request(t.Context(), http.MethodPost, path, body))
	if got == nil {
		t.Fatalf("no answer to %q", body)
	}
	if !json.Valid(got.Body.Bytes()) {
		t.Fatalf("answer %q is not JSON", got.Body)
	}
	if got.Code != http.StatusOK && got.Code != http.StatusBadRequest {
		t.Fatalf("status %d", got.Code)
	}
	return got.Code == http.StatusOK
}

func fuzzServer(f *testing.F) *server.Server {
	f.Helper()
	s, err := server.New(server.Options{APIKeys: []string{apiKey}, AccessKeys: []string{accessKey}, LogCalls: 1})
	if err != nil {
		f.Fatal(err)
	}
	return s
}

func FuzzChat(f *testing.F) {
	for _, seed := range []string{
		chatBody("m"), ``, `{}`, `null`, `[]`, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"é"}]}],"n":2,"max_tokens":1}`,
		`{"model":"m","messages":[ null ]}`, `{"model":"m","messages":[{"role":"assistant"}],"stream":null}`, "{\"model\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body string) {
		if !answerOrBadRequest(t, s, "/v1/chat/completions", body) {
			return
		}
		var in struct {
			Model string `json:"model"`
		}
		if err := json.Unmarshal([]byte(body), &in); err != nil || in.Model == "" {
			t.Fatalf("answered %q", body)
		}
	})
}

func FuzzEmbeddings(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","input":"x","dimensions":2}`, `{"model":"m","input":["x","y"],"dimensions":1,"encoding_format":"base64"}`,
		`{"model":"m","input":[1,2],"dimensions":2}`, `{"model":"m","input":[[1],[2]],"dimensions":2}`, `{"model":"m","input":[null]}`, `{"input":{}}`,
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body string) { answerOrBadRequest(t, s, "/v1/embeddings", body) })
}

func FuzzConverse(f *testing.F) {
	for _, seed := range []string{
		converseBody, ``, `{}`, `null`, ` []`, `{"messages":[{"role":"user","content":[{"image":{}},{"text":"x"}]}],"inferenceConfig":{"maxTokens":1}}`,
		`{"messages":[{"role":"user","content":[null]}]}`, `{"system":[{}],"messages":null}`,
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body string) { answerOrBadRequest(t, s, conversePath("m"), body) })
}

func FuzzInvoke(f *testing.F) {
	for _, seed := range []string{
		anthropicBody, ``, `{}`, `null`, `{"inputText":"x"}`, `{"inputText":"x","dimensions":256,"embeddingTypes":["binary"]}`,
		`{"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"é"}]}]}`,
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body string) { answerOrBadRequest(t, s, "/model/m/invoke", body) })
}

func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","input":"x"}`, `{"model":"m","input":[{"role":"user","content":"x"}],"max_output_tokens":1}`, `{"model":"m","input":[null]}`,
		`{"model":"m","input":[{"type":"function_call_output","output":{}}],"instructions":"é"}`,
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body string) { answerOrBadRequest(t, s, "/v1/responses", body) })
}

func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer " + apiKey, "Bearer", sigV4Header(accessKey, "us-east-1", "bedrock"), "AWS4-HMAC-SHA256 Credential=/////", "AWS4-HMAC-SHA256 ,=,",
	} {
		f.Add(seed)
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, header string) {
		r := request(t.Context(), http.MethodPost, conversePath("m"), converseBody)
		r.Header["Authorization"] = []string{header}
		got := do(s, r)
		if got.Code != http.StatusOK && got.Code != http.StatusForbidden {
			t.Fatalf("status %d", got.Code)
		}
		if call := s.Calls()[0]; got.Code == http.StatusOK && call.KeyHash != server.KeyHash(apiKey) && call.KeyHash != server.KeyHash(accessKey) {
			t.Fatalf("%q was let in as %q", header, call.KeyHash)
		}
	})
}
