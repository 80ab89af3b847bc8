package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// The members that bound a call's output: of a chat, whose old name is refused by OpenAI for its reasoning models and
// whose new one is not known to every server that speaks its API, and of a response.
const (
	maxCompletion = "max_completion_tokens"
	maxTokens     = "max_tokens"
	maxOutput     = "max_output_tokens"
)

// tierName is the member that asks for a service tier.
const tierName = "service_tier"

// What a provider keeps under the account that all tenants share: replies, which are never to be kept, and caches of prompts, in which
// each tenant has a place of its own (SECURITY-DESIGN IN5).
const (
	storeName = "store"
	cacheKey  = "prompt_cache_key"
	cacheSalt = "cache_salt" // vLLM's
)

// span is where a member's value stands in a body; the zero value is absent.
type span struct{ start, end int }

func (s span) there() bool { return s.end > 0 }

// draft is a request's body and the places in it that matter here.
type draft struct {
	raw     []byte
	open    int             // behind the opening brace
	members int             // of the object
	at      map[string]span // values of the members that are looked for
}

// wanted are the members that a draft looks for.
var wanted = map[string]bool{
	"model": true, "stream_options": true, maxCompletion: true, maxTokens: true, "n": true,
	"messages": true, "tools": true, "functions": true, "response_format": true, "input": true,
	tierName: true, maxOutput: true, "instructions": true, "text": true,
	storeName: true, cacheKey: true, cacheSalt: true,
}

// read finds its way about a body.
//
// The body is read as strictly as at the door, since this is the last look at the bytes that are
// sent: a name given twice, however it is escaped, or "Model" beside "model", could mean one model
// to us and another to the server.
func read(body []byte) (draft, error) {
	d := draft{raw: body, at: map[string]span{}}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	open, err := dec.ReadToken()
	if err != nil {
		return d, invalid(err)
	}
	if open.Kind() != '{' {
		return d, errors.New("body is no JSON object")
	}
	d.open = int(dec.InputOffset())
	for ; dec.PeekKind() != '}'; d.members++ {
		token, err := dec.ReadToken()
		if err != nil {
			return d, invalid(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return d, invalid(err)
		}
		switch {
		case wanted[name]:
			end := int(dec.InputOffset())
			d.at[name] = span{end - len(value), end}
		case strings.EqualFold(name, "model"):
			return d, errors.New("body holds a name that is model in other letters")
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return d, invalid(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return d, errors.New("body holds more than one value")
	}
	return d, nil
}

// invalid says where the body is wrong. The parser's own words would quote names from it, and
// errors end up in logs.
func invalid(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("body is not strict JSON at byte %d", e.ByteOffset)
	}
	return errors.New("body ends early")
}

// value is a member's, as it stands there.
func (d draft) value(name string) jsontext.Value {
	s := d.at[name]
	return d.raw[s.start:s.end]
}

// number is a member's as a whole number, and false where it is none.
func (d draft) number(name string) (int, bool) {
	v := d.value(name)
	if v.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return int(min(max(f, 0), 1<<40)), err == nil
}

// sent reports whether the caller gave a member a value. null is as good as none.
func (d draft) sent(name string) bool { return d.at[name].there() && d.value(name).Kind() != 'n' }

// most is the most output of one choice that the caller of op sends, 0 for none. Who sends both names of a chat
// is told off by the provider, or gets the one that it knows: the larger is the safe one.
func (d draft) most(op llmq.Op) int {
	if op == llmq.OpResponses {
		n, _ := d.number(maxOutput)
		return n
	}
	a, _ := d.number(maxCompletion)
	b, _ := d.number(maxTokens)
	return max(a, b)
}

// edit replaces the value of a member, or makes it the first one where it is absent.
type edit struct {
	name  string
	value []byte
}

// editor says what is changed in a body.
type editor func(draft, provider.Request) ([]edit, error)

// edits are what Call changes in a body: the model; the service tier, which is the lane's; whether the reply is kept; where in caches it
// counts; and the most output where the model's configuration sets it and the caller sends none.
func (p *Provider) edits(d draft, req provider.Request) ([]edit, error) {
	quoted, err := jsontext.AppendQuote(nil, req.ModelID)
	if err != nil {
		return nil, fmt.Errorf("quote the model id: %w", err)
	}
	var es []edit
	if !d.says("model", req.ModelID) {
		es = append(es, edit{"model", quoted})
	}
	if tier := string(req.Tier); req.Op == llmq.OpEmbeddings || tier != "" && d.says(tierName, tier) {
	} else if tier != "" {
		es = append(es, edit{tierName, []byte(strconv.Quote(tier))})
	} else if d.sent(tierName) {
		es = append(es, edit{tierName, []byte("null")})
	}
	if v := d.value(storeName); req.Op == llmq.OpResponses && v.Kind() != 'f' || req.Op == llmq.OpChat && d.sent(storeName) && v.Kind() != 'f' {
		es = append(es, edit{storeName, []byte("false")})
	}
	for _, name := range []string{cacheKey, cacheSalt} {
		if d.sent(name) || name == cacheSalt && p.salts && req.Tenant != "" && req.Op != llmq.OpEmbeddings {
			es = append(es, edit{name, []byte(strconv.Quote(provider.Scoped(req.Tenant, d.text(name))))})
		}
	}
	if name := p.injects(d, req); name != "" {
		es = append(es, edit{name, strconv.AppendInt(nil, int64(req.DefaultMaxOutput), 10)})
	}
	return es, nil
}

// injects names the member in which the most output is put into the body; "" is none.
func (p *Provider) injects(d draft, req provider.Request) string {
	switch {
	case req.DefaultMaxOutput <= 0:
	case req.Op == llmq.OpChat && !d.sent(maxCompletion) && !d.sent(maxTokens):
		return p.most
	case req.Op == llmq.OpResponses && !d.sent(maxOutput):
		return maxOutput
	}
	return ""
}

// text is a member's string, and "" where it is none.
func (d draft) text(name string) string {
	if d.value(name).Kind() != '"' {
		return ""
	}
	text, _ := jsontext.AppendUnquote(nil, d.value(name)) // it was read as strict JSON
	return string(text)
}

// says reports whether a member is the given string already, however it is written.
func (d draft) says(name, want string) bool {
	v := d.value(name)
	if v.Kind() != '"' {
		return false
	}
	text, err := jsontext.AppendUnquote(nil, v)
	return err == nil && string(text) == want
}

// with returns the body with edits made; every other byte stays as it is. It is the body itself where there
// are none.
func (d draft) with(edits []edit) []byte {
	out := d.raw
	for _, e := range edits {
		at, insert := d.at[e.name], e.value
		if !at.there() {
			at = span{d.open, d.open}
			insert = append([]byte(`"`+e.name+`":`), e.value...)
			if d.members > 0 {
				insert = append(insert, ',')
			}
		}
		out = splice(out, at.start, at.end, insert)
		d = d.moved(e.name, at, len(insert))
	}
	return out
}

// moved is the draft after a value was put where at was.
func (d draft) moved(name string, at span, now int) draft {
	by := now - (at.end - at.start)
	next := draft{open: d.open, members: d.members, at: map[string]span{}}
	if !d.at[name].there() {
		next.members++
	}
	for n, s := range d.at {
		if s.start >= at.end {
			s.start, s.end = s.start+by, s.end+by
		}
		next.at[n] = s
	}
	return next
}

func splice(body []byte, from, to int, insert []byte) []byte {
	out := make([]byte, 0, len(body)-(to-from)+len(insert))
	out = append(out, body[:from]...)
	out = append(out, insert...)
	return append(out, body[to:]...)
}
