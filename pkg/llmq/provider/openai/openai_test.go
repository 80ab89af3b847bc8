package openai_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
	"github.com/llm-queue/llmq/pkg/llmq/provider/providertest"
)

const secret = "0123456789abcdef-secret" // of no known shape, so that only exact removal helps

// aReply has what makes it a reply, whatever the op.
const aReply = `{"choices":[{"index":0}],"data":[{"index":0}],"output":[]}`

func fixed(key string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return key, nil }
}

func open(t *testing.T, base string, key func(context.Context) (string, error)) *openai.Provider {
	t.Helper()
	n := provider.DefaultNetwork()
	n.Loopback = true
	p, err := openai.New(openai.Config{Name: "test", BaseURL: base, APIKey: key, Network: n})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func features(op llmq.Op, path string) providertest.Features {
	return providertest.Features{
		Request: provider.Request{Op: op, ModelID: "gpt-5", Body: []byte(`{ "model":"alias@target" ,"top_p":1.0, "messages":[{"role":"user","content":"h\u00e9\/"}]}`)},
		Reply:   `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0}],"data":[{"index":0}],"usage":{"total_tokens":3}}`,
		Path:    "/v1" + path,
		Body:    `{ "model":"gpt-5" ,"top_p":1.0, "messages":[{"role":"user","content":"h\u00e9\/"}]}`,
		Headers: []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"},

		RequestID: "X-Request-Id",
		Secret:    secret,
	}
}

// D8, the OpenAI-compatible half.
func TestProvider_Chat(t *testing.T) {
	t.Parallel()
	providertest.Exercise(t, features(llmq.OpChat, "/chat/completions"), func(t *testing.T, base string) provider.Provider {
		t.Helper()
		return open(t, base+"/v1/", fixed(secret+"\n"))
	})
}

func TestProvider_Embeddings(t *testing.T) {
	t.Parallel()
	providertest.Exercise(t, features(llmq.OpEmbeddings, "/embeddings"), func(t *testing.T, base string) provider.Provider {
		t.Helper()
		return open(t, base+"/v1", fixed(secret))
	})
}

func TestNew_NamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := openai.New(openai.Config{Name: "p1", BaseURL: "http://api.openai.com/v1"})
	if err == nil {
		t.Fatal("New took a public endpoint without https, key and limits")
	}
	for _, want := range []string{"p1", "API key", "https", "MaxIdle", "ConnectTimeout", "ReadTimeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("New does not say %q: %v", want, err)
		}
	}
}

func TestCall_WithoutKeySendsNone(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Authorization"]; ok {
			t.Error("an Authorization header is sent")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(aReply))
	}))
	t.Cleanup(srv.Close)
	if _, err := open(t, srv.URL, nil).Call(t.Context(), provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(`{}`)}); err != nil {
		t.Errorf("Call: %v", err)
	}
}

// What can't be sent is not sent.
func TestCall_SendsNothingWithoutKeyOrBody(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	t.Cleanup(srv.Close)
	broken := errors.New("secrets manager is down")
	tests := []struct {
		name, body string
		key        func(context.Context) (string, error)
		class      provider.Class
		code       llmq.Code
	}{
		{"no key to be had", `{}`, func(context.Context) (string, error) { return "", broken }, provider.Retryable, llmq.CodeProviderAuth},
		{"empty key", `{}`, fixed(" \n"), provider.TargetFatal, llmq.CodeProviderAuth},
		{"key of two lines", `{}`, fixed("sk-1\r\nX-Admin: 1"), provider.TargetFatal, llmq.CodeProviderAuth},
		{"key of other letters", `{}`, fixed("sk-\u00e9"), provider.TargetFatal, llmq.CodeProviderAuth},
		{"model twice", `{"model":"a","\u006dodel":"b"}`, fixed("k"), provider.CallFatal, llmq.CodeInvalidJSON},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, srv.URL, tt.key).Call(t.Context(), provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(tt.body)})
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Class != tt.class || e.Code != tt.code {
				t.Errorf("Call = %v, want %v %v", err, tt.class, tt.code)
			}
			if strings.Contains(err.Error(), "X-Admin") {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

// A stream that the caller did not ask for is no fault of the caller's: another target may have the reply.
func TestCall_AStreamThatNobodyAskedForIsATargetError(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: [DONE]\n\n"))
	}))
	t.Cleanup(srv.Close)
	_, err := open(t, srv.URL, nil).Call(t.Context(), provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(`{}`)})
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.TargetFatal || e.Code != llmq.CodeProviderError {
		t.Errorf("Call = %v, want target_fatal provider_error", err)
	}
}

// H19: a 200 that is none of the op's replies is a passing fault, and never a success; what is in a reply is not looked at. Of a
// response that said nothing the state is enough, and of any reply that it tells what it has cost: that was paid once, and would be again.
func TestCall_RepliesOfTheirOpAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		op          llmq.Op
		reply, says string // "" is a success
	}{
		{llmq.OpChat, `{}`, "no choices"},
		{llmq.OpChat, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, "no choices"},
		{llmq.OpChat, `{"choices":[],"usage":null}`, "no choices"},
		{llmq.OpChat, `{"choices":[],"usage":{"prompt_tokens":1}}`, ""},
		{llmq.OpChat, `{"created":1743682890,"model":"gemini-2.5-pro","object":"chat.completion","usage":{"completion_tokens":0,"prompt_tokens":1396,"total_tokens":1396}}`, ""},
		{llmq.OpChat, `{"choices":null}`, "no choices"},
		{llmq.OpChat, `{"error":"","choices":[]}`, "no choices"},
		{llmq.OpChat, `{"error":"","choices":[{}]}`, ""},
		{llmq.OpChat, `{"error":{},"choices":[{}]}`, ""},
		{llmq.OpChat, `{"error":false,"choices":[{}]}`, ""},
		{llmq.OpChat, `{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},"finish_reason":"tool_calls"}]}`, ""},
		{llmq.OpChat, `{"choices":[{"index":0,"finish_reason":"content_filter","content_filter_results":{"error":{"code":"content_filter_error"}}}]}`, ""},
		{llmq.OpChat, `{"choices":{"0":{}}}`, "no choices"},
		{llmq.OpChat, `{"data":[{}],"output":[{}]}`, "no choices"},
		{llmq.OpChat, `{"status":"ok"}`, "no choices"},
		{llmq.OpChat, `{"usage":{},"choices":[{"anything":1}]}`, ""},
		{llmq.OpChat, `{"error":null,"choices":[{}]}`, ""},
		{llmq.OpEmbeddings, `{}`, "no data"},
		{llmq.OpEmbeddings, `{"data":[]}`, "no data"},
		{llmq.OpEmbeddings, `{"choices":[{}]}`, "no data"},
		{llmq.OpEmbeddings, `{"data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}`, ""},
		{llmq.OpEmbeddings, `{"data":[{"embedding":"AAAA"}]}`, ""},
		{llmq.OpResponses, `{}`, "no output"},
		{llmq.OpResponses, `{"output":"x"}`, "no output"},
		{llmq.OpResponses, `{"output":[]}`, ""},
		{llmq.OpResponses, `{"status":"incomplete"}`, ""},
		{llmq.OpResponses, `{"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},"output":[]}`, ""},
		{llmq.OpResponses, `{"status":"queued","background":true,"output":[]}`, ""},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(tt.reply))
		}))
		t.Cleanup(srv.Close)
		resp, err := open(t, srv.URL, fixed(secret)).Call(t.Context(), provider.Request{Op: tt.op, ModelID: "m", Body: []byte(`{}`)})
		if tt.says == "" {
			if err != nil || string(resp.Body) != tt.reply {
				t.Errorf("%s: %s: %+v, %v", tt.op, tt.reply, resp, err)
			}
			continue
		}
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || e.Code != llmq.CodeProviderError || e.Kind != "bad_reply" || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %s: %v", tt.op, tt.reply, err)
		}
	}
}
