package openai_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// D12, SEC12: what goes out, byte for byte: the lane's tier, whatever the caller asks for, and none on a target that has none.
func TestCall_D12ServiceTierIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		op         llmq.Op
		tier       llmq.Tier
		body, want string
	}{
		{llmq.OpChat, llmq.TierPriority, `{ "model":"m", "x":1.0 }`, `{"service_tier":"priority", "model":"m", "x":1.0 }`},
		{llmq.OpChat, "", `{ "model":"m" }`, `{ "model":"m" }`},
		{llmq.OpChat, llmq.TierFlex, `{"model":"m","service_tier":"priority"}`, `{"model":"m","service_tier":"flex"}`},
		{llmq.OpChat, "", `{"model":"m","service_tier":"priority"}`, `{"model":"m","service_tier":null}`},
		{llmq.OpChat, llmq.TierFlex, `{"model":"m","service_tier":null}`, `{"model":"m","service_tier":"flex"}`},
		{llmq.OpResponses, llmq.TierDefault, `{"model":"m"}`, `{"store":false,"service_tier":"default","model":"m"}`},
		{llmq.OpEmbeddings, llmq.TierFlex, `{"model":"m"}`, `{"model":"m"}`},
	} {
		var sent string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, aReply)
		}))
		p := open(t, srv.URL+"/v1", fixed(secret))
		if _, err := p.Call(t.Context(), provider.Request{Op: tc.op, ModelID: "m", Body: []byte(tc.body), Tier: tc.tier}); err != nil || sent != tc.want {
			t.Errorf("%s %q of %s: sent %s, %v", tc.op, tc.tier, tc.body, sent, err)
		}
		p.Close()
		srv.Close()
	}
}

// D8: a server that knows no stream_options is asked for none; the usage that it tells of its own accord is passed on.
func TestStream_RefusedStreamOptionsAreNotSent(t *testing.T) {
	t.Parallel()
	var sent string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, data(hello, stop, usage)+"data: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	network := provider.DefaultNetwork()
	network.Loopback = true
	p, err := openai.New(openai.Config{Name: "test", BaseURL: srv.URL, APIKey: fixed(secret), Network: network, RefusesStreamOptions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	got := stream(t.Context(), t, p, chatIn, provider.Pace{})
	if got.err != nil || len(got.events) != 3 || got.resp.Usage == nil || got.resp.Usage.Input != 9 {
		t.Errorf("got %+v, %v", got.events, got.err)
	}
	if sent != `{"model":"m","stream":true,"messages":[]}` {
		t.Errorf("sent %s", sent)
	}
}
