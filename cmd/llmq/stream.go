package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
)

// event is a piece of a stream: its JSON, and the text in it.
type event struct {
	raw  json.RawMessage
	text string
}

// stream writes a reply while it comes: text on a terminal, else a line of JSON for each event.
func (a *app) stream(ctx context.Context, door *remote.Remote, c calling, resp *http.Response) error {
	a.meta(resp.Header)
	next := chatEvents(resp.Body)
	switch {
	case c.bedrock():
		next = converseEvents(resp.Body, c.op == opInvoke)
	case c.op == opResponses:
		next = responseEvents(resp.Body)
	}
	wrote := false
	defer func() {
		if wrote {
			fmt.Fprintln(a.out) // the text has no end of its own
		}
	}()
	for {
		e, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if _, told := errors.AsType[*remote.Refused](err); told {
				return err
			}
			return &remote.Unreachable{Host: door.Host(), Err: fmt.Errorf("the stream broke off: %w", err)}
		}
		if !a.tables() {
			if err := a.jsonLine(e.raw); err != nil {
				return err
			}
			continue
		}
		if e.text = printable(e.text); e.text != "" {
			if _, err := io.WriteString(a.out, e.text); err != nil {
				return err
			}
			wrote = true
		}
	}
}

func (a *app) jsonLine(raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	b.WriteByte('\n')
	_, err := a.out.Write(b.Bytes())
	return err
}

// maxEventBytes bounds an event of a stream.
const maxEventBytes = 16 << 20

// chatEvents reads server-sent events as OpenAI has them. An end without [DONE] is a break.
func chatEvents(body io.Reader) func() (event, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEventBytes)
	return func() (event, error) {
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			if !ok {
				continue // a comment, or a field that nobody needs
			}
			data = strings.TrimSpace(data)
			if data == "[DONE]" {
				return event{}, io.EOF
			}
			var got struct {
				Error   *struct{ Code, Message string }
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(data), &got); err != nil {
				return event{}, fmt.Errorf("read an event: %w", err)
			}
			if got.Error != nil {
				return event{}, &remote.Refused{Status: http.StatusOK, Code: got.Error.Code, Message: got.Error.Message}
			}
			e := event{raw: json.RawMessage(data)}
			if len(got.Choices) > 0 {
				e.text = got.Choices[0].Delta.Content
			}
			return e, nil
		}
		if err := lines.Err(); err != nil {
			return event{}, err
		}
		return event{}, io.ErrUnexpectedEOF
	}
}

// responseEvents reads server-sent events of OpenAI's Responses. Each names its type; the last is that of the whole response.
func responseEvents(body io.Reader) func() (event, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEventBytes)
	ended := false
	return func() (event, error) {
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			if !ok {
				continue // its type stands in the data too
			}
			var got struct{ Type, Delta, Code, Message string }
			if err := json.Unmarshal([]byte(data), &got); err != nil {
				return event{}, fmt.Errorf("read an event: %w", err)
			}
			e := event{raw: json.RawMessage(data)}
			switch got.Type {
			case "error":
				return event{}, &remote.Refused{Status: http.StatusOK, Code: got.Code, Message: got.Message}
			case "response.output_text.delta":
				e.text = got.Delta
			case "response.completed", "response.incomplete", "response.failed":
				ended = true
			}
			return e, nil
		}
		switch err := lines.Err(); {
		case err != nil:
			return event{}, err
		case ended:
			return event{}, io.EOF
		}
		return event{}, io.ErrUnexpectedEOF
	}
}

// converseEvents reads frames as Bedrock has them. Of a conversation they end with the event metadata, and the body behind it; the frames of
// an invocation are the model's own, and end where the body does.
func converseEvents(body io.Reader, own bool) func() (event, error) {
	decoder := eventstream.NewDecoder()
	stopped := own
	return func() (event, error) {
		m, err := decoder.Decode(body, nil)
		if errors.Is(err, io.EOF) && !stopped {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return event{}, err
		}
		header := func(name string) string {
			if v := m.Headers.Get(name); v != nil {
				return v.String()
			}
			return ""
		}
		if header(eventstreamapi.MessageTypeHeader) != eventstreamapi.EventMessageType {
			var told struct{ Message string }
			if json.Unmarshal(m.Payload, &told) != nil {
				told.Message = ""
			}
			return event{}, &remote.Refused{Status: http.StatusOK, Code: header(eventstreamapi.ExceptionTypeHeader), Message: told.Message}
		}
		name := header(eventstreamapi.EventTypeHeader)
		stopped = stopped || name == "messageStop"
		raw, err := json.Marshal(map[string]json.RawMessage{name: m.Payload})
		if err != nil {
			return event{}, fmt.Errorf("read an event: %w", err)
		}
		var got struct{ Delta struct{ Text string } }
		if json.Unmarshal(m.Payload, &got) != nil {
			got.Delta.Text = ""
		}
		return event{raw, got.Delta.Text}, nil
	}
}
