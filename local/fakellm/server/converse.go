package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type contentBlock struct {
	Text *string `json:"text"`
}

// parseConverse reads the body of Converse and ConverseStream, which is the same.
func parseConverse(a *ask, body []byte) *fault {
	a.operation = operationConverse
	if len(body) == 0 {
		body = []byte("{}") // the members of an empty body are those of an empty object
	}
	var in struct {
		Messages []struct {
			Role    string           `json:"role"`
			Content []jsontext.Value `json:"content"`
		} `json:"messages"`
		System          []contentBlock `json:"system"`
		InferenceConfig *struct {
			MaxTokens *int `json:"maxTokens"`
		} `json:"inferenceConfig"`
	}
	if err := json.Unmarshal(body, &in); err != nil || !isObject(body) {
		return &fault{code: "SerializationException"}
	}
	if len(in.Messages) == 0 || in.Messages[0].Role == "assistant" {
		return validation("A conversation must start with a user message. Try again with a conversation that starts with a user message.")
	}
	bytes := 0
	for i, block := range in.System {
		if block.Text == nil {
			continue
		}
		if strings.TrimSpace(*block.Text) == "" { // H23
			return validation(fmt.Sprintf("The text field in the SystemContentBlock object at system.%d is blank. "+
				"Add text to the text field, and try again.", i))
		}
		bytes += len(*block.Text)
	}
	for i, message := range in.Messages {
		if message.Role != "user" && message.Role != "assistant" {
			return validation(fmt.Sprintf("1 validation error detected: Value '%s' at 'messages.%d.member.role' failed to satisfy "+
				"constraint: Member must satisfy enum value set: [user, assistant]", message.Role, i+1))
		}
		text, f := parseBlocks(i, message.Content)
		if f != nil {
			return f
		}
		bytes += len(text)
		if message.Role == "user" {
			a.lastUser = text
		}
	}
	a.input = tokens(bytes)
	if in.InferenceConfig != nil && in.InferenceConfig.MaxTokens != nil {
		a.maxTokens = *in.InferenceConfig.MaxTokens
		if a.maxTokens < 1 {
			return validation(fmt.Sprintf("1 validation error detected: Value '%d' at 'inferenceConfig.maxTokens' failed to satisfy "+
				"constraint: Member must have value greater than or equal to 1", a.maxTokens))
		}
	}
	if a.stream {
		a.render = renderConverseStream
	} else {
		a.render = renderConverse
	}
	return nil
}

// isObject says whether valid JSON is an object.
func isObject(body []byte) bool {
	trimmed := strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n")
	return strings.HasPrefix(trimmed, "{")
}

// parseBlocks joins the texts of a message's blocks. Blocks of other kinds are let through unread.
func parseBlocks(message int, blocks []jsontext.Value) (string, *fault) {
	if len(blocks) == 0 {
		return "", validation(fmt.Sprintf("The content field in the Message object at messages.%d is empty. "+
			"Add a ContentBlock object to the content field and try again.", message))
	}
	var all strings.Builder
	for i, raw := range blocks {
		var members map[string]jsontext.Value
		if json.Unmarshal(raw, &members) != nil || len(members) != 1 {
			return "", validation(fmt.Sprintf("The ContentBlock object at messages.%d.content.%d must set one of the following keys: "+
				"text, image, toolUse, toolResult, document, video, cachePoint.", message, i))
		}
		rawText, isText := members["text"]
		if !isText {
			continue
		}
		var text string
		if json.Unmarshal(rawText, &text) != nil {
			return "", &fault{code: "SerializationException"}
		}
		if strings.TrimSpace(text) == "" {
			return "", validation(fmt.Sprintf("The text field in the ContentBlock object at messages.%d.content.%d is blank. "+
				"Add text to the text field, and try again.", message, i))
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

type converseToolUse struct {
	ToolUseID string         `json:"toolUseId"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
}

type converseBlock struct {
	Text    *string          `json:"text,omitzero"`
	ToolUse *converseToolUse `json:"toolUse,omitzero"`
}

type converseMessage struct {
	Content []converseBlock `json:"content"`
	Role    string          `json:"role"`
}

type converseMetrics struct {
	LatencyMs int64 `json:"latencyMs"`
}

type converseOutput struct {
	Message converseMessage `json:"message"`
}

type converseUsage struct {
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	TotalTokens  int `json:"totalTokens"`
}

type converseResponse struct {
	Metrics    converseMetrics `json:"metrics"`
	Output     converseOutput  `json:"output"`
	StopReason string          `json:"stopReason"`
	Usage      converseUsage   `json:"usage"`
}

// stopReason is Bedrock's and Anthropic's.
func (c completion) stopReason() string {
	switch {
	case len(c.tools) > 0:
		return "tool_use"
	case c.cut:
		return "max_tokens"
	default:
		return "end_turn"
	}
}

func (c completion) converseUsage() converseUsage {
	return converseUsage{InputTokens: c.input, OutputTokens: c.output, TotalTokens: c.input + c.output}
}

func renderConverse(c completion, id string, took time.Duration) reply {
	blocks := []converseBlock{{Text: &c.text}}
	if len(c.tools) > 0 {
		blocks = nil
		for _, t := range c.tools {
			blocks = append(blocks, converseBlock{ToolUse: &converseToolUse{t.ID, t.Name, jsontext.Value(t.Arguments)}})
		}
	}
	return bedrockReply(http.StatusOK, id, converseResponse{
		Metrics:    converseMetrics{LatencyMs: took.Milliseconds()},
		Output:     converseOutput{Message: converseMessage{Content: blocks, Role: "assistant"}},
		StopReason: c.stopReason(),
		Usage:      c.converseUsage(),
	})
}

type (
	converseStart struct {
		Role string `json:"role"`
	}
	converseBlockStart struct {
		ContentBlockIndex int `json:"contentBlockIndex"`
		Start             struct {
			ToolUse struct {
				Name      string `json:"name"`
				ToolUseID string `json:"toolUseId"`
			} `json:"toolUse"`
		} `json:"start"`
	}
	converseToolDelta struct {
		Input string `json:"input"`
	}
	converseDelta struct {
		Text    *string            `json:"text,omitzero"`
		ToolUse *converseToolDelta `json:"toolUse,omitzero"`
	}
	converseBlockDelta struct {
		ContentBlockIndex int           `json:"contentBlockIndex"`
		Delta             converseDelta `json:"delta"`
	}
	converseBlockStop struct {
		ContentBlockIndex int `json:"contentBlockIndex"`
	}
	converseStop struct {
		StopReason string `json:"stopReason"`
	}
	converseMetadata struct {
		Metrics converseMetrics `json:"metrics"`
		Usage   converseUsage   `json:"usage"`
	}
)

// renderConverseStream frames messageStart, then for each block its start (of a tool only), deltas
// and stop, then messageStop and the metadata, which alone have the usage.
func renderConverseStream(c completion, id string, _ time.Duration) reply {
	events := []event{{data: eventFrame("messageStart", converseStart{"assistant"})}}
	delta := func(block int, piece string, d converseDelta) {
		events = append(events, event{
			data: eventFrame("contentBlockDelta", converseBlockDelta{block, d}), tokens: Tokens(piece),
		})
	}
	stop := func(block int) {
		events = append(events, event{data: eventFrame("contentBlockStop", converseBlockStop{block})})
	}
	if len(c.tools) == 0 {
		for _, piece := range c.pieces(c.text) {
			delta(0, piece, converseDelta{Text: &piece})
		}
		stop(0)
	}
	for i, t := range c.tools {
		start := converseBlockStart{ContentBlockIndex: i}
		start.Start.ToolUse.Name, start.Start.ToolUse.ToolUseID = t.Name, t.ID
		events = append(events, event{data: eventFrame("contentBlockStart", start), tokens: Tokens(t.Name)})
		for _, piece := range c.pieces(t.Arguments) {
			delta(i, piece, converseDelta{ToolUse: &converseToolDelta{piece}})
		}
		stop(i)
	}
	events = append(events,
		event{data: eventFrame("messageStop", converseStop{c.stopReason()}), end: true},
		event{end: true, late: func(took time.Duration) []byte {
			return eventFrame("metadata", converseMetadata{converseMetrics{took.Milliseconds()}, c.converseUsage()})
		}},
	)
	return bedrockStream(id, events)
}
