package opbody

import (
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// checkInput refuses an input of embeddings that is a list of nothing, or in which token numbers stand beside
// something else. What else an input may be is for the provider to say.
func checkInput(input gjson.Result) error {
	bad := func(says string) error { return llmq.Errorf(llmq.CodeInvalidRequest, "%s", says).At("input") }
	if !input.IsArray() {
		return nil
	}
	count := map[string]int{}
	empty, strange := false, false
	input.ForEach(func(_, item gjson.Result) bool {
		kind := "other"
		switch {
		case item.Type == gjson.Number:
			kind = "number"
		case item.IsArray():
			kind = "list"
			tokens := 0
			item.ForEach(func(_, token gjson.Result) bool {
				tokens++
				strange = strange || token.Type != gjson.Number
				return !strange
			})
			empty = empty || tokens == 0
		}
		count[kind]++
		return !empty && !strange && len(count) == 1
	})
	switch {
	case len(count) == 0 || empty:
		return bad("input is a list of nothing; send texts, token numbers, or lists of token numbers")
	case strange || len(count) > 1:
		return bad("input mixes token numbers with something else; send texts, token numbers, or lists of token numbers")
	}
	return nil
}
