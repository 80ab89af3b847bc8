package bedrock

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// What is invoked has a body of its vendor's own, of which nothing is changed. Here is what its tokens are called by the
// vendors that Bedrock has; of one that is new to us Bedrock's own headers and metrics tell the same.

// metrics is the member that Bedrock itself puts into the last chunk of every stream.
const metrics = "amazon-bedrock-invocationMetrics"

// invokeTalk is that of InvokeModelWithResponseStream: chunks, each with an event of the vendor's own.
type invokeTalk struct {
	usage   *provider.Usage
	at      stage          // by what ends all of a reply
	choices map[int64]bool // of vendors that number what they write; true once it has told why it ended
}

func (i *invokeTalk) used() *provider.Usage { return i.usage }

func (i *invokeTalk) take(f frame) (content bool, at stage) {
	event, err := base64.StdEncoding.DecodeString(gjson.GetBytes(f.payload, "bytes").Str)
	if f.name != "chunk" || err != nil {
		return true, i.stage() // what it says we don't know; whoever called may
	}
	top := gjson.ParseBytes(event)
	if m := top.Get(metrics); m.Exists() {
		i.usage = provider.Usage{
			Input: count(m, "inputTokenCount"), CacheWrite: count(m, "cacheWriteInputTokenCount"), Output: count(m, "outputTokenCount"),
		}.Told()
		i.at = settled
	}
	if finishes(top) {
		i.at = max(i.at, whole)
	}
	i.note(top)
	return !opens(top), i.stage()
}

// opens reports whether an event tells no more than that a message, or a part of it, begins (Anthropic, Nova).
func opens(event gjson.Result) bool {
	switch event.Get("type").Str {
	case "message_start", "content_block_start", "ping":
		return true
	}
	return event.Get("messageStart").Exists()
}

// finishes reports whether an event is the last by its vendor's own words. Bedrock's metrics are in the same one, but of
// models that an account has imported.
func finishes(event gjson.Result) bool {
	return event.Get("type").Str == "message_stop" || // Anthropic
		says(event, "stop_reason") || // Meta
		says(event, "completionReason") || // Titan
		says(event, "finish_reason") // Cohere
}

// note marks which choices were begun and which have ended: each event has some of them. Who numbers none has them in their order.
func (i *invokeTalk) note(event gjson.Result) {
	for _, list := range []string{
		"choices", // OpenAI, DeepSeek, Qwen; Mistral's chats
		"outputs", // Mistral
	} {
		for place, choice := range event.Get(list).Array() {
			index := int64(place)
			if n := choice.Get("index"); n.Type == gjson.Number {
				index = n.Int()
			}
			if i.choices == nil {
				i.choices = map[int64]bool{}
			}
			i.choices[index] = i.choices[index] || says(choice, "stop_reason") || says(choice, "finish_reason")
		}
	}
}

// stage is whole once all choices have ended that were begun, unless the reply has another end: a choice that
// is begun later takes it back.
func (i *invokeTalk) stage() stage {
	if i.at != underway || len(i.choices) == 0 {
		return i.at
	}
	for _, ended := range i.choices {
		if !ended {
			return underway
		}
	}
	return whole
}

// says reports whether a member is a text that isn't empty.
func says(v gjson.Result, path string) bool {
	said := v.Get(path)
	return said.Type == gjson.String && said.Str != ""
}

// invokedUsage reads what an invocation has cost: from Bedrock's headers, else from the body as its vendor tells it.
func invokedUsage(h http.Header, reply []byte) *provider.Usage {
	u := provider.Usage{
		Input: headerCount(h, "X-Amzn-Bedrock-Input-Token-Count"), CacheWrite: headerCount(h, "X-Amzn-Bedrock-Cache-Write-Input-Token-Count"),
		Output: headerCount(h, "X-Amzn-Bedrock-Output-Token-Count"),
	}
	if u != (provider.Usage{}) {
		return u.Told()
	}
	top := gjson.ParseBytes(reply)
	for _, v := range []struct{ input, write, output string }{
		{"usage.input_tokens", "usage.cache_creation_input_tokens", "usage.output_tokens"}, // Anthropic
		{"usage.inputTokens", "usage.cacheWriteInputTokenCount", "usage.outputTokens"},     // Nova
		{"usage.prompt_tokens", "", "usage.completion_tokens"},                             // OpenAI, Mistral, DeepSeek, AI21, Qwen
		{"prompt_token_count", "", "generation_token_count"},                               // Meta
		{"inputTextTokenCount", "", "results.0.tokenCount"},                                // Titan, texts and embeddings
	} {
		u = provider.Usage{Input: count(top, v.input), CacheWrite: count(top, v.write), Output: count(top, v.output)}
		if u != (provider.Usage{}) {
			return u.Told()
		}
	}
	return nil
}

func headerCount(h http.Header, name string) int {
	n, err := strconv.ParseUint(h.Get(name), 10, 40)
	if err != nil {
		return 0
	}
	return int(n)
}

// noInvokeText names members whose strings are no text of a body to be invoked, beside those of Converse's.
var noInvokeText = map[string]bool{ //nolint:gochecknoglobals // a table
	"role": true, "type": true, "id": true, "tool_use_id": true, "media_type": true, "data": true, "url": true, "bytes": true, "format": true,
	"anthropic_version": true, "anthropic_beta": true, "input_type": true, "truncate": true, "embedding_types": true, "embeddingTypes": true,
	"inputImage": true, "images": true, "image": true, "model": true,
}

// measureInvoked is [Provider.Measure] of an invocation. All text of its body is input, whatever it is called: what is not
// is short, or listed. Nothing is put in as the most output, since each vendor has a name of its own for it.
func measureInvoked(body []byte) provider.Load {
	load := provider.Load{InputChars: provider.TextChars(body, noInvokeText)}
	top := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) {
		return load
	}
	for _, path := range opbody.Bounds(llmq.OpInvoke) {
		load.MaxOutput = max(load.MaxOutput, provider.Choices(count(top, path), 1))
	}
	load.NoOutput = load.MaxOutput == 0 && embeds(top)
	return load
}

// embeds reports whether a body asks for vectors: Titan's, Cohere's or Nova's.
func embeds(body gjson.Result) bool {
	for _, path := range []string{"texts", "images", "inputs", "inputText", "inputImage", "taskType"} {
		if body.Get(path).Exists() && !body.Get("textGenerationConfig").Exists() {
			return true
		}
	}
	return false
}
