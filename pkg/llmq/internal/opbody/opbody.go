// Package opbody reads from a call's body what llmq itself must know of it, and says what of it this release does not
// serve. Door, worker and client look by the same rules, so that none takes what another refuses.
package opbody

import (
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Stream reads whether the reply is wanted while it comes. The body has passed strictjson, so that gjson's view of it is
// everybody's view. An error is [llmq.CodeInvalidRequest], or [llmq.CodeUnsupported] where a stream of the op is none that
// anybody serves.
func Stream(op llmq.Op, body []byte) (bool, error) {
	if op.Streaming() == llmq.StreamAlways {
		return true, nil
	}
	if op.Wire() != llmq.WireOpenAI { // a member of that name is the model's own affair
		return false, nil
	}
	switch s := gjson.GetBytes(body, "stream"); {
	case s.Type == gjson.Null || s.Type == gjson.False: // missing is Null too
		return false, nil
	case s.Type != gjson.True:
		return false, llmq.Errorf(llmq.CodeInvalidRequest, "stream must be true or false").At("stream")
	case op.Streaming() == llmq.StreamNever:
		return false, llmq.Errorf(llmq.CodeUnsupported, "%s has no streams; leave stream out or set it to false", op).At("stream")
	}
	return true, nil
}

// Check refuses what a body asks for that this release does not serve (FEATURES A20): a response that goes on in the
// provider's background, whose end nobody here would see; and what was stored under the provider's account in an
// earlier call, which is no tenant's own and lies with one target alone. Of embeddings it refuses an input that is none
// anywhere.
func Check(op llmq.Op, body []byte) error {
	switch op { //nolint:exhaustive // of the others nothing is known to be wrong
	case llmq.OpEmbeddings:
		return checkInput(gjson.GetBytes(body, "input"))
	case llmq.OpResponses:
		return checkResponse(body)
	}
	return nil
}

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

func checkResponse(body []byte) error {
	if b := gjson.GetBytes(body, "background"); b.Type != gjson.Null && b.Type != gjson.False {
		return llmq.Errorf(llmq.CodeUnsupported, "background responses are not served by this release; leave background out, and send the call in lane bg or bulk").At("background")
	}
	for _, name := range []string{"previous_response_id", "conversation"} {
		if gjson.GetBytes(body, name).Type != gjson.Null {
			return llmq.Errorf(llmq.CodeUnsupported, "%s is not served by this release, which reads nothing that a provider has stored; send the earlier items in input", name).At(name)
		}
	}
	return nil
}
