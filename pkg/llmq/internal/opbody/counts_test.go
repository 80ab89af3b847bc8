package opbody

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// SEC11, IN3: a bound of output is a whole number in plain digits, under one of its names; null is none.
func TestCheck_SEC11CountsHaveOneReading(t *testing.T) {
	t.Parallel()
	for _, where := range []struct {
		op          llmq.Op
		field, body string // @ is the value
	}{
		{llmq.OpChat, "max_tokens", `{"max_tokens":@}`},
		{llmq.OpChat, "max_completion_tokens", `{"max_completion_tokens":@}`},
		{llmq.OpChat, "n", `{"n":@}`},
		{llmq.OpChat, "best_of", `{"best_of":@}`},
		{llmq.OpResponses, "max_output_tokens", `{"max_output_tokens":@}`},
		{llmq.OpConverse, "inferenceConfig.maxTokens", `{"inferenceConfig":{"maxTokens":@}}`},
		{llmq.OpInvoke, "max_tokens", `{"max_tokens":@}`},
		{llmq.OpInvokeStream, "textGenerationConfig.maxTokenCount", `{"textGenerationConfig":{"maxTokenCount":@}}`},
	} {
		for value, good := range map[string]bool{
			"1": true, "64": true, "null": true,
			"0": false, "-1": false, "1e9": false, "1e2": false, "5.0": false, `"5"`: false, "9223372036854775808": false, "1000000000": false, "true": false, "[5]": false,
		} {
			err := Check(where.op, []byte(strings.Replace(where.body, "@", value, 1)))
			if good != (err == nil) || err != nil && (llmq.AsError(err).Code != llmq.CodeInvalidRequest || llmq.AsError(err).Field != where.field) {
				t.Errorf("%s %s of %s: %v", where.op, where.field, value, err)
			}
		}
	}
	for body, good := range map[string]bool{
		`{"max_tokens":5,"max_completion_tokens":5}`:    false,
		`{"max_tokens":5,"max_completion_tokens":null}`: true,
		`{"max_tokens":999999999}`:                      true,
		`{"n":128}`:                                     true,
		`{"n":129}`:                                     false,
	} {
		if err := Check(llmq.OpChat, []byte(body)); good != (err == nil) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
