package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const operationConverse = "converse"

// bedrockWire speaks Amazon Bedrock Runtime's Converse.
type bedrockWire struct {
	keys   keyring
	access keyring
	models []string // empty: every id exists
}

func (bedrockWire) name() string { return "bedrock" }

// authenticate takes a Bedrock API key, or a SigV4 signature of the service "bedrock" by one of
// the access keys. Every refusal is AWS's own: a 403.
func (b bedrockWire) authenticate(r *http.Request) (identity, *fault) {
	if token, found := bearer(r); found {
		if !b.keys.has(token) {
			return identity{}, &fault{code: "AccessDeniedException", message: "Authentication failed: Please make sure your API Key is valid."}
		}
		return identity{keyHash: KeyHash(token)}, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return identity{}, &fault{code: "MissingAuthenticationTokenException"}
	}
	signer, ok := parseSigV4(header)
	if !ok {
		return identity{}, &fault{code: "IncompleteSignatureException"}
	}
	if !b.access.has(signer.accessKey) {
		return identity{}, &fault{code: "UnrecognizedClientException"}
	}
	if signer.service != "bedrock" {
		return identity{}, &fault{
			code:    "InvalidSignatureException",
			message: fmt.Sprintf("Credential should be scoped to correct service: 'bedrock'. It is scoped to %q.", signer.service),
		}
	}
	return identity{keyHash: KeyHash(signer.accessKey), region: signer.region}, nil
}

func (b bedrockWire) parse(r *http.Request, body []byte) (ask, *fault) {
	model, operation, ok := splitModelPath(r.URL.EscapedPath())
	if !ok || operation != operationConverse || r.Method != http.MethodPost {
		return ask{model: model}, &fault{
			code:    "UnknownOperationException",
			message: fmt.Sprintf("fakellm does not know %s %s", r.Method, r.URL.EscapedPath()),
		}
	}
	a := ask{operation: operationConverse, model: model}
	if len(b.models) > 0 && !slices.Contains(b.models, model) {
		return a, validation("The provided model identifier is invalid.")
	}
	c := converse{model: model}
	if f := c.parse(body); f != nil {
		return a, f
	}
	a.answer = c.answer
	return a, nil
}

// splitModelPath reads /model/{modelId}/{operation}, where the id is percent-encoded: an ARN has
// colons and slashes.
func splitModelPath(escaped string) (model, operation string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(escaped, "/model/"), "/")
	if len(parts) != 2 {
		return "", "", false
	}
	model, err := url.PathUnescape(parts[0])
	if err != nil || model == "" {
		return "", "", false
	}
	return model, parts[1], true
}

// converse is a Converse call that was understood.
type converse struct {
	model       string
	lastUser    string // text of the last user message
	inputTokens int
	maxTokens   int // 0: none
}

type contentBlock struct {
	Text *string `json:"text"`
}

func (c *converse) parse(body []byte) *fault {
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
	for _, block := range in.System {
		if block.Text != nil {
			bytes += len(*block.Text)
		}
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
			c.lastUser = text
		}
	}
	c.inputTokens = tokens(bytes)
	if in.InferenceConfig != nil && in.InferenceConfig.MaxTokens != nil {
		c.maxTokens = *in.InferenceConfig.MaxTokens
		if c.maxTokens < 1 {
			return validation(fmt.Sprintf("1 validation error detected: Value '%d' at 'inferenceConfig.maxTokens' failed to satisfy "+
				"constraint: Member must have value greater than or equal to 1", c.maxTokens))
		}
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

type converseText struct {
	Text string `json:"text"`
}

type converseMessage struct {
	Content []converseText `json:"content"`
	Role    string         `json:"role"`
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

func (c converse) answer(id string, took time.Duration) reply {
	text, truncated := truncate(echo(c.model, c.lastUser), c.maxTokens)
	stop := "end_turn"
	if truncated {
		stop = "max_tokens"
	}
	output := Tokens(text)
	return bedrockReply(http.StatusOK, id, converseResponse{
		Metrics:    converseMetrics{LatencyMs: took.Milliseconds()},
		Output:     converseOutput{Message: converseMessage{Content: []converseText{{text}}, Role: "assistant"}},
		StopReason: stop,
		Usage:      converseUsage{InputTokens: c.inputTokens, OutputTokens: output, TotalTokens: c.inputTokens + output},
	})
}

func bedrockReply(status int, id string, body any) reply {
	re := jsonReply(status, body)
	re.header.Set("X-Amzn-Requestid", id)
	return re
}
