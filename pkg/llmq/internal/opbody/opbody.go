// Package opbody reads from a call's body what llmq itself must know of it, and says what of it is not served. Door,
// worker and client look by the same rules, so that none takes what another refuses; a provider's adapter looks once more, at
// the bytes that it sends.
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
