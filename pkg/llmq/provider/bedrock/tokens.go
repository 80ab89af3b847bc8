package bedrock

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// noText names members whose strings are no text of the input: what says how to read a part of a
// message, and media.
var noText = map[string]bool{
	"role": true, "bytes": true, "format": true, "toolUseId": true, "status": true, "type": true, "uri": true, "bucketOwner": true,
}

var _ provider.Measurer = (*Provider)(nil)

// Measure is that of [provider.Measurer]. Of Converse input is the text of messages, of the system prompts and of the description of
// tools; output is inferenceConfig.maxTokens.
func (p *Provider) Measure(req provider.Request) provider.Load {
	if req.Op.Wire() == llmq.WireInvoke {
		return measureInvoked(req.Body)
	}
	d := read(req.Body)
	load := provider.Load{MaxOutput: d.most()}
	for _, v := range d.texts {
		load.InputChars += provider.TextChars(v, noText)
	}
	if load.MaxOutput == 0 && d.takes() {
		load.MaxOutput = max(0, req.DefaultMaxOutput)
	}
	return load
}

// draft is a body's parts that matter here.
type draft struct {
	ok        bool             // it is one JSON object
	empty     bool             // without members
	open      int              // behind the opening brace
	texts     []jsontext.Value // of the input
	inference jsontext.Value   // the value of inferenceConfig; nil where there is none
	at        int              // where that begins
	tier      jsontext.Value   // the value of serviceTier; nil where there is none
	tierAt    int              // where that begins
}

// read looks through a body. One that is no JSON object is not ours to mend: Bedrock says what is
// wrong with it.
func read(body []byte) draft {
	var d draft
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return d
	}
	d.open, d.empty = int(dec.InputOffset()), true
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return d
		}
		d.empty = false
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return d
		}
		end := int(dec.InputOffset())
		switch value := jsontext.Value(body[end-len(value) : end]); name { // the decoder's own may move
		case "messages", "system", "toolConfig", "promptVariables":
			d.texts = append(d.texts, value)
		case "serviceTier":
			d.tier, d.tierAt = value, end-len(value)
		case "inferenceConfig":
			d.inference, d.at = value, end-len(value)
		}
	}
	d.ok = true
	return d
}

// most is the most output that the caller sends, 0 for none.
func (d draft) most() int {
	if d.inference.Kind() != '{' {
		return 0
	}
	return count(gjson.ParseBytes(d.inference), "maxTokens")
}

// takes reports whether the most output is ours to say: the caller says nothing of it, or null.
func (d draft) takes() bool {
	switch d.inference.Kind() {
	case '{':
		return d.ok && gjson.GetBytes(d.inference, "maxTokens").Type == gjson.Null
	case 'n', jsontext.Kind(0): // null, or nothing
		return d.ok
	default:
		return false
	}
}

// withMost puts inferenceConfig.maxTokens into a body whose caller sends none; every other byte stays
// as it is. most 0 changes nothing.
func withMost(body []byte, most int) []byte {
	if most <= 0 {
		return body
	}
	d := read(body)
	if !d.takes() {
		return body
	}
	value := strconv.AppendInt(nil, int64(most), 10)
	member := append([]byte(`"maxTokens":`), value...)
	switch d.inference.Kind() {
	case 'n':
		return splice(body, d.at, d.at+len(d.inference), braced(member))
	case '{':
		if old := gjson.GetBytes(d.inference, "maxTokens"); old.Exists() {
			at := d.at + old.Index
			return splice(body, at, at+len(old.Raw), value)
		}
		if len(gjson.ParseBytes(d.inference).Map()) > 0 {
			member = append(member, ',')
		}
		return splice(body, d.at+1, d.at+1, member)
	default: // it is absent
	}
	insert := append([]byte(`"inferenceConfig":`), braced(member)...)
	if !d.empty {
		insert = append(insert, ',')
	}
	return splice(body, d.open, d.open, insert)
}

// withTier asks for a service tier, or for none, whatever the caller asks for; every other byte stays as it is.
func withTier(body []byte, tier llmq.Tier) []byte {
	d := read(body)
	asks := `{"type":"` + string(tier) + `"}`
	switch {
	case !d.ok, tier == "" && d.tier == nil:
		return body
	case tier == "":
		return splice(body, d.tierAt, d.tierAt+len(d.tier), []byte("null"))
	case d.tier != nil:
		return splice(body, d.tierAt, d.tierAt+len(d.tier), []byte(asks))
	}
	insert := []byte(`"serviceTier":` + asks)
	if !d.empty {
		insert = append(insert, ',')
	}
	return splice(body, d.open, d.open, insert)
}

func braced(member []byte) []byte { return append(append([]byte{'{'}, member...), '}') }

func splice(body []byte, from, to int, insert []byte) []byte {
	out := make([]byte, 0, len(body)-(to-from)+len(insert))
	out = append(out, body[:from]...)
	out = append(out, insert...)
	return append(out, body[to:]...)
}

// usageOf reads what a reply says of its cost; nil where it says nothing. inputTokens is without what was
// read from a cache, which Bedrock's quotas don't count.
func usageOf(reply []byte) *provider.Usage {
	usage := gjson.GetBytes(reply, "usage")
	u := provider.Usage{
		Input: count(usage, "inputTokens"), CacheWrite: count(usage, "cacheWriteInputTokens"), Output: count(usage, "outputTokens"),
	}
	return u.Told()
}

func count(of gjson.Result, name string) int {
	n := of.Get(name)
	if n.Type != gjson.Number {
		return 0
	}
	return int(min(max(n.Float(), 0), 1<<40))
}
