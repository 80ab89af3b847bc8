package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
// frame of a server-sent event. Usage is always asked for, since the call is settled by it; the event that tells it is
// passed on to none but those who asked for it themselves (case H22).
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	if req.Op != llmq.OpChat {
		return nil, &provider.Error{
			Class: provider.CallFatal, Code: llmq.CodeUnsupported, Unsent: true,
			Message: fmt.Sprintf("the openai wire has no stream of %s", llmq.Clip(string(req.Op), 40)),
		}
	}
	wants := false
	hreq, key, err := p.request(ctx, req, eventStream, func(d draft, req provider.Request) ([]edit, error) {
		es, err := p.edits(d, req)
		if err != nil {
			return nil, err
		}
		var usage []edit
		wants, usage = askUsage(d)
		return append(es, usage...), nil
	})
	if err != nil {
		return nil, err
	}
	s, err := p.egress.Open(hreq, req.Pace, eventStream)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if !s.OK() {
		return nil, classify(s.Reply, time.Now(), key)
	}
	r := relay{stream: s, key: key, wantsUsage: wants, emit: emit}
	if err := r.run(); err != nil {
		return nil, err
	}
	s.Drain()
	return &provider.Response{Status: s.Status, ContentType: eventStream, RequestID: s.RequestID("X-Request-Id"), Usage: r.usage}, nil
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

// relay passes a stream's events on.
type relay struct {
	stream     *egress.Stream
	key        string
	wantsUsage bool
	emit       provider.Emit

	usage   *provider.Usage
	content bool         // some was emitted
	choices map[int]bool // by index; true once it has its finish reason
	frame   []byte
}

// run reads to the end of the reply. It is whole at its mark; where a server knows none, when the connection ends
// after every choice has told why it finished.
func (r *relay) run() error {
	r.choices = map[int]bool{}
	events := newSSEReader(r.stream, provider.MaxEventBytes)
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			return &provider.Error{
				Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: r.stream.Status,
				Message: fmt.Sprintf("an event of the provider's stream has more than %d MiB", provider.MaxEventBytes>>20), Err: err,
			}
		case err != nil:
			if r.isWhole(err) {
				return nil
			}
			return r.stream.Fault(fmt.Errorf("read a stream: %w", err))
		case string(e.data) != doneMark:
		case len(r.choices) == 0:
			return &provider.Error{
				Class: provider.Retryable, Code: llmq.CodeProviderError, Status: r.stream.Status, Message: "the provider's stream ended before it began",
			}
		default:
			return nil
		}
		if err := r.pass(e); err != nil {
			return err
		}
	}
}

// pass looks at one event and emits it.
func (r *relay) pass(e sseEvent) error {
	if !egress.Sound(e.data) {
		return &provider.Error{
			Class: provider.Retryable, Code: llmq.CodeProviderError, Status: r.stream.Status, Message: "the provider's stream holds what is no event",
		}
	}
	top := gjson.ParseBytes(e.data)
	choices := top.Get("choices")
	if failed := top.Get("error"); e.name == "error" || failed.Exists() && failed.Type != gjson.Null {
		return r.failed(e.data, failed)
	}
	if e.name != "" && !choices.Exists() {
		return nil // a ping, or whatever else is no part of the reply (case H20)
	}
	told := top.Get("usage")
	if u := usageOf(e.data); u != nil {
		r.usage = u
	}
	if !r.wantsUsage && told.IsObject() && choices.IsArray() && len(choices.Array()) == 0 {
		return nil
	}
	content := r.look(choices)
	if content && !r.content {
		r.content = true
		r.stream.Begun()
	}
	r.frame = appendSSE(r.frame[:0], e.data)
	r.emit(r.frame, content)
	return nil
}

// look notes which choices have finished, and reports whether any of them says something.
func (r *relay) look(choices gjson.Result) (content bool) {
	choices.ForEach(func(_, c gjson.Result) bool {
		index := int(c.Get("index").Int())
		if finish := c.Get("finish_reason"); finish.Exists() && finish.Type != gjson.Null {
			r.choices[index], content = true, true
		} else if !r.choices[index] {
			r.choices[index] = false
		}
		c.Get("delta").ForEach(func(name, v gjson.Result) bool {
			content = content || name.Str != "role" && !empty(v)
			return true
		})
		return true
	})
	return content
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

// failed makes an error of an event that tells of one. Its code, where it is a number, is the status that the
// provider would have answered with.
func (r *relay) failed(data []byte, e gjson.Result) error {
	status := http.StatusInternalServerError
	if code := int(e.Get("code").Int()); code >= 400 && code < 600 {
		status = code
	}
	return classify(egress.Reply{Status: status, Header: http.Header{}, Body: data}, time.Now(), r.key)
}

// isWhole reports whether the reply was whole when its connection ended without the mark.
func (r *relay) isWhole(end error) bool {
	if end != io.EOF || len(r.choices) == 0 { //nolint:errorlint // a connection that broke off has another one
		return false
	}
	for _, finished := range r.choices {
		if !finished {
			return false
		}
	}
	return true
}
