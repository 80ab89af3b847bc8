package engine

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// C13: who asks for more than a budget ever holds is told so by the name that the own wire has for it.
func TestAsk_NamesTheCallersOwnField(t *testing.T) {
	t.Parallel()
	target := llmq.Target{Model: "m", Name: "t", Limits: llmq.Limits{Rates: llmq.Rates{TPM: 1000, Fixed: true}}}
	for op, field := range map[llmq.Op]string{
		llmq.OpChat: "max_tokens", llmq.OpResponses: "max_output_tokens", llmq.OpConverse: "inferenceConfig.maxTokens", llmq.OpConverseStream: "inferenceConfig.maxTokens",
		llmq.OpInvoke: "", llmq.OpInvokeStream: "", llmq.OpEmbeddings: "",
	} {
		a := ask{target: target, lane: llmq.LaneRT, load: provider.Load{InputChars: 4, MaxOutput: 5000}, most: mostOf(op)}
		e := llmq.AsError(new(capacity.Gate).Check(a.capacity()))
		if e.Code != llmq.CodeInvalidRequest || e.Field != field || !strings.Contains(e.Message, "send a smaller "+field) || field == "" && strings.Contains(e.Message, "max") {
			t.Errorf("%s: %v at %q", op, e, e.Field)
		}
	}
}
