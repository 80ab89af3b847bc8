package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// parseInvoke reads the body of InvokeModel and InvokeModelWithResponseStream. The body is the
// model's own, so its members tell whose: "messages" is Anthropic's, "inputText" Titan's embeddings.
func parseInvoke(a *ask, body []byte) *fault {
	a.operation = operationInvoke
	var members map[string]jsontext.Value
	if json.Unmarshal(body, &members) != nil || members == nil {
		return validation("Malformed input request, please reformat your input and try again.")
	}
	if _, is := members["inputText"]; is {
		return parseTitan(a, body)
	}
	return parseAnthropic(a, body)
}

func malformed(place, message string) *fault {
	return validation(fmt.Sprintf("Malformed input request: #: %s: %s, please reformat your input and try again.", place, message))
}

func parseAnthropic(a *ask, body []byte) *fault {
	var in struct {
		AnthropicVersion string         `json:"anthropic_version"`
		MaxTokens        *int           `json:"max_tokens"`
		System           jsontext.Value `json:"system"`
		Messages         []struct {
			Role    string         `json:"role"`
			Content jsontext.Value `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return malformed("body", "a member has the wrong type")
	}
	switch {
	case in.AnthropicVersion == "":
		return validation("anthropic_version: Field required")
	case in.AnthropicVersion != "bedrock-2023-05-31":
		return validation("Invalid API version")
	case in.MaxTokens == nil:
		return validation("max_tokens: Field required")
	case *in.MaxTokens < 1:
		return validation("max_tokens: Input should be greater than or equal to 1")
	case len(in.Messages) == 0:
		return validation("messages: at least one message is required")
	}
	system, f := anthropicText("system", in.System)
	if f != nil {
		return f
	}
	bytes := len(system)
	for i, m := range in.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return validation(fmt.Sprintf("messages.%d.role: Input should be 'user' or 'assistant'", i))
		}
		place := fmt.Sprintf("messages.%d.content", i)
		if absent(m.Content) {
			return validation(place + ": Field required")
		}
		text, f := anthropicText(place, m.Content)
		if f != nil {
			return f
		}
		bytes += len(text)
		if m.Role == "user" {
			a.lastUser = text
		}
	}
	a.input, a.maxTokens = tokens(bytes), *in.MaxTokens
	model := a.model
	if a.stream {
		a.render = func(c completion, id string, _ time.Duration) reply { return renderAnthropicStream(model, c, id) }
	} else {
		a.render = func(c completion, id string, took time.Duration) reply { return renderAnthropic(model, c, id, took) }
	}
	return nil
}

// anthropicText reads a string, or a list of blocks of which only texts are read.
func anthropicText(place string, raw jsontext.Value) (string, *fault) {
	if absent(raw) {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &blocks) != nil {
		return "", validation(place + ": Input should be a valid string or a list of blocks")
	}
	var all strings.Builder
	for i, b := range blocks {
		if b.Type == "" {
			return "", validation(fmt.Sprintf("%s.%d.type: Field required", place, i))
		}
		if b.Type == "text" {
			all.WriteString(b.Text)
		}
	}
	return all.String(), nil
}

type anthropicBlock struct {
	Type  string         `json:"type"`
	Text  *string        `json:"text,omitzero"`
	ID    string         `json:"id,omitzero"`
	Name  string         `json:"name,omitzero"`
	Input jsontext.Value `json:"input,omitzero"`
}

type anthropicUsage struct {
	InputTokens              int `json:"input_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
	OutputTokens             int `json:"output_tokens"`
}

type anthropicMessage struct {
	Model        string           `json:"model"`
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Content      []anthropicBlock `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        anthropicUsage   `json:"usage"`
}

func renderAnthropic(model string, c completion, id string, took time.Duration) reply {
	blocks := []anthropicBlock{{Type: "text", Text: &c.text}}
	if len(c.tools) > 0 {
		blocks = nil
		for _, t := range c.tools {
			blocks = append(blocks, anthropicBlock{Type: "tool_use", ID: t.ID, Name: t.Name, Input: jsontext.Value(t.Arguments)})
		}
	}
	stop := c.stopReason()
	re := bedrockReply(http.StatusOK, id, anthropicMessage{
		Model: model, ID: "msg_bdrk_" + id, Type: "message", Role: "assistant", Content: blocks, StopReason: &stop,
		Usage: anthropicUsage{InputTokens: c.input, OutputTokens: c.output},
	})
	tellInvocation(re.header, c, took)
	return re
}

// tellInvocation sets the headers that InvokeModel tells the usage in, whatever the body is.
func tellInvocation(h http.Header, c completion, took time.Duration) {
	h.Set("X-Amzn-Bedrock-Input-Token-Count", itoa(c.input))
	h.Set("X-Amzn-Bedrock-Output-Token-Count", itoa(c.output))
	h.Set("X-Amzn-Bedrock-Invocation-Latency", itoa(int(took.Milliseconds())))
}

// chunkFrame wraps an event of the model's own in Bedrock's frame.
func chunkFrame(v any) []byte {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakellm: encode %T: %v", v, err)) // a type of ours
	}
	return eventFrame("chunk", struct {
		Bytes string `json:"bytes"`
	}{base64.StdEncoding.EncodeToString(encoded)})
}

type object = map[string]any

// ordered keeps the order of members that a map would lose.
func typed(kind string, rest ...any) jsontext.Value {
	pairs := append([]any{"type", kind}, rest...)
	out := []byte("{")
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		for j, part := range pairs[i : i+2] {
			encoded, err := json.Marshal(part)
			if err != nil {
				panic(fmt.Sprintf("fakellm: encode %T: %v", part, err)) // a type of ours
			}
			if j == 1 {
				out = append(out, ':')
			}
			out = append(out, encoded...)
		}
	}
	return append(out, '}')
}

// renderAnthropicStream has the events of Anthropic's own API, and Bedrock's metrics in the last.
func renderAnthropicStream(model string, c completion, id string) reply {
	var events []event
	add := func(tokens int, kind string, rest ...any) {
		events = append(events, event{data: chunkFrame(typed(kind, rest...)), tokens: tokens})
	}
	add(0, "message_start", "message", anthropicMessage{
		Model: model, ID: "msg_bdrk_" + id, Type: "message", Role: "assistant", Content: []anthropicBlock{},
		Usage: anthropicUsage{InputTokens: c.input, OutputTokens: min(1, c.output)},
	})
	if len(c.tools) == 0 {
		add(0, "content_block_start", "index", 0, "content_block", typed("text", "text", ""))
		for _, piece := range c.pieces(c.text) {
			add(Tokens(piece), "content_block_delta", "index", 0, "delta", typed("text_delta", "text", piece))
		}
		add(0, "content_block_stop", "index", 0)
	}
	for i, t := range c.tools {
		add(Tokens(t.Name), "content_block_start", "index", i, "content_block", typed("tool_use", "id", t.ID, "name", t.Name, "input", object{}))
		for _, piece := range c.pieces(t.Arguments) {
			add(Tokens(piece), "content_block_delta", "index", i, "delta", typed("input_json_delta", "partial_json", piece))
		}
		add(0, "content_block_stop", "index", i)
	}
	add(0, "message_delta", "delta", struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}{c.stopReason(), nil}, "usage", struct {
		OutputTokens int `json:"output_tokens"`
	}{c.output})
	events[len(events)-1].end = true
	var first time.Duration
	events[0].late = func(took time.Duration) []byte { first = took; return events[0].data }
	events = append(events, event{end: true, late: func(took time.Duration) []byte {
		return chunkFrame(typed("message_stop", "amazon-bedrock-invocationMetrics", invocationMetrics{
			c.input, c.output, took.Milliseconds(), first.Milliseconds(),
		}))
	}})
	re := bedrockStream(id, events)
	re.header.Set("X-Amzn-Bedrock-Content-Type", "application/json")
	return re
}

type invocationMetrics struct {
	InputTokenCount   int   `json:"inputTokenCount"`
	OutputTokenCount  int   `json:"outputTokenCount"`
	InvocationLatency int64 `json:"invocationLatency"`
	FirstByteLatency  int64 `json:"firstByteLatency"`
}
