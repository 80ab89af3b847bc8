package llmq_test

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestCheckHeaders_TakesThoseOfInvocationsOnly(t *testing.T) {
	t.Parallel()
	const trace = "X-Amzn-Bedrock-Trace"
	for _, tc := range []struct {
		op    llmq.Op
		in    map[string]string
		field string // "": taken
	}{
		{llmq.OpInvoke, nil, ""},
		{llmq.OpChat, nil, ""},
		{llmq.OpInvoke, map[string]string{trace: "ENABLED", "X-Amzn-Bedrock-Guardrailidentifier": "gr-1"}, ""},
		{llmq.OpInvokeStream, map[string]string{"X-Amzn-Bedrock-Request-Metadata": `{"a":"b c"}`}, ""},
		{llmq.OpConverse, map[string]string{trace: "ENABLED"}, "headers"},
		{llmq.OpInvoke, map[string]string{"Authorization": "x"}, "headers"},
		{llmq.OpInvoke, map[string]string{"x-amzn-bedrock-trace": "ENABLED"}, "headers"},
		{llmq.OpInvoke, map[string]string{trace: ""}, trace},
		{llmq.OpInvoke, map[string]string{trace: "a\r\nAuthorization: b"}, trace},
		{llmq.OpInvoke, map[string]string{trace: strings.Repeat("a", llmq.MaxHeaderBytes)}, "headers"},
	} {
		err := tc.op.CheckHeaders(tc.in)
		if tc.field == "" != (err == nil) || err != nil && llmq.AsError(err).Field != tc.field {
			t.Errorf("%s %.60v: %v", tc.op, tc.in, err)
		}
	}
}
