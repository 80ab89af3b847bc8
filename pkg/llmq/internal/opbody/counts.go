package opbody

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// maxChoices bounds how many times one call's output is had: more than a reservation counts would be had for nothing.
const maxChoices = 128

// Bounds names the members that bound an op's output, as paths. Of an invocation they are those of the vendors that Bedrock has.
func Bounds(op llmq.Op) []string {
	switch op.Wire() {
	case llmq.WireConverse:
		return []string{"inferenceConfig.maxTokens"}
	case llmq.WireInvoke:
		return []string{
			"max_tokens",                          // Anthropic, Mistral, OpenAI, Cohere, AI21, DeepSeek
			"max_completion_tokens",               // OpenAI
			"max_gen_len",                         // Meta
			"textGenerationConfig.maxTokenCount",  // Titan
			"inferenceConfig.maxTokens",           // Nova
			"inferenceConfig.max_new_tokens",      // Nova, its first name
			"max_tokens_to_sample",                // Anthropic's old completions
			"maxTokens",                           // AI21, its first models
			"generation_config.max_output_tokens", // what imported models of Google's take
		}
	case llmq.WireOpenAI, llmq.WireJob:
	}
	switch op {
	case llmq.OpChat:
		return []string{"max_tokens", "max_completion_tokens"}
	case llmq.OpResponses:
		return []string{"max_output_tokens"}
	default:
		return nil
	}
}

// counts holds what a call may spend to one reading (SECURITY-DESIGN IN3): a whole number in plain digits, under one of its
// names. What reserves tokens for it, and what bills them, could read 1e9 or "5" in two ways.
func counts(op llmq.Op, top gjson.Result) error {
	said := ""
	for _, path := range Bounds(op) {
		v := top.Get(path)
		if v.Type == gjson.Null { // missing is Null too
			continue
		}
		if said != "" {
			return llmq.Errorf(llmq.CodeInvalidRequest, "%s and %s both bound the output; send one of them", said, path).At(path)
		}
		if !plain(v, 999_999_999) {
			return llmq.Errorf(llmq.CodeInvalidRequest, "%s must be a whole number from 1 to 999999999, in digits alone", path).At(path)
		}
		said = path
	}
	if op != llmq.OpChat {
		return nil
	}
	for _, name := range []string{"n", "best_of"} {
		if v := top.Get(name); v.Type != gjson.Null && !plain(v, maxChoices) {
			return llmq.Errorf(llmq.CodeInvalidRequest, "%s must be a whole number from 1 to %d, in digits alone", name, maxChoices).At(name)
		}
	}
	return nil
}

// Choices is how many choices a body asks for that has passed [Check], and which member says so.
func Choices(op llmq.Op, body []byte) (n int, member string) {
	n, member = 1, "n"
	if op != llmq.OpChat {
		return n, member
	}
	for _, name := range []string{"n", "best_of"} {
		if asked := int(gjson.GetBytes(body, name).Int()); asked > n {
			n, member = asked, name
		}
	}
	return n, member
}

func plain(v gjson.Result, most float64) bool {
	return v.Type == gjson.Number && len(v.Raw) <= 9 && strings.Trim(v.Raw, "0123456789") == "" && v.Num >= 1 && v.Num <= most
}
