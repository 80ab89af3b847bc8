package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

const arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-x"

func sigV4Header(accessKey, region, service string) string {
	return "AWS4-HMAC-SHA256 Credential=" + accessKey + "/20261129/" + region + "/" + service +
		"/aws4_request, SignedHeaders=host;x-amz-date, Signature=0123abcd"
}

func conversePath(model string) string { return "/model/" + url.PathEscape(model) + "/converse" }

const converseBody = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`

func TestConverse_Shape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where no time passes by itself
		s := newServer(t, nil)
		for _, path := range []string{
			conversePath(arn),
			// As the SDKs write it: colons escaped too.
			"/model/" + strings.NewReplacer(":", "%3A", "/", "%2F").Replace(arn) + "/converse",
		} {
			got := post(t, s, path, `{"system":[{"text":"be kind"}],"inferenceConfig":{"maxTokens":1000,"temperature":0},"messages":[
			{"role":"user","content":[{"text":"first"}]},
			{"role":"assistant","content":[{"text":"ok"}]},
			{"role":"user","content":[{"text":"sec"},{"image":{"format":"png","source":{"bytes":""}}},{"text":"ond"}]}]}`)
			if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/json" || got.Header().Get("X-Amzn-Requestid") == "" {
				t.Fatalf("status %d, headers %v", got.Code, got.Header())
			}
			// 7 + 5 + 2 + 6 bytes of input; the answer is "[", 78 bytes of ARN, "] second".
			want := `{"metrics":{"latencyMs":0},"output":{"message":{"content":[{"text":"[` + arn + `] second"}],"role":"assistant"}},` +
				`"stopReason":"end_turn","usage":{"inputTokens":5,"outputTokens":22,"totalTokens":27}}`
			if diff := cmp.Diff(want, got.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		}
	})
}

func TestConverse_MaxTokensCuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where no time passes by itself
		got := post(t, newServer(t, nil), conversePath("m"), `{"inferenceConfig":{"maxTokens":1},"messages":[{"role":"user","content":[{"text":"hi"}]}]}`)
		want := `{"metrics":{"latencyMs":0},"output":{"message":{"content":[{"text":"[m] "}],"role":"assistant"}},` +
			`"stopReason":"max_tokens","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}`
		if diff := cmp.Diff(want, got.Body.String()); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
	})
}

// checkException holds an error against the shape of AWS: the exception's name in a header, in
// front of a colon, and one member in the body.
func checkException(t *testing.T, got *httptest.ResponseRecorder, status int, name, message string) {
	t.Helper()
	if got.Code != status {
		t.Errorf("status %d, want %d", got.Code, status)
	}
	if typ, _, _ := strings.Cut(got.Header().Get("x-amzn-ErrorType"), ":"); typ != name {
		t.Errorf("exception %q, want %q", typ, name)
	}
	body := decode[map[string]any](t, got.Body.Bytes())
	text, _ := body["message"].(string)
	if len(body) != 1 || text == "" || !strings.Contains(text, message) {
		t.Errorf("body %v, want one message with %q", body, message)
	}
}

func TestConverse_Errors(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.Models = []string{"m", arn} })
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		exception, message       string
	}{
		{"not JSON", "POST", conversePath("m"), `{"messages"`, 400, "SerializationException", ""},
		{"not an object", "POST", conversePath("m"), `[]`, 400, "SerializationException", ""},
		{"null", "POST", conversePath("m"), `null`, 400, "SerializationException", ""},
		{"wrong type", "POST", conversePath("m"), `{"messages":{}}`, 400, "SerializationException", ""},
		{"text no string", "POST", conversePath("m"), `{"messages":[{"role":"user","content":[{"text":1}]}]}`, 400, "SerializationException", ""},
		{"empty", "POST", conversePath("m"), ``, 400, "ValidationException", "must start with a user message"},
		{"no messages", "POST", conversePath("m"), `{}`, 400, "ValidationException", "must start with a user message"},
		{"no message", "POST", conversePath("m"), `{"messages":[]}`, 400, "ValidationException", "must start with a user message"},
		{"assistant first", "POST", conversePath("m"), `{"messages":[{"role":"assistant","content":[{"text":"x"}]}]}`, 400, "ValidationException", "must start with a user message"},
		{"unknown role", "POST", conversePath("m"), `{"messages":[{"role":"system","content":[{"text":"x"}]}]}`, 400, "ValidationException", "'messages.1.member.role'"},
		{"no content", "POST", conversePath("m"), `{"messages":[{"role":"user"}]}`, 400, "ValidationException", "messages.0 is empty"},
		{"blank text", "POST", conversePath("m"), `{"messages":[{"role":"user","content":[{"text":" "}]}]}`, 400, "ValidationException", "messages.0.content.0 is blank"},
		{"empty block", "POST", conversePath("m"), `{"messages":[{"role":"user","content":[{}]}]}`, 400, "ValidationException", "must set one of"},
		{"max tokens", "POST", conversePath("m"), `{"inferenceConfig":{"maxTokens":0},` + converseBody[1:], 400, "ValidationException", "maxTokens"},
		{"unknown model", "POST", conversePath("other"), converseBody, 400, "ValidationException", "model identifier is invalid"},
		{"blank system, H23", "POST", conversePath("m"), `{"system":[{"text":""}],` + converseBody[1:], 400, "ValidationException", "system.0 is blank"},
		{"unknown operation", "POST", "/model/m/guess", converseBody, 404, "UnknownOperationException", "fakellm does not know POST /model/m/guess"},
		{"stream without messages", "POST", "/model/m/converse-stream", `{}`, 400, "ValidationException", "must start with a user message"},
		{"invoke without JSON", "POST", "/model/m/invoke", `x`, 400, "ValidationException", "Malformed input request"},
		{"invoke without version", "POST", "/model/m/invoke", `{}`, 400, "ValidationException", "anthropic_version: Field required"},
		{"invoke without max_tokens", "POST", "/model/m/invoke", `{"anthropic_version":"bedrock-2023-05-31","messages":[]}`, 400, "ValidationException", "max_tokens: Field required"},
		{"invoke without messages", "POST", "/model/m/invoke", `{"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[]}`, 400, "ValidationException", "at least one message"},
		{"invoke with a bad role", "POST", "/model/m/invoke", `{"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[{"role":"x","content":"y"}]}`, 400, "ValidationException", "messages.0.role"},
		{"titan without text", "POST", "/model/m/invoke", `{"inputText":""}`, 400, "ValidationException", "#: /inputText: expected minLength"},
		{"titan with odd dimensions", "POST", "/model/m/invoke", `{"inputText":"x","dimensions":7}`, 400, "ValidationException", "/dimensions"},
		{"titan with odd member", "POST", "/model/m/invoke", `{"inputText":"x","input":7}`, 400, "ValidationException", "extraneous key"},
		{"titan stream", "POST", "/model/m/invoke-with-response-stream", `{"inputText":"x"}`, 400, "ValidationException", "unsupported for streaming"},
		{"count of nothing", "POST", "/model/m/count-tokens", `{"input":{}}`, 400, "ValidationException", "one of the following keys"},
		{"count of a bad call", "POST", "/model/m/count-tokens", `{"input":{"converse":{}}}`, 400, "ValidationException", "must start with a user message"},
		{"method", "GET", conversePath("m"), ``, 404, "UnknownOperationException", "GET"},
		{"no operation", "POST", "/model/m", ``, 404, "UnknownOperationException", "/model/m"},
		{"ARN that was not escaped", "POST", "/model/" + arn + "/converse", converseBody, 404, "UnknownOperationException", ""},
		{"no id", "POST", "/model//converse", converseBody, 404, "UnknownOperationException", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkException(t, do(s, request(t.Context(), tc.method, tc.path, tc.body)), tc.status, tc.exception, tc.message)
		})
	}
}

func TestBedrock_Keys(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, tc := range []struct{ name, header, exception string }{
		{"bearer", "Bearer " + apiKey, ""},
		{"signature", sigV4Header(accessKey, "us-east-1", "bedrock"), ""},
		{"none", "", "MissingAuthenticationTokenException"},
		{"wrong bearer", "Bearer x", "AccessDeniedException"},
		{"access key as bearer", "Bearer " + accessKey, "AccessDeniedException"},
		{"unknown access key", sigV4Header("AKIDOTHER", "us-east-1", "bedrock"), "UnrecognizedClientException"},
		{"bearer key as access key", sigV4Header(apiKey, "us-east-1", "bedrock"), "UnrecognizedClientException"},
		{"other service", sigV4Header(accessKey, "us-east-1", "sqs"), "InvalidSignatureException"},
		{"no signature", "AWS4-HMAC-SHA256 Credential=" + accessKey + "/20261129/us-east-1/bedrock/aws4_request", "IncompleteSignatureException"},
		{"short scope", strings.Replace(sigV4Header(accessKey, "r", "bedrock"), "/20261129", "", 1), "IncompleteSignatureException"},
		{"no region", sigV4Header(accessKey, "", "bedrock"), "IncompleteSignatureException"},
		{"other scheme", "Basic x", "IncompleteSignatureException"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request(t.Context(), http.MethodPost, conversePath("m"), converseBody)
			r.Header.Del("Authorization")
			if tc.header != "" {
				r.Header.Set("Authorization", tc.header)
			}
			got := do(s, r)
			if tc.exception == "" {
				if got.Code != http.StatusOK {
					t.Errorf("status %d: %s", got.Code, got.Body)
				}
				return
			}
			checkException(t, got, http.StatusForbidden, tc.exception, "")
		})
	}
}

func TestBedrock_ProgrammedErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reply     server.Reply
		status    int
		exception string
	}{
		{server.Reply{Status: 400}, 400, "ValidationException"},
		{server.Reply{Status: 403}, 403, "AccessDeniedException"},
		{server.Reply{Status: 404}, 404, "ResourceNotFoundException"},
		{server.Reply{Status: 408}, 408, "ModelTimeoutException"},
		{server.Reply{Status: 424}, 424, "ModelErrorException"},
		{server.Reply{Status: 429}, 429, "ThrottlingException"},
		{server.Reply{Status: 500}, 500, "InternalServerException"},
		{server.Reply{Status: 503}, 503, "ServiceUnavailableException"},
		{server.Reply{Code: "ServiceQuotaExceededException"}, 400, "ServiceQuotaExceededException"},
		{server.Reply{Code: "ModelStreamErrorException"}, 424, "ModelStreamErrorException"},
		{server.Reply{Code: "ModelNotReadyException"}, 429, "ModelNotReadyException"},
		{server.Reply{Code: "ConflictException"}, 400, "ConflictException"},
		{server.Reply{Code: "OddException"}, 500, "OddException"},
		{server.Reply{Status: 502}, 502, ""},
	} {
		s := newServer(t, nil)
		program(t, s, server.Match{}, tc.reply)
		checkException(t, post(t, s, conversePath("m"), converseBody), tc.status, tc.exception, "")
	}
}
