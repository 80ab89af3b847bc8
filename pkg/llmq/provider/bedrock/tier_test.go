package bedrock

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// D12, SEC12: Converse asks for a tier in its body, InvokeModel by a header; the caller has no say in it. What else goes with an
// invocation's body, such as a guardrail, goes out as it came (A1).
func TestCall_D12ServiceTierIsAskedFor(t *testing.T) {
	t.Parallel()
	const tierHeader, guardrail = "X-Amzn-Bedrock-Service-Tier", "X-Amzn-Bedrock-Guardrailidentifier"
	for _, tc := range []struct {
		op         llmq.Op
		tier       llmq.Tier
		body, want string
		headers    map[string]string
		header     string // tier as it went out
	}{
		{llmq.OpConverse, llmq.TierPriority, `{ "messages":[] }`, `{"serviceTier":{"type":"priority"}, "messages":[] }`, nil, ""},
		{llmq.OpConverse, llmq.TierFlex, `{}`, `{"serviceTier":{"type":"flex"}}`, nil, ""},
		{llmq.OpConverse, llmq.TierFlex, `{"serviceTier":{"type":"priority"}}`, `{"serviceTier":{"type":"flex"}}`, nil, ""},
		{llmq.OpConverse, "", `{"serviceTier":{"type":"priority"}, "x":1}`, `{"serviceTier":null, "x":1}`, nil, ""},
		{llmq.OpConverse, "", `{}`, `{}`, nil, ""},
		{llmq.OpInvoke, llmq.TierFlex, `{ "max_tokens":1 }`, `{ "max_tokens":1 }`, map[string]string{guardrail: "gr-1"}, "flex"},
		{llmq.OpInvoke, llmq.TierFlex, `{}`, `{}`, map[string]string{tierHeader: "priority"}, "flex"},
		{llmq.OpInvoke, "", `{}`, `{}`, map[string]string{tierHeader: "priority"}, ""},
		{llmq.OpInvoke, "", `{}`, `{}`, nil, ""},
	} {
		var sent string
		var got http.Header
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent, got = string(body), r.Header.Clone()
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"output":{}}`)
		}))
		p := open(t, Config{Endpoint: srv.URL, Credentials: static})
		_, err := p.Call(t.Context(), provider.Request{Op: tc.op, ModelID: "m", Body: []byte(tc.body), Headers: tc.headers, Tier: tc.tier})
		if err != nil || sent != tc.want || got.Get(tierHeader) != tc.header || got.Get(guardrail) != tc.headers[guardrail] {
			t.Errorf("%s %q of %s: sent %s %v, %v", tc.op, tc.tier, tc.body, sent, got, err)
		}
		p.Close()
		srv.Close()
	}
}
