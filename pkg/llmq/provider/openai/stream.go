package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

var _ provider.Streamer = (*Provider)(nil)

const (
	eventStream = "text/event-stream"
	doneMark    = "[DONE]" // the data of the event that ends a stream
	optionsName = "stream_options"
	usageOption = "include_usage"
)

// Stream makes exactly one attempt; see [provider.Streamer]. An event is emitted with its JSON as it came, in the
// frame of a server-sent event.
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	var t talk
	edits := p.edits
	switch req.Op {
	case llmq.OpChat:
		chat := &chatTalk{emit: emit}
		t, chat.wantsUsage = chat, p.silent // whatever comes is what the caller asked for
		if !p.silent {
			edits = chat.asking(p.edits)
		}
	case llmq.OpResponses:
		t = &responsesTalk{emit: emit}
	default:
		return nil, &provider.Error{
			Class: provider.CallFatal, Code: llmq.CodeUnsupported, Unsent: true,
			Message: fmt.Sprintf("the openai wire has no stream of %s", llmq.Clip(string(req.Op), 40)),
		}
	}
	hreq, key, err := p.request(ctx, req, eventStream, edits)
	if err != nil {
		return nil, err
	}
	s, err := p.egress.Open(hreq, req.Pace, eventStream)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if !s.OK() {
		return nil, p.advise(classify(s.Reply, time.Now(), key))
	}
	if err := follow(s, t, key); err != nil {
		return nil, err
	}
	s.Drain()
	return &provider.Response{Status: s.Status, ContentType: eventStream, RequestID: s.RequestID("X-Request-Id"), Usage: t.used()}, nil
}

// talk is one op's stream: it passes on what belongs to the reply, and knows when that is whole.
type talk interface {
	// take looks at an event and emits it.
	take(e sseEvent) step
	// finished reports whether the reply is whole when its connection ends behind an event.
	finished() bool
	// used is what the reply has told of its cost.
	used() *provider.Usage
}

// step is what an event is to a stream.
type step int

const (
	goesOn   step = iota
	begins        // with content
	ends          // the reply is whole
	fails         // it tells of an error
	garbles       // it is no event
	misleads      // it marks the end of a reply that isn't whole
)

// follow reads to the end of the reply.
func follow(s *egress.Stream, t talk, key string) error {
	events := newSSEReader(s, provider.MaxEventBytes)
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			return s.TooLarge(err)
		case err == io.EOF && t.finished(): //nolint:errorlint // a connection that broke off has another one
			return nil
		case err != nil:
			return s.Fault(fmt.Errorf("read a stream: %w", err))
		}
		switch t.take(e) {
		case goesOn:
		case begins:
			s.Begun()
		case ends:
			return nil
		case fails:
			return told(e.data, key)
		case garbles:
			return s.NoEvent(nil)
		case misleads:
			return &provider.Error{
				Class: provider.Retryable, Code: llmq.CodeProviderError, Status: s.Status, Message: "the provider's stream ended before its reply was whole",
			}
		}
	}
}

// chatTalk is the stream of a chat completion. Usage is always asked for, since the call is settled by it; the event that tells it
// is passed on to none but those who asked for it themselves (case H22).
type chatTalk struct {
	emit       provider.Emit
	wantsUsage bool // the caller asked for it

	usage   *provider.Usage
	choices map[int]bool // by index; true once it has its finish reason
	frame   []byte
}

func (c *chatTalk) used() *provider.Usage { return c.usage }

// asking adds the question for usage to the edits of a body.
func (c *chatTalk) asking(edits editor) editor {
	return func(d draft, req provider.Request) ([]edit, error) {
		es, err := edits(d, req)
		if err != nil {
			return nil, err
		}
		var usage []edit
		c.wantsUsage, usage = askUsage(d)
		return append(es, usage...), nil
	}
}

// askUsage makes the body ask for usage, and reports whether it did so before.
func askUsage(d draft) (before bool, es []edit) {
	options := d.value(optionsName)
	switch options.Kind() {
	case '{':
		if gjson.GetBytes(options, usageOption).Type == gjson.True {
			return true, nil
		}
		if with, err := sjson.SetBytes(options, usageOption, true); err == nil {
			return false, []edit{{optionsName, with}}
		}
	case 'n', 0: // null, or absent
		return false, []edit{{optionsName, []byte(`{"` + usageOption + `":true}`)}}
	default:
	}
	return false, nil // the provider will say what is wrong with it
}

// take ends at the mark that ends a stream on this wire, and does not emit it.
func (c *chatTalk) take(e sseEvent) step {
	if string(e.data) == doneMark {
		if len(c.choices) == 0 && c.usage == nil { // with a cost it is whole, as it is in one piece
			return misleads
		}
		return ends
	}
	if !egress.Sound(e.data) {
		return garbles
	}
	top := gjson.ParseBytes(e.data)
	choices := top.Get("choices")
	if e.name == "error" || tellsOf(top.Get("error")) {
		return fails
	}
	if e.name != "" && !choices.Exists() {
		return goesOn // a ping, or whatever else is no part of the reply (case H20)
	}
	if u := usageOf(e.data); u != nil {
		c.usage = u
	}
	if !c.wantsUsage && top.Get("usage").IsObject() && choices.IsArray() && len(choices.Array()) == 0 {
		return goesOn
	}
	content := c.look(choices)
	c.frame = appendSSE(c.frame[:0], "", e.data)
	c.emit(c.frame, content)
	if content {
		return begins
	}
	return goesOn
}

// look notes which choices have finished, and reports whether any of them says something.
func (c *chatTalk) look(choices gjson.Result) (content bool) {
	if c.choices == nil {
		c.choices = map[int]bool{}
	}
	choices.ForEach(func(_, choice gjson.Result) bool {
		index := int(choice.Get("index").Int())
		if isThere(choice.Get("finish_reason")) {
			c.choices[index], content = true, true
		} else if !c.choices[index] {
			c.choices[index] = false
		}
		choice.Get("delta").ForEach(func(name, v gjson.Result) bool {
			content = content || name.Str != "role" && !empty(v)
			return true
		})
		return true
	})
	return content
}

// finished reports whether every choice has told why it ended: a server that knows no mark ends so.
func (c *chatTalk) finished() bool {
	for _, finished := range c.choices {
		if !finished {
			return false
		}
	}
	return len(c.choices) > 0
}

func isThere(v gjson.Result) bool { return v.Exists() && v.Type != gjson.Null }

// tellsOf reports whether an error is told of: some servers send the member in every reply, with nothing in it.
func tellsOf(failure gjson.Result) bool {
	return failure.Exists() && failure.Type != gjson.False && !empty(failure)
}

// empty reports whether v says nothing: some servers send members that have no value yet.
func empty(v gjson.Result) bool {
	switch v.Type {
	case gjson.Null:
		return true
	case gjson.String:
		return v.Str == ""
	case gjson.JSON:
		return v.Raw == "[]" || v.Raw == "{}"
	default:
		return false
	}
}
