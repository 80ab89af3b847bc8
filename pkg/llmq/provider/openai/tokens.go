package openai

import (
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// noText names members whose strings are no text of the input: what says how to read a part of a
// message, and media, which are counted by their size in pixels and seconds, not in characters.
var noText = map[string]bool{
	"role": true, "type": true, "id": true, "tool_call_id": true, "detail": true, "format": true,
	"url": true, "data": true, "file_data": true, "file_id": true, "filename": true,
}

var _ provider.Measurer = (*Provider)(nil)

// Measure is that of [provider.Measurer]. Input is the text of messages, or of a response's input and instructions, and of what
// tools, functions and the reply's schema are described with; a token's number, as embeddings take them, is four
// characters. Output is max_output_tokens of a response; of a chat the larger of max_completion_tokens and max_tokens, times n:
// every choice is charged.
func (p *Provider) Measure(req provider.Request) provider.Load {
	d, err := read(req.Body)
	if err != nil {
		return provider.Load{NoOutput: req.Op == llmq.OpEmbeddings} // Call refuses it, and it costs nothing
	}
	if req.Op == llmq.OpEmbeddings {
		input := d.value("input")
		chars := provider.TextChars(input, nil)
		if chars == 0 {
			chars = 4 * provider.Numbers(input)
		}
		return provider.Load{InputChars: chars, NoOutput: true}
	}
	texts, most, n := []string{"messages", "tools", "functions", "response_format"}, d.most(req.Op), 1
	if req.Op == llmq.OpResponses {
		texts = []string{"input", "instructions", "tools", "text"}
	} else if given, ok := d.number("n"); ok {
		n = given
	}
	if p.injects(d, req) != "" {
		most = req.DefaultMaxOutput
	}
	load := provider.Load{MaxOutput: provider.Choices(most, n)}
	for _, name := range texts {
		load.InputChars += provider.TextChars(d.value(name), noText)
	}
	return load
}

// usageOf reads what a reply says of its cost, under the names of chats or of responses; nil where it says nothing. What was
// read from a cache counts: OpenAI's limits know no discount for it.
func usageOf(reply []byte) *provider.Usage { return usageIn(gjson.GetBytes(reply, "usage")) }

func usageIn(usage gjson.Result) *provider.Usage {
	u := provider.Usage{
		Input:  max(count(usage, "prompt_tokens"), count(usage, "input_tokens")),
		Output: max(count(usage, "completion_tokens"), count(usage, "output_tokens")),
	}
	if u == (provider.Usage{}) {
		u.Input = count(usage, "total_tokens") // some servers tell no more of embeddings
	}
	return u.Told()
}

func count(usage gjson.Result, name string) int {
	n := usage.Get(name)
	if n.Type != gjson.Number {
		return 0
	}
	return int(min(max(n.Float(), 0), 1<<40))
}
