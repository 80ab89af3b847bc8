package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxChoices is OpenAI's bound of the field "n".
const maxChoices = 128

// chat is a chat completion that was understood.
type chat struct {
	model        string
	lastUser     string // text of the last user message, or of the last message if no user spoke
	promptTokens int
	maxTokens    int // 0: none
	choices      int
	stream       bool
	includeUsage bool // in the stream
}

func (o openAIWire) parseChat(body []byte) (ask, *fault) {
	var in struct {
		Model               jsontext.Value `json:"model"`
		Messages            jsontext.Value `json:"messages"`
		N                   jsontext.Value `json:"n"`
		MaxTokens           jsontext.Value `json:"max_tokens"`
		MaxCompletionTokens jsontext.Value `json:"max_completion_tokens"`
		Stream              jsontext.Value `json:"stream"`
		StreamOptions       jsontext.Value `json:"stream_options"`
	}
	if f := decode(body, &in); f != nil {
		return ask{}, f
	}
	a := ask{operation: operationChat}
	var c chat
	var f *fault
	c.model, f = o.parseModel(in.Model)
	a.model = c.model
	if f != nil {
		return a, f
	}
	if f := c.parseMessages(in.Messages); f != nil {
		return a, f
	}
	if f := c.parseLimits(in.N, in.MaxTokens, in.MaxCompletionTokens); f != nil {
		return a, f
	}
	if f := c.parseStream(in.Stream, in.StreamOptions); f != nil {
		return a, f
	}
	if c.choices*len(c.lastUser) > maxAnswerBytes {
		return a, invalid("n", "invalid_value", fmt.Sprintf("Invalid 'n': the choices would have more than %d bytes.", maxAnswerBytes))
	}
	a.lastUser, a.input, a.maxTokens, a.choices = c.lastUser, c.promptTokens, c.maxTokens, c.choices
	if a.stream = c.stream; a.stream {
		a.render = c.renderStream
	} else {
		a.render = c.render
	}
	return a, nil
}

func (c *chat) parseLimits(n, maxTokens, maxCompletionTokens jsontext.Value) *fault {
	var f *fault
	if c.choices, f = parseInt("n", n); f != nil {
		return f
	}
	c.choices = max(1, c.choices)
	if c.choices > maxChoices {
		return invalid("n", "integer_above_max_value",
			fmt.Sprintf("Invalid 'n': integer above maximum value. Expected a value <= %d, but got %d instead.", maxChoices, c.choices))
	}
	old, f := parseInt("max_tokens", maxTokens)
	if f != nil {
		return f
	}
	if c.maxTokens, f = parseInt("max_completion_tokens", maxCompletionTokens); f != nil {
		return f
	}
	if old > 0 && c.maxTokens > 0 {
		return invalid("max_tokens", "invalid_parameter_combination",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	c.maxTokens = max(old, c.maxTokens)
	return nil
}

func (c *chat) parseStream(stream, options jsontext.Value) *fault {
	var f *fault
	if c.stream, f = parseBool("stream", stream); f != nil {
		return f
	}
	if absent(options) {
		return nil
	}
	if !c.stream {
		return invalid("stream_options", noCode, "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	var in struct {
		IncludeUsage jsontext.Value `json:"include_usage"`
	}
	if json.Unmarshal(options, &in) != nil || options[0] != '{' {
		return wrongType("stream_options", "an object", options)
	}
	c.includeUsage, f = parseBool("stream_options.include_usage", in.IncludeUsage)
	return f
}

func (c *chat) parseMessages(raw jsontext.Value) *fault {
	if absent(raw) {
		return missing("messages")
	}
	var messages []jsontext.Value
	if json.Unmarshal(raw, &messages) != nil {
		return wrongType("messages", "an array of objects", raw)
	}
	if len(messages) == 0 {
		return invalid("messages", "empty_array",
			"Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	bytes, userSpoke := 0, false
	for i, message := range messages {
		role, text, f := parseMessage(fmt.Sprintf("messages[%d]", i), message)
		if f != nil {
			return f
		}
		bytes += len(text)
		if role == "user" || !userSpoke {
			c.lastUser, userSpoke = text, role == "user"
		}
	}
	c.promptTokens = tokens(bytes)
	return nil
}

func parseMessage(param string, raw jsontext.Value) (role, text string, f *fault) {
	var message struct {
		Role    jsontext.Value `json:"role"`
		Content jsontext.Value `json:"content"`
	}
	if json.Unmarshal(raw, &message) != nil || raw[0] != '{' {
		return "", "", wrongType(param, "an object", raw)
	}
	if absent(message.Role) {
		return "", "", missing(param + ".role")
	}
	if json.Unmarshal(message.Role, &role) != nil {
		return "", "", wrongType(param+".role", "a string", message.Role)
	}
	if !slices.Contains([]string{"system", "developer", "user", "assistant", "tool", "function"}, role) {
		return "", "", invalid(param+".role", "invalid_value", fmt.Sprintf(
			"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", role))
	}
	if absent(message.Content) {
		if role == "assistant" || role == "function" { // one that only calls tools
			return role, "", nil
		}
		return "", "", missing(param + ".content")
	}
	text, f = parseContent(param+".content", message.Content)
	return role, text, f
}

// parseContent reads a string, or a list of parts of which only texts are read.
func parseContent(param string, raw jsontext.Value) (string, *fault) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []jsontext.Value
	if json.Unmarshal(raw, &parts) != nil {
		return "", wrongType(param, "one of a string or array of objects", raw)
	}
	var all strings.Builder
	for i, rawPart := range parts {
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(rawPart, &part) != nil || rawPart[0] != '{' {
			return "", wrongType(fmt.Sprintf("%s[%d]", param, i), "an object", rawPart)
		}
		if part.Type == "" {
			return "", missing(fmt.Sprintf("%s[%d].type", param, i))
		}
		if part.Type == "text" || part.Type == "input_text" || part.Type == "output_text" { // of chat, and of Responses
			all.WriteString(part.Text)
		}
	}
	return all.String(), nil
}

type openAIUsage struct {
	PromptTokens            int                     `json:"prompt_tokens"`
	CompletionTokens        int                     `json:"completion_tokens"`
	TotalTokens             int                     `json:"total_tokens"`
	PromptTokensDetails     promptTokensDetails     `json:"prompt_tokens_details"`
	CompletionTokensDetails completionTokensDetails `json:"completion_tokens_details"`
}

type promptTokensDetails struct {
	CachedTokens int `json:"cached_tokens"`
	AudioTokens  int `json:"audio_tokens"`
}

type completionTokensDetails struct {
	ReasoningTokens          int `json:"reasoning_tokens"`
	AudioTokens              int `json:"audio_tokens"`
	AcceptedPredictionTokens int `json:"accepted_prediction_tokens"`
	RejectedPredictionTokens int `json:"rejected_prediction_tokens"`
}

func (c chat) usage(said completion) openAIUsage {
	output := c.choices * said.output
	return openAIUsage{PromptTokens: c.promptTokens, CompletionTokens: output, TotalTokens: c.promptTokens + output}
}

type chatFunction struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
}

type chatToolCall struct {
	Index    *int         `json:"index,omitzero"` // in a stream
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function chatFunction `json:"function"`
}

type chatMessage struct {
	Role        string         `json:"role"`
	Content     *string        `json:"content"`
	ToolCalls   []chatToolCall `json:"tool_calls,omitzero"`
	Refusal     *string        `json:"refusal"`
	Annotations []any          `json:"annotations"`
}

type chatChoice struct {
	Index        int         `json:"index"`
	Message      chatMessage `json:"message"`
	Logprobs     *struct{}   `json:"logprobs"`
	FinishReason string      `json:"finish_reason"`
}

type chatCompletion struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	Usage             openAIUsage  `json:"usage"`
	ServiceTier       string       `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
}

const systemFingerprint = "fp_fakellm"

// finishReason is that of chat completions.
func (said completion) finishReason() string {
	switch {
	case len(said.tools) > 0:
		return "tool_calls"
	case said.cut:
		return "length"
	default:
		return "stop"
	}
}

func (c chat) render(said completion, id string, took time.Duration) reply {
	message := chatMessage{Role: "assistant", Content: &said.text, Annotations: []any{}}
	if len(said.tools) > 0 {
		message.Content = nil
		for _, t := range said.tools {
			message.ToolCalls = append(message.ToolCalls, chatToolCall{ID: t.ID, Type: "function", Function: chatFunction{t.Name, t.Arguments}})
		}
	}
	choices := make([]chatChoice, 0, c.choices)
	for i := range c.choices {
		choices = append(choices, chatChoice{Index: i, Message: message, FinishReason: said.finishReason()})
	}
	return openAIReply(http.StatusOK, id, took, chatCompletion{
		ID:                "chatcmpl-" + id,
		Object:            "chat.completion",
		Created:           time.Now().Unix(),
		Model:             c.model,
		Choices:           choices,
		Usage:             c.usage(said),
		ServiceTier:       "default",
		SystemFingerprint: systemFingerprint,
	})
}
