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
// earlier call, which is no tenant's own and lies with one target alone.
func Check(op llmq.Op, body []byte) error {
	if op != llmq.OpResponses {
		return nil
	}
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
