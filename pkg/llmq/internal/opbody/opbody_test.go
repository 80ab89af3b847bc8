package opbody

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestStream_IsSaidByTheOpOrItsBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		op   llmq.Op
		body string
		want bool
		code llmq.Code
	}{
		{llmq.OpChat, `{}`, false, ""},
		{llmq.OpChat, `{"stream":true}`, true, ""},
		{llmq.OpChat, `{"stream":null,"x":{"stream":true}}`, false, ""},
		{llmq.OpChat, `{"stream":1}`, false, llmq.CodeInvalidRequest},
		{llmq.OpResponses, `{"stream":true}`, true, ""},
		{llmq.OpResponses, `{"stream":false}`, false, ""},
		{llmq.OpEmbeddings, `{"stream":true}`, false, llmq.CodeUnsupported},
		{llmq.OpConverse, `{"stream":true}`, false, ""},
		{llmq.OpConverseStream, `{}`, true, ""},
		{llmq.OpInvoke, `{"stream":true}`, false, ""}, // Cohere's body has such a member
		{llmq.OpInvokeStream, `{"stream":false}`, true, ""},
	} {
		got, err := Stream(tc.op, []byte(tc.body))
		if got != tc.want || tc.code == "" != (err == nil) || err != nil && (llmq.AsError(err).Code != tc.code || llmq.AsError(err).Field != "stream") {
			t.Errorf("%s %s: %t, %v", tc.op, tc.body, got, err)
		}
	}
}

// A20: what comes later is refused plainly, and store is the provider's affair.
func TestCheck_RefusesStoredAndBackgroundResponses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		op          llmq.Op
		body, field string
	}{
		{llmq.OpResponses, `{"input":"hi"}`, ""},
		{llmq.OpResponses, `{"store":true,"background":false,"previous_response_id":null,"conversation":null}`, ""},
		{llmq.OpResponses, `{"background":true}`, "background"},
		{llmq.OpResponses, `{"background":"true"}`, "background"},
		{llmq.OpResponses, `{"previous_response_id":"resp_1"}`, "previous_response_id"},
		{llmq.OpResponses, `{"conversation":{"id":"conv_1"}}`, "conversation"},
		{llmq.OpChat, `{"background":true,"conversation":"x"}`, ""},
		{llmq.OpInvoke, `{"background":true}`, ""},
	} {
		err := Check(tc.op, []byte(tc.body))
		if tc.field == "" != (err == nil) || err != nil && (llmq.AsError(err).Code != llmq.CodeUnsupported || llmq.AsError(err).Field != tc.field) {
			t.Errorf("%s %s: %v", tc.op, tc.body, err)
		}
	}
}
