package server

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// sseData is a server-sent event without a name. It panics if v can't be encoded, which none of
// ours is.
func sseData(v any) []byte { return append(append([]byte("data: "), encode(v)...), "\n\n"...) }

func sseNamed(name string, v any) []byte {
	return append([]byte("event: "+name+"\n"), sseData(v)...)
}

func encode(v any) []byte {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakellm: encode %T: %v", v, err))
	}
	return encoded
}

type chatDelta struct {
	Role      string         `json:"role,omitzero"`
	Content   jsontext.Value `json:"content,omitzero"` // null, in front of tool calls
	ToolCalls []chatToolCall `json:"tool_calls,omitzero"`
	Refusal   jsontext.Value `json:"refusal,omitzero"`
}

type chunkChoice struct {
	Index        int       `json:"index"`
	Delta        chatDelta `json:"delta"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type chatChunk struct {
	ID                string         `json:"id"`
	Object            string         `json:"object"`
	Created           int64          `json:"created"`
	Model             string         `json:"model"`
	ServiceTier       string         `json:"service_tier"`
	SystemFingerprint string         `json:"system_fingerprint"`
	Choices           []chunkChoice  `json:"choices"`
	Usage             jsontext.Value `json:"usage,omitzero"` // null in all but the last, if it was asked for
}

func doneEvent() event { return event{data: []byte("data: [DONE]\n\n"), end: true} }

// renderStream sends the role first, then the text or the tool calls in pieces, then the reason
// why it ends, then the usage if it was asked for: with no choices, which is what breaks clients
// that take the first one (H22).
func (c chat) renderStream(said completion, id string, took time.Duration) reply {
	null := jsontext.Value("null")
	base := chatChunk{
		ID: "chatcmpl-" + id, Object: "chat.completion.chunk", Created: time.Now().Unix(), Model: c.model,
		ServiceTier: "default", SystemFingerprint: systemFingerprint,
	}
	if c.includeUsage {
		base.Usage = null
	}
	var events []event
	add := func(tokens int, choice chunkChoice) *event {
		chunk := base
		chunk.Choices = []chunkChoice{choice}
		events = append(events, event{data: sseData(chunk), tokens: tokens})
		return &events[len(events)-1]
	}
	for i := range c.choices {
		delta := chatDelta{Role: "assistant", Content: jsontext.Value(`""`), Refusal: null}
		if len(said.tools) > 0 {
			delta.Content = null
		}
		add(0, chunkChoice{Index: i, Delta: delta})
	}
	for i := range c.choices {
		if len(said.tools) == 0 {
			for _, piece := range said.pieces(said.text) {
				add(Tokens(piece), chunkChoice{Index: i, Delta: chatDelta{Content: encode(piece)}})
			}
		}
		for n, t := range said.tools {
			first := chatToolCall{Index: &n, ID: t.ID, Type: "function", Function: chatFunction{Name: t.Name}}
			add(Tokens(t.Name), chunkChoice{Index: i, Delta: chatDelta{ToolCalls: []chatToolCall{first}}})
			for _, piece := range said.pieces(t.Arguments) {
				more := chatToolCall{Index: &n, Function: chatFunction{Arguments: piece}}
				add(Tokens(piece), chunkChoice{Index: i, Delta: chatDelta{ToolCalls: []chatToolCall{more}}})
			}
		}
	}
	for i := range c.choices {
		finish := said.finishReason()
		add(0, chunkChoice{Index: i, FinishReason: &finish}).end = true
	}
	if c.includeUsage {
		chunk := base
		chunk.Choices, chunk.Usage = []chunkChoice{}, encode(c.usage(said))
		events = append(events, event{data: sseData(chunk), end: true})
	}
	events = append(events, doneEvent())
	return openAIStream(id, took, events, breakChatStream)
}

// breakChatStream is an error object in place of a chunk, with nothing after it.
func breakChatStream(f fault) []byte {
	return sseData(openAIErrorBody{completeOpenAI(f).shape()})
}
