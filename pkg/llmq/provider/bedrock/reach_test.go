package bedrock

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// SEC12, SEC13, EG4: Bedrock would read s3Location with this deployment's role. It is asked for nothing that reaches outside.
func TestCall_SEC13NothingThatReachesOutsideIsSent(t *testing.T) {
	t.Parallel()
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"output":{}}`)
	}))
	t.Cleanup(srv.Close)
	p := open(t, Config{Endpoint: srv.URL, Credentials: static})
	const image = `{"messages":[{"content":[{"image":{"format":"png","source":{"s3Location":{"uri":"s3://data/off/x","bucketOwner":"1"}}}}]}]}`
	for _, tc := range []struct {
		op          llmq.Op
		body, field string
	}{
		{llmq.OpConverse, image, "messages.0.content.0.image.source.s3Location"},
		{llmq.OpInvoke, image, "messages.0.content.0.image.source.s3Location"},
		{llmq.OpConverse, `{"inferenceConfig":{"maxTokens":1e9}}`, "inferenceConfig.maxTokens"},
		{llmq.OpConverse, `{"additionalModelRequestFields":{"base_url":"x"}}`, "additionalModelRequestFields.base_url"},
		{llmq.OpInvoke, `{"mcp_servers":[{}]}`, "mcp_servers"},
		{llmq.OpInvoke, `{"messages":[{"content":[{"source":{"type":"url","url":"https://x.example"}}]}]}`, "messages.0.content.0.source.url"},
	} {
		_, err := p.Call(t.Context(), provider.Request{Op: tc.op, ModelID: "m", Body: []byte(tc.body)})
		pe, ok := errors.AsType[*provider.Error](err)
		if !ok || pe.Class != provider.CallFatal || !pe.Unsent {
			t.Errorf("%s %s: %v", tc.op, tc.body, err)
			continue
		}
		if own, ok := errors.AsType[*llmq.Error](pe.Err); !ok || own.Field != tc.field {
			t.Errorf("%s %s: %v", tc.op, tc.body, pe.Err)
		}
	}
	if calls != 0 {
		t.Errorf("%d calls went out", calls)
	}
	tools := provider.Request{
		Op: llmq.OpConverse, ModelID: "m", Body: []byte(`{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}`), HostedTools: []string{"nova_grounding"},
	}
	if _, err := p.Call(t.Context(), tools); err != nil || calls != 1 {
		t.Errorf("a listed tool: %v", err)
	}
}
