package openai_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// sender makes calls to one upstream and returns the bytes that it saw; "" is none.
func sender(t *testing.T, change func(*openai.Config)) func(provider.Request) (string, error) {
	t.Helper()
	var sent string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, aReply)
	}))
	t.Cleanup(srv.Close)
	cfg := openai.Config{Name: "test", BaseURL: srv.URL, APIKey: fixed(secret), Network: provider.DefaultNetwork()}
	cfg.Network.Loopback = true
	change(&cfg)
	p, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return func(r provider.Request) (string, error) {
		sent, r.ModelID = "", "m"
		_, err := p.Call(t.Context(), r)
		return sent, err
	}
}

// SEC12, IN5: what goes out, byte for byte: replies are not kept, and a place in a cache is the tenant's own.
func TestCall_SEC12ForcedFieldsAreInTheBytesSent(t *testing.T) {
	t.Parallel()
	public := sender(t, func(*openai.Config) {})
	key := func(tenant, v string) string { return `"` + provider.Scoped(tenant, v) + `"` }
	for _, tc := range []struct {
		send       func(provider.Request) (string, error)
		op         llmq.Op
		body, want string
	}{
		{public, llmq.OpChat, `{"model":"m"}`, `{"model":"m"}`},
		{public, llmq.OpChat, `{"model":"m","store":true}`, `{"model":"m","store":false}`},
		{public, llmq.OpChat, `{"model":"m","store":false}`, `{"model":"m","store":false}`},
		{public, llmq.OpResponses, `{"model":"m","store":true}`, `{"model":"m","store":false}`},
		{public, llmq.OpResponses, `{"model":"m","store":null}`, `{"model":"m","store":false}`},
		{public, llmq.OpResponses, `{"model":"m"}`, `{"store":false,"model":"m"}`},
		{public, llmq.OpChat, `{"model":"m","prompt_cache_key":"k\u0031"}`, `{"model":"m","prompt_cache_key":` + key("acme", "k1") + `}`},
		{public, llmq.OpChat, `{"model":"m","cache_salt":"s"}`, `{"model":"m","cache_salt":` + key("acme", "s") + `}`},
	} {
		if sent, err := tc.send(provider.Request{Op: tc.op, Body: []byte(tc.body), Tenant: "acme"}); err != nil || sent != tc.want {
			t.Errorf("%s of %s:\nsent %s, %v\nwant %s", tc.op, tc.body, sent, err, tc.want)
		}
	}
}

// SEC12: what must not be sent is not sent, and the call ends as its caller's fault.
func TestCall_SEC12RefusedFieldsAreNotSent(t *testing.T) {
	t.Parallel()
	public := sender(t, func(*openai.Config) {})
	open := sender(t, func(c *openai.Config) { c.RemoteMedia = true })
	const link = `{"model":"m","messages":[{"content":[{"image_url":{"url":"https://x.example/a"}}]}]}`
	for _, tc := range []struct {
		send  func(provider.Request) (string, error)
		req   provider.Request
		field string // "" is sent
	}{
		{public, provider.Request{Op: llmq.OpChat, Body: []byte(`{"model":"m","api_base":"x"}`)}, "api_base"},
		{public, provider.Request{Op: llmq.OpChat, Body: []byte(link)}, "messages.0.content.0.image_url.url"},
		{open, provider.Request{Op: llmq.OpChat, Body: []byte(link)}, ""},
		{public, provider.Request{Op: llmq.OpResponses, Body: []byte(`{"model":"m","tools":[{"type":"mcp"}]}`)}, "tools.0.type"},
		{public, provider.Request{Op: llmq.OpResponses, Body: []byte(`{"model":"m","tools":[{"type":"mcp"}]}`), HostedTools: []string{"mcp"}}, ""},
	} {
		sent, err := tc.send(tc.req)
		if tc.field == "" {
			if err != nil || sent == "" {
				t.Errorf("%s: %v", tc.req.Body, err)
			}
			continue
		}
		pe, ok := errors.AsType[*provider.Error](err)
		if !ok || sent != "" || pe.Class != provider.CallFatal || !pe.Unsent {
			t.Errorf("%s: sent %s, %v", tc.req.Body, sent, err)
			continue
		}
		if own, ok := errors.AsType[*llmq.Error](pe.Err); !ok || own.Field != tc.field || own.Code != pe.Code {
			t.Errorf("%s: %v", tc.req.Body, pe.Err)
		}
	}
}
