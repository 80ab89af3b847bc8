package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestChat_Shape(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	got := post(t, s, "/v1/chat/completions", `{"model":"m1","messages":[
		{"role":"system","content":"be kind"},
		{"role":"user","content":"first"},
		{"role":"assistant","content":null,"tool_calls":[]},
		{"role":"user","content":[{"type":"text","text":"sec"},{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"ond"}]}]}`)
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/json" || got.Header().Get("X-Request-Id") == "" {
		t.Fatalf("status %d, headers %v", got.Code, got.Header())
	}
	body := decode[map[string]any](t, got.Body.Bytes())
	id, _ := body["id"].(string)
	created, _ := body["created"].(float64)
	if !strings.HasPrefix(id, "chatcmpl-") || math.Abs(created-float64(time.Now().Unix())) > 60 {
		t.Errorf("id %q, created %v", id, created)
	}
	delete(body, "id")
	delete(body, "created")
	// 7 + 5 + 0 + 6 bytes of prompt, "[m1] second" of answer.
	want := decode[map[string]any](t, []byte(`{
		"object":"chat.completion","model":"m1","service_tier":"default","system_fingerprint":"fp_fakellm",
		"choices":[{"index":0,"finish_reason":"stop","logprobs":null,
			"message":{"role":"assistant","content":"[m1] second","refusal":null,"annotations":[]}}],
		"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,
			"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},
			"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`))
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestChat_LimitsAndChoices(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, tc := range []struct {
		name, fields, content, finish string
		choices, completion           int
	}{
		{"cut", `"max_tokens":2`, "[m] hé", "length", 1, 2}, // 8 bytes would split a character
		{"cut by the new name", `"max_completion_tokens":1`, "[m] ", "length", 1, 1},
		{"long enough", `"max_tokens":100`, "[m] héééé", "stop", 1, 4},
		{"choices", `"n":3`, "[m] héééé", "stop", 3, 12},
		{"stream off", `"stream":false`, "[m] héééé", "stop", 1, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := post(t, s, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"héééé"}],`+tc.fields+`}`)
			type choice struct {
				Index   int
				Message struct{ Content string }
				Finish  string `json:"finish_reason"`
			}
			body := decode[struct {
				Choices []choice
				Usage   struct {
					Completion int `json:"completion_tokens"`
				}
			}](t, got.Body.Bytes())
			if len(body.Choices) != tc.choices || body.Usage.Completion != tc.completion {
				t.Fatalf("%d choices, %d tokens: %s", len(body.Choices), body.Usage.Completion, got.Body)
			}
			for i, c := range body.Choices {
				if c.Index != i || c.Message.Content != tc.content || c.Finish != tc.finish {
					t.Errorf("choice %d = %+v", i, c)
				}
			}
		})
	}
}

func TestOpenAI_Errors(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.Models = []string{"m"} })
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		typ, param, code         string // empty param and code: null
		message                  string // a part of it
	}{
		{"not JSON", "POST", "/v1/chat/completions", `{"model":`, 400, "invalid_request_error", "", "", "could not parse the JSON body"},
		{"two values", "POST", "/v1/chat/completions", `{} {}`, 400, "invalid_request_error", "", "", "could not parse"},
		{"empty", "POST", "/v1/chat/completions", ``, 400, "invalid_request_error", "", "", "could not parse"},
		{"not an object", "POST", "/v1/chat/completions", `[]`, 400, "invalid_request_error", "", "", "could not parse"},
		{"name given twice", "POST", "/v1/chat/completions", `{"model":"m","model":"m",` + user + `}`, 400, "invalid_request_error", "", "", "could not parse"},
		{"no model", "POST", "/v1/chat/completions", `{` + user + `}`, 400, "invalid_request_error", "", "", "you must provide a model parameter"},
		{"model in another case", "POST", "/v1/chat/completions", `{"Model":"m",` + user + `}`, 400, "invalid_request_error", "", "", "you must provide a model parameter"},
		{"empty model", "POST", "/v1/chat/completions", `{"model":"",` + user + `}`, 400, "invalid_request_error", "", "", "you must provide a model parameter"},
		{"model no string", "POST", "/v1/chat/completions", `{"model":5,` + user + `}`, 400, "invalid_request_error", "model", "invalid_type", "expected a string, but got a number"},
		{"unknown model", "POST", "/v1/chat/completions", `{"model":"zz",` + user + `}`, 404, "invalid_request_error", "", "model_not_found", "The model `zz` does not exist"},
		{"no messages", "POST", "/v1/chat/completions", `{"model":"m"}`, 400, "invalid_request_error", "messages", "missing_required_parameter", "'messages'"},
		{"no message", "POST", "/v1/chat/completions", `{"model":"m","messages":[]}`, 400, "invalid_request_error", "messages", "empty_array", "empty array"},
		{"messages no array", "POST", "/v1/chat/completions", `{"model":"m","messages":"hi"}`, 400, "invalid_request_error", "messages", "invalid_type", "a string"},
		{"message no object", "POST", "/v1/chat/completions", `{"model":"m","messages":[null]}`, 400, "invalid_request_error", "messages[0]", "invalid_type", "null"},
		{"no role", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"content":"x"}]}`, 400, "invalid_request_error", "messages[0].role", "missing_required_parameter", "role"},
		{"role no string", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":{},"content":"x"}]}`, 400, "invalid_request_error", "messages[0].role", "invalid_type", "an object"},
		{"unknown role", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"king","content":"x"}]}`, 400, "invalid_request_error", "messages[0].role", "invalid_value", "'king'"},
		{"no content", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user"}]}`, 400, "invalid_request_error", "messages[0].content", "missing_required_parameter", "content"},
		{"content no text", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":true}]}`, 400, "invalid_request_error", "messages[0].content", "invalid_type", "a boolean"},
		{"part no object", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":["x"]}]}`, 400, "invalid_request_error", "messages[0].content[0]", "invalid_type", "a string"},
		{"part without type", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{}]}]}`, 400, "invalid_request_error", "messages[0].content[0].type", "missing_required_parameter", "type"},
		{"max_tokens 0", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"max_tokens":0}`, 400, "invalid_request_error", "max_tokens", "integer_below_min_value", "0"},
		{"max_tokens no integer", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"max_tokens":1.5}`, 400, "invalid_request_error", "max_tokens", "invalid_type", "an integer"},
		{"both limits", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"max_tokens":1,"max_completion_tokens":1}`, 400, "invalid_request_error", "max_tokens", "invalid_parameter_combination", "same time"},
		{"n too large", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"n":129}`, 400, "invalid_request_error", "n", "integer_above_max_value", "129"},
		{"options without a stream", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"stream_options":{"include_usage":true}}`, 400, "invalid_request_error", "stream_options", "", "only allowed when"},
		{"options no object", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"stream":true,"stream_options":[]}`, 400, "invalid_request_error", "stream_options", "invalid_type", "an array"},
		{"include_usage no boolean", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"stream":true,"stream_options":{"include_usage":1}}`, 400, "invalid_request_error", "stream_options.include_usage", "invalid_type", "a number"},
		{"responses without input", "POST", "/v1/responses", `{"model":"m"}`, 400, "invalid_request_error", "input", "missing_required_parameter", "'input'"},
		{"responses with an empty list", "POST", "/v1/responses", `{"model":"m","input":[]}`, 400, "invalid_request_error", "input", "empty_array", "empty array"},
		{"responses with a message without role", "POST", "/v1/responses", `{"model":"m","input":[{"content":"x"}]}`, 400, "invalid_request_error", "input[0].role", "missing_required_parameter", "role"},
		{"responses in the background", "POST", "/v1/responses", `{"model":"m","input":"x","background":true}`, 400, "invalid_request_error", "background", "unsupported_value", "background"},
		{"responses of 0 tokens", "POST", "/v1/responses", `{"model":"m","input":"x","max_output_tokens":0}`, 400, "invalid_request_error", "max_output_tokens", "integer_below_min_value", "0"},
		{"one unknown model", "GET", "/v1/models/zz", ``, 404, "invalid_request_error", "", "model_not_found", "`zz`"},
		{"stream no boolean", "POST", "/v1/chat/completions", `{"model":"m",` + user + `,"stream":"yes"}`, 400, "invalid_request_error", "stream", "invalid_type", "a string"},
		{"no input", "POST", "/v1/embeddings", `{"model":"m"}`, 400, "invalid_request_error", "input", "missing_required_parameter", "input"},
		{"empty input", "POST", "/v1/embeddings", `{"model":"m","input":""}`, 400, "invalid_request_error", "", "", "$.input"},
		{"empty list", "POST", "/v1/embeddings", `{"model":"m","input":[]}`, 400, "invalid_request_error", "", "", "$.input"},
		{"empty list of tokens", "POST", "/v1/embeddings", `{"model":"m","input":[[]]}`, 400, "invalid_request_error", "", "", "$.input"},
		{"mixed input", "POST", "/v1/embeddings", `{"model":"m","input":["a",1]}`, 400, "invalid_request_error", "", "", "$.input"},
		{"negative token", "POST", "/v1/embeddings", `{"model":"m","input":[-1]}`, 400, "invalid_request_error", "", "", "$.input"},
		{"too many inputs", "POST", "/v1/embeddings", `{"model":"m","input":["a"` + strings.Repeat(`,"a"`, 2048) + `]}`, 400, "invalid_request_error", "", "", "$.input"},
		{"dimensions", "POST", "/v1/embeddings", `{"model":"m","input":"a","dimensions":3073}`, 400, "invalid_request_error", "dimensions", "integer_above_max_value", "3073"},
		{"encoding", "POST", "/v1/embeddings", `{"model":"m","input":"a","encoding_format":"hex"}`, 400, "invalid_request_error", "encoding_format", "invalid_value", "'hex'"},
		{"unknown URL", "POST", "/v1/completions", `{}`, 404, "invalid_request_error", "", "", "Invalid URL (POST /v1/completions)"},
		{"root", "POST", "/", `{}`, 404, "invalid_request_error", "", "", "Invalid URL (POST /)"},
		{"wrong method", "GET", "/v1/chat/completions", ``, 405, "invalid_request_error", "", "method_not_supported", "Not allowed to GET"},
		{"models by POST", "POST", "/v1/models", `{}`, 405, "invalid_request_error", "", "method_not_supported", "Not allowed to POST"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := do(s, request(t.Context(), tc.method, tc.path, tc.body))
			checkOpenAIError(t, got.Code, got.Body.Bytes(), tc.status, tc.typ, tc.param, tc.code, tc.message)
		})
	}
}

// checkOpenAIError holds an error against OpenAI's exact shape: four fields, null where empty.
func checkOpenAIError(t *testing.T, status int, body []byte, wantStatus int, typ, param, code, message string) {
	t.Helper()
	if status != wantStatus {
		t.Errorf("status %d, want %d", status, wantStatus)
	}
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	got := decode[map[string]map[string]any](t, body)
	text, _ := got["error"]["message"].(string)
	if !strings.Contains(text, message) || text == "" {
		t.Errorf("message %q lacks %q", text, message)
	}
	want := map[string]map[string]any{"error": {"message": text, "type": typ, "param": null(param), "code": null(code)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestOpenAI_Keys(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.APIKeys = []string{"one", "two"} })
	for _, tc := range []struct {
		name, header string
		status       int
		code         string
	}{
		{"first", "Bearer one", 200, ""},
		{"second, scheme in another case", "bearer two", 200, ""},
		{"none", "", 401, ""},
		{"empty", "Bearer ", 401, ""},
		{"other scheme", "Basic one", 401, ""},
		{"wrong", "Bearer three", 401, "invalid_api_key"},
		{"the admin's", "Bearer " + adminKey, 401, "invalid_api_key"},
		{"signature", sigV4Header(accessKey, "us-east-1", "bedrock"), 401, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody("m"))
			r.Header.Del("Authorization")
			if tc.header != "" {
				r.Header.Set("Authorization", tc.header)
			}
			got := do(s, r)
			if tc.status == http.StatusOK {
				if got.Code != http.StatusOK {
					t.Errorf("status %d: %s", got.Code, got.Body)
				}
				return
			}
			checkOpenAIError(t, got.Code, got.Body.Bytes(), tc.status, "invalid_request_error", "", tc.code, "API key")
		})
	}
}

func TestOpenAI_ProgrammedErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		reply            server.Reply
		status           int
		typ, param, code string
		message          string
	}{
		{"429", server.Reply{Status: 429}, 429, "requests", "", "rate_limit_exceeded", "Please try again in 20s"},
		{"no money", server.Reply{Code: "insufficient_quota"}, 429, "insufficient_quota", "", "insufficient_quota", "billing"},
		{"400", server.Reply{Status: 400}, 400, "invalid_request_error", "", "", "Bad Request"},
		{"too long", server.Reply{Code: "context_length_exceeded"}, 400, "invalid_request_error", "messages", "context_length_exceeded", "maximum context length"},
		{"401", server.Reply{Status: 401}, 401, "invalid_request_error", "", "invalid_api_key", "API key"},
		{"404", server.Reply{Status: 404}, 404, "invalid_request_error", "", "model_not_found", "`m`"},
		{"500", server.Reply{Status: 500}, 500, "server_error", "", "", "Sorry about that"},
		{"502", server.Reply{Status: 502}, 502, "server_error", "", "", "Bad Gateway"},
		{"503", server.Reply{Status: 503}, 503, "server_error", "", "", "overloaded"},
		{"own words", server.Reply{Status: 429, Message: "not now"}, 429, "requests", "", "rate_limit_exceeded", "not now"},
		{"own code", server.Reply{Code: "odd"}, 500, "server_error", "", "odd", "Internal"},
		{"own code and status", server.Reply{Code: "odd", Status: 418}, 418, "invalid_request_error", "", "odd", "teapot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, nil)
			program(t, s, server.Match{}, tc.reply)
			got := chat(t, s, "m")
			checkOpenAIError(t, got.Code, got.Body.Bytes(), tc.status, tc.typ, tc.param, tc.code, tc.message)
		})
	}
}

func TestModels_ListsThemInOrder(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.Models = []string{"z", "a"} })
	got := do(s, request(t.Context(), http.MethodGet, "/v1/models", ""))
	want := `{"object":"list","data":[{"id":"z","object":"model","created":1700000000,"owned_by":"fakellm"},` +
		`{"id":"a","object":"model","created":1700000000,"owned_by":"fakellm"}]}`
	if diff := cmp.Diff(want, got.Body.String()); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

type embeddingsBody struct {
	Object string
	Model  string
	Data   []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage map[string]int
}

func floats(t *testing.T, raw json.RawMessage) []float32 {
	t.Helper()
	return decode[[]float32](t, raw)
}

func TestEmbeddings_EveryInput(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, tc := range []struct {
		name, input   string
		count, tokens int
	}{
		{"text", `"hello"`, 1, 2},
		{"texts", `["hello","a","hello"]`, 3, 5},
		{"tokens", `[1,2,3]`, 1, 3},
		{"lists of tokens", `[[1,2,3],[4]]`, 2, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := decode[embeddingsBody](t, post(t, s, "/v1/embeddings", `{"model":"e","dimensions":8,"input":`+tc.input+`}`).Body.Bytes())
			if got.Object != "list" || got.Model != "e" || len(got.Data) != tc.count {
				t.Fatalf("got %+v", got)
			}
			if diff := cmp.Diff(map[string]int{"prompt_tokens": tc.tokens, "total_tokens": tc.tokens}, got.Usage); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			for i, item := range got.Data {
				vector := floats(t, item.Embedding)
				var square float64
				for _, x := range vector {
					square += float64(x) * float64(x)
				}
				if item.Object != "embedding" || item.Index != i || len(vector) != 8 || math.Abs(square-1) > 1e-5 {
					t.Errorf("item %d: %d numbers of length² %v", i, len(vector), square)
				}
			}
		})
	}
}

func TestEmbeddings_DependOnModelAndInputOnly(t *testing.T) {
	t.Parallel()
	embed := func(body string) []float32 {
		got := decode[embeddingsBody](t, post(t, newServer(t, nil), "/v1/embeddings", body).Body.Bytes())
		return floats(t, got.Data[0].Embedding)
	}
	base := embed(`{"model":"e","input":"x"}`)
	if len(base) != 1536 {
		t.Errorf("%d dimensions by default, want 1536", len(base))
	}
	if diff := cmp.Diff(base, embed(`{"model":"e","input":["x"],"user":"u"}`)); diff != "" {
		t.Error("the same input gave another vector")
	}
	for _, other := range []string{`{"model":"f","input":"x"}`, `{"model":"e","input":"y"}`, `{"model":"e","input":[120]}`} {
		if cmp.Equal(base, embed(other)) {
			t.Errorf("%s gave the same vector", other)
		}
	}
}

func TestEmbeddings_Base64IsTheSameVector(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	plain := decode[embeddingsBody](t, post(t, s, "/v1/embeddings", `{"model":"e","dimensions":5,"input":"x","encoding_format":"float"}`).Body.Bytes())
	packed := decode[embeddingsBody](t, post(t, s, "/v1/embeddings", `{"model":"e","dimensions":5,"input":"x","encoding_format":"base64"}`).Body.Bytes())
	raw, err := base64.StdEncoding.DecodeString(decode[string](t, packed.Data[0].Embedding))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(raw)/4)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if diff := cmp.Diff(floats(t, plain.Data[0].Embedding), got); diff != "" {
		t.Errorf("base64 (-float +base64):\n%s", diff)
	}
}
