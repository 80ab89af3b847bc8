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

// H25: the four forms of an input pass, and others that servers have; what mixes token numbers with texts is none.
func TestCheck_InputOfEmbeddings(t *testing.T) {
	t.Parallel()
	for input, fits := range map[string]bool{
		`"x"`: true, `["x","y"]`: true, `[1820,1053,382]`: true, `[[1820,1053],[382]]`: true, `[{"text":"x"},"y"]`: true, `null`: true, `""`: true,
		`["x",382]`: false, `[382,"x"]`: false, `[]`: false, `[[]]`: false, `[[1],[]]`: false, `[[1],2]`: false, `[["x"]]`: false, `[[1,"x"]]`: false, `[[1],"x"]`: false, `[1,null]`: false,
	} {
		err := Check(llmq.OpEmbeddings, []byte(`{"model":"m","input":`+input+`}`))
		if fits != (err == nil) || err != nil && (llmq.AsError(err).Code != llmq.CodeInvalidRequest || llmq.AsError(err).Field != "input") {
			t.Errorf("%s: %v", input, err)
		}
	}
	if err := Check(llmq.OpEmbeddings, []byte(`{"model":"m"}`)); err != nil {
		t.Errorf("no input is the provider's to refuse: %v", err)
	}
	if err := Check(llmq.OpResponses, []byte(`{"input":[]}`)); err != nil {
		t.Errorf("an input of responses: %v", err)
	}
}
