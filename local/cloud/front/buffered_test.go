package front

import (
	"context"
	"testing"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func TestBuffered_Replies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reply string
		status      int
		body, kind  string
	}{
		{"text", `{"statusCode":200,"headers":{"Content-Type":"text/plain"},"body":"hi"}`, 200, "hi", "text/plain"},
		{"bytes", `{"statusCode":200,"headers":{"Content-Type":"image/png"},"body":"/wA=","isBase64Encoded":true}`, 200, "\xff\x00", "image/png"},
		{"no body, default type", `{"statusCode":204}`, 204, "", "application/json"},
		{"null body", `{"statusCode":200,"body":null}`, 200, "", "application/json"},
		{"status as a string", `{"statusCode":"404","body":"x"}`, 404, "x", "application/json"},
		{"number as header", `{"statusCode":200,"headers":{"Content-Type":7},"body":"x"}`, 200, "x", "7"},
		{"null headers", `{"statusCode":200,"headers":null,"multiValueHeaders":{"Content-Type":["a/b"]},"body":"x"}`, 200, "x", "a/b"},
		{"no status", `{"body":"x"}`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"status is a word", `{"statusCode":"ok"}`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"body is an object", `{"statusCode":200,"body":{}}`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"header is a list", `{"statusCode":200,"headers":{"a":["b"]}}`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"not base64", `{"statusCode":200,"body":"!","isBase64Encoded":true}`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"a string", `"hi"`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"null", `null`, 502, `{"message":"Internal server error"}`, "application/json"},
		{"nothing", ``, 502, `{"message":"Internal server error"}`, "application/json"},
		{"a streamed reply", ok, 502, `{"message":"Internal server error"}`, "application/json"},
	}
	for _, tt := range tests {
		srv := serveBuffered(t, fakeInvoker(func(context.Context, []byte) (lambda.Result, error) {
			return lambda.Result{Payload: []byte(tt.reply)}, nil
		}))
		resp, text := do(t, srv, "GET", "/x", nil, nil)
		if resp.StatusCode != tt.status || text != tt.body || resp.Header.Get("Content-Type") != tt.kind {
			t.Errorf("%s: got %d %q %q", tt.name, resp.StatusCode, text, resp.Header.Get("Content-Type"))
		}
	}
}

func TestBuffered_Failures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		result lambda.Result
		err    error
		status int
	}{
		{"function error", lambda.Result{FunctionError: "Unhandled", Payload: []byte(`{"statusCode":200}`)}, nil, 502},
		{"no room for the function", lambda.Result{}, &lambda.Error{Code: lambda.CodeThrottled}, 500},
		{"timed out", lambda.Result{}, context.DeadlineExceeded, 504},
	}
	for _, tt := range tests {
		srv := serveBuffered(t, fakeInvoker(func(context.Context, []byte) (lambda.Result, error) { return tt.result, tt.err }))
		if resp, text := do(t, srv, "GET", "/x", nil, nil); resp.StatusCode != tt.status {
			t.Errorf("%s: got %d %s", tt.name, resp.StatusCode, text)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	for _, seed := range []string{``, `null`, `{}`, `{"statusCode":200,"body":"x"}`, `{"statusCode":"1e2"}`, `{"statusCode":200,"headers":{"a":null}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		status, _, _, err := parseReply(payload)
		if err == nil && (status < 200 || status > 599) {
			t.Errorf("status %d accepted", status)
		}
	})
}
