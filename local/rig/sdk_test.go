package rig_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go/auth/bearer"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

func openaiClient(r *rig.Rig) openai.Client {
	return openai.NewClient(option.WithBaseURL(r.URL+"/v1"), option.WithAPIKey(r.Key))
}

func chat(ctx context.Context, c openai.Client, model, text string, opts ...option.RequestOption) (*openai.ChatCompletion, error) {
	return c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}, opts...)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A8: the official client, with only base URL and key changed.
func TestOpenAIClient_Chat(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	var resp *http.Response
	got, err := chat(within(t, time.Minute), openaiClient(r), rig.ModelChat, "café ☕ <b>&</b>", option.WithResponseInto(&resp))
	if err != nil {
		t.Fatal(err)
	}
	if want := "[fake-chat-1] café ☕ <b>&</b>"; got.Choices[0].Message.Content != want {
		t.Errorf("content = %q, want %q", got.Choices[0].Message.Content, want)
	}
	if got.Usage.TotalTokens == 0 {
		t.Error("no usage came back")
	}
	for name, want := range map[string]string{
		"X-LLMQ-Model": rig.ModelChat, "X-LLMQ-Target": "main", "X-LLMQ-Provider": "fake-openai", "X-LLMQ-Model-Id": "fake-chat-1",
		"X-LLMQ-Attempts": "1", "X-LLMQ-Fallback-Used": "false", "X-LLMQ-Lane": "rt",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"X-LLMQ-Request-Id", "X-LLMQ-Queue-Wait-Ms", "X-LLMQ-Provider-Ms", "X-LLMQ-Worker"} {
		if resp.Header.Get(name) == "" {
			t.Errorf("no %s", name)
		}
	}
}

func TestOpenAIClient_Embeddings(t *testing.T) {
	t.Parallel()
	c := openaiClient(theRig(t))
	got, err := c.Embeddings.New(within(t, time.Minute), openai.EmbeddingNewParams{
		Model: rig.ModelEmbed, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || len(got.Data[0].Embedding) == 0 || got.Data[1].Index != 1 {
		t.Errorf("embeddings = %d of %d numbers", len(got.Data), len(got.Data[0].Embedding))
	}
}

// A4, A17: errors come in the shape that the client parses, and say whether to retry.
func TestOpenAIClient_Errors(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	for _, tt := range []struct {
		name, model, key string
		status           int
		code             string
	}{
		{"unknown model", "chat-b", r.Key, 404, "model_not_found"},
		{"wrong wire", rig.ModelConverse, r.Key, 400, "wrong_wire"},
		{"wrong key", rig.ModelChat, "sk-not-ours", 401, "invalid_api_key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := openai.NewClient(option.WithBaseURL(r.URL+"/v1"), option.WithAPIKey(tt.key))
			_, err := chat(within(t, time.Minute), c, tt.model, "hello")
			apiErr, ok := errors.AsType[*openai.Error](err)
			if !ok {
				t.Fatalf("error = %v, want the client's own type", err)
			}
			if apiErr.StatusCode != tt.status || apiErr.Code != tt.code || apiErr.Message == "" {
				t.Errorf("error = %d %q %q, want %d %q", apiErr.StatusCode, apiErr.Code, apiErr.Message, tt.status, tt.code)
			}
			if got := apiErr.Response.Header.Get("X-Should-Retry"); got != "false" {
				t.Errorf("x-should-retry = %q", got)
			}
		})
	}
}

func TestOpenAIClient_ProviderThrottleIsRateLimited(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if err := r.Fake.Program(server.Match{}, server.Reply{Status: 429, Header: http.Header{"Retry-After": {"600"}}}); err != nil {
		t.Fatal(err)
	}
	_, err := chat(within(t, time.Minute), openaiClient(r), rig.ModelChat, "hello", option.WithMaxRetries(0))
	apiErr, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Fatalf("error = %v, want the client's own type", err)
	}
	if apiErr.StatusCode != 429 || apiErr.Code != "rate_limited" || apiErr.Response.Header.Get("Retry-After") != "600" {
		t.Errorf("error = %d %q, Retry-After %q", apiErr.StatusCode, apiErr.Code, apiErr.Response.Header.Get("Retry-After"))
	}
}

func bedrockClient(t *testing.T, r *rig.Rig) *bedrockruntime.Client {
	t.Helper()
	pem, err := os.ReadFile(r.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return bedrockruntime.New(bedrockruntime.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(r.TLSURL), HTTPClient: &http.Client{Transport: tr},
		BearerAuthTokenProvider: bearer.StaticTokenProvider{Token: bearer.Token{Value: r.Key}},
		AuthSchemePreference:    []string{"httpBearerAuth"},
	})
}

func converse(ctx context.Context, c *bedrockruntime.Client, model, text string) (*bedrockruntime.ConverseOutput, error) {
	return c.Converse(ctx, &bedrockruntime.ConverseInput{
		ModelId:  aws.String(model),
		Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: text}}}},
	})
}

func TestBedrockClient_Converse(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	for _, model := range []string{rig.ModelConverse, "fake.converse-v1:0"} { // by alias, and by the provider's own id
		out, err := converse(within(t, time.Minute), bedrockClient(t, r), model, "hello, queue")
		if err != nil {
			t.Fatal(err)
		}
		msg, ok := out.Output.(*types.ConverseOutputMemberMessage)
		if !ok {
			t.Fatalf("output = %T", out.Output)
		}
		text, ok := msg.Value.Content[0].(*types.ContentBlockMemberText)
		if !ok || text.Value != "[fake.converse-v1:0] hello, queue" {
			t.Errorf("content = %+v", msg.Value.Content[0])
		}
		if aws.ToInt32(out.Usage.TotalTokens) == 0 {
			t.Error("no usage came back")
		}
	}
}

func TestBedrockClient_ErrorsAreTyped(t *testing.T) {
	t.Parallel()
	c := bedrockClient(t, theRig(t))
	_, err := converse(within(t, time.Minute), c, "no-such-model", "hello")
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok {
		t.Errorf("unknown model: %v", err)
	}
	_, err = converse(within(t, time.Minute), c, rig.ModelChat, "hello")
	if _, ok := errors.AsType[*types.ValidationException](err); !ok {
		t.Errorf("wrong wire: %v", err)
	}
}

// D9: two variables are enough for one endpoint.
func TestUpstream_TwoVariablesAreEnough(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.Header.Get("Authorization") != "Bearer upstream-key" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if req.URL.Path == "/v1/models" {
			w.Write([]byte(`{"object":"list","data":[{"id":"vendor/some-model","object":"model"}]}`)) //nolint:errcheck // a test server
			return
		}
		var body struct{ Model string }
		if json.NewDecoder(req.Body).Decode(&body) != nil || req.URL.Path != "/v1/chat/completions" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{ //nolint:errcheck // a test server
			"id": "u1", "object": "chat.completion", "created": 1, "model": body.Model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "from the other server, as " + body.Model}}},
		})
	}))
	t.Cleanup(upstream.Close)
	r := ownRig(t, rig.Options{Env: []string{"OPENAI_BASE_URL=" + upstream.URL + "/v1", "OPENAI_API_KEY=upstream-key"}})
	if r.FirstModel != "vendor/some-model" {
		t.Errorf("first model = %q", r.FirstModel)
	}
	for _, model := range []string{rig.ModelChat, "vendor/some-model"} {
		got, err := chat(within(t, time.Minute), openaiClient(r), model, "hello")
		if err != nil {
			t.Fatal(err)
		}
		if want := "from the other server, as " + model; got.Choices[0].Message.Content != want {
			t.Errorf("content = %q, want %q", got.Choices[0].Message.Content, want)
		}
	}
}

func TestUpstream_OwnListenerIsRefused(t *testing.T) {
	t.Parallel()
	_, err := start(rig.Options{HTTP: "127.0.0.1:18099", Env: []string{"OPENAI_BASE_URL=http://localhost:18099/v1", "OPENAI_API_KEY=k"}})
	if err == nil {
		t.Fatal("an upstream that is our own listener was taken")
	}
}

// A8: the Bedrock client of npm speaks HTTP/2 and nothing else, others HTTP/1.1: https serves both.
func TestTLS_SpeaksBothHTTPs(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	pem, err := os.ReadFile(r.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	for _, major := range []int{1, 2} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: major == 2}
		t.Cleanup(tr.CloseIdleConnections)
		req, err := http.NewRequestWithContext(within(t, time.Minute), http.MethodGet, r.TLSURL+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.ProtoMajor != major {
			t.Errorf("HTTP/%d: %s %s", major, resp.Proto, resp.Status)
		}
	}
}
