package server

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// responses is a call of the Responses API that was understood.
type responses struct {
	model           string
	instructions    string
	inputTokens     int
	maxOutputTokens int // 0: none
}

func (o openAIWire) parseResponses(body []byte) (ask, *fault) {
	var in struct {
		Model           jsontext.Value `json:"model"`
		Input           jsontext.Value `json:"input"`
		Instructions    jsontext.Value `json:"instructions"`
		MaxOutputTokens jsontext.Value `json:"max_output_tokens"`
		Stream          jsontext.Value `json:"stream"`
		Background      jsontext.Value `json:"background"`
	}
	if f := decode(body, &in); f != nil {
		return ask{}, f
	}
	a := ask{operation: operationResponses}
	var c responses
	var f *fault
	c.model, f = o.parseModel(in.Model)
	a.model = c.model
	if f != nil {
		return a, f
	}
	if !absent(in.Instructions) && json.Unmarshal(in.Instructions, &c.instructions) != nil {
		return a, wrongType("instructions", "a string", in.Instructions)
	}
	bytes := 0
	if a.lastUser, bytes, f = parseResponsesInput(in.Input); f != nil {
		return a, f
	}
	c.inputTokens = tokens(bytes + len(c.instructions))
	if c.maxOutputTokens, f = parseInt("max_output_tokens", in.MaxOutputTokens); f != nil {
		return a, f
	}
	if a.stream, f = parseBool("stream", in.Stream); f != nil {
		return a, f
	}
	background, f := parseBool("background", in.Background)
	if f != nil {
		return a, f
	}
	if background {
		return a, invalid("background", "unsupported_value", "Unsupported value: 'background' does not support true with this model.")
	}
	a.input, a.maxTokens = c.inputTokens, c.maxOutputTokens
	if a.stream {
		a.render = c.renderStream
	} else {
		a.render = c.render
	}
	return a, nil
}

// parseResponsesInput reads a text or a list of items. Of the items, messages are read, and the
// outputs of tools count as texts.
func parseResponsesInput(raw jsontext.Value) (lastUser string, bytes int, f *fault) {
	if absent(raw) {
		return "", 0, missing("input")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, len(text), nil
	}
	var items []jsontext.Value
	if json.Unmarshal(raw, &items) != nil {
		return "", 0, wrongType("input", "one of a string or array of objects", raw)
	}
	if len(items) == 0 {
		return "", 0, invalid("input", "empty_array",
			"Invalid 'input': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	for i, each := range items {
		param := fmt.Sprintf("input[%d]", i)
		var item struct {
			Type    string         `json:"type"`
			Role    string         `json:"role"`
			Content jsontext.Value `json:"content"`
			Output  jsontext.Value `json:"output"`
		}
		if json.Unmarshal(each, &item) != nil || each[0] != '{' {
			return "", 0, wrongType(param, "an object", each)
		}
		if item.Type != "" && item.Type != "message" {
			bytes += len(item.Output)
			continue
		}
		if item.Role == "" {
			return "", 0, missing(param + ".role")
		}
		if absent(item.Content) {
			return "", 0, missing(param + ".content")
		}
		text, f := parseContent(param+".content", item.Content)
		if f != nil {
			return "", 0, f
		}
		bytes += len(text)
		if item.Role == "user" || lastUser == "" {
			lastUser = text
		}
	}
	return lastUser, bytes, nil
}

type responseText struct {
	Type        string `json:"type"` // output_text
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

func newResponseText(text string) responseText {
	return responseText{Type: "output_text", Text: text, Annotations: []any{}, Logprobs: []any{}}
}

// responseItem is a message or a function call.
type responseItem struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Status    string         `json:"status"`
	Role      string         `json:"role,omitzero"`
	Content   []responseText `json:"content,omitzero"`
	CallID    string         `json:"call_id,omitzero"`
	Name      string         `json:"name,omitzero"`
	Arguments *string        `json:"arguments,omitzero"`
}

type responsesUsage struct {
	InputTokens        int `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

// response has the members that every response has; those that only echo the request's tuning
// are left at OpenAI's defaults.
type response struct {
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	Status             string             `json:"status"`
	Background         bool               `json:"background"`
	Error              *openAIError       `json:"error"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Instructions       *string            `json:"instructions"`
	MaxOutputTokens    *int               `json:"max_output_tokens"`
	Metadata           map[string]string  `json:"metadata"`
	Model              string             `json:"model"`
	Output             []responseItem     `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	ServiceTier        string             `json:"service_tier"`
	Store              bool               `json:"store"`
	Temperature        float64            `json:"temperature"`
	ToolChoice         string             `json:"tool_choice"`
	Tools              []any              `json:"tools"`
	TopP               float64            `json:"top_p"`
	Truncation         string             `json:"truncation"`
	Usage              *responsesUsage    `json:"usage"`
	User               *string            `json:"user"`
}

// begin is the response before the model has said anything.
func (c responses) begin(id string) response {
	r := response{
		ID: "resp_" + id, Object: "response", CreatedAt: time.Now().Unix(), Status: "in_progress", Model: c.model,
		Metadata: map[string]string{}, Output: []responseItem{}, ParallelToolCalls: true, ServiceTier: "default",
		Temperature: 1, ToolChoice: "auto", Tools: []any{}, TopP: 1, Truncation: "disabled",
	}
	if c.instructions != "" {
		r.Instructions = &c.instructions
	}
	if c.maxOutputTokens > 0 {
		r.MaxOutputTokens = &c.maxOutputTokens
	}
	return r
}

func (c responses) end(r response, said completion, items []responseItem) response {
	r.Status, r.Output = said.status(), items
	if said.cut {
		r.IncompleteDetails = &incompleteDetails{"max_output_tokens"}
	}
	r.Usage = &responsesUsage{InputTokens: c.inputTokens, OutputTokens: said.output, TotalTokens: c.inputTokens + said.output}
	return r
}

func (said completion) status() string {
	if said.cut {
		return "incomplete"
	}
	return "completed"
}

// items are what was said, whole.
func (said completion) items(id string) []responseItem {
	if len(said.tools) == 0 {
		return []responseItem{{
			Type: "message", ID: "msg_" + id, Status: said.status(), Role: "assistant", Content: []responseText{newResponseText(said.text)},
		}}
	}
	items := make([]responseItem, 0, len(said.tools))
	for i, t := range said.tools {
		items = append(items, responseItem{
			Type: "function_call", ID: fmt.Sprintf("fc_%s_%d", id, i), Status: "completed", CallID: t.ID, Name: t.Name, Arguments: &t.Arguments,
		})
	}
	return items
}

func (c responses) render(said completion, id string, took time.Duration) reply {
	return openAIReply(http.StatusOK, id, took, c.end(c.begin(id), said, said.items(id)))
}
