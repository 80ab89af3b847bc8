package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// withModel returns body with its top-level "model" set to id; every other byte stays as it is. It
// returns body itself where the model is id already.
//
// The body is read as strictly as at the door, since this is the last look at the bytes that are
// sent: a name given twice, however it is escaped, or "Model" beside "model", could mean one model
// to us and another to the server.
func withModel(body []byte, id string) ([]byte, error) {
	quoted, err := jsontext.AppendQuote(nil, id)
	if err != nil {
		return nil, fmt.Errorf("quote the model id: %w", err)
	}
	start, end, members, err := findModel(body)
	if err != nil {
		return nil, err
	}
	if start < 0 { // absent: it becomes the first member
		insert := append([]byte(`"model":`), quoted...)
		if members > 0 {
			insert = append(insert, ',')
		}
		return splice(body, end, end, insert), nil
	}
	old := jsontext.Value(body[start:end])
	if old.Kind() == '"' {
		if text, err := jsontext.AppendUnquote(nil, old); err == nil && string(text) == id {
			return body, nil
		}
	}
	return splice(body, start, end, quoted), nil
}

// findModel returns where the value of "model" begins and ends. Where there is none, start is
// negative and end the place behind the opening brace.
func findModel(body []byte) (start, end, members int, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	open, err := dec.ReadToken()
	if err != nil {
		return 0, 0, 0, invalid(err)
	}
	if open.Kind() != '{' {
		return 0, 0, 0, errors.New("body is no JSON object")
	}
	start, end = -1, int(dec.InputOffset())
	for ; dec.PeekKind() != '}'; members++ {
		token, err := dec.ReadToken()
		if err != nil {
			return 0, 0, 0, invalid(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return 0, 0, 0, invalid(err)
		}
		switch {
		case name == "model":
			end = int(dec.InputOffset())
			start = end - len(value)
		case strings.EqualFold(name, "model"):
			return 0, 0, 0, errors.New("body holds a name that is model in other letters")
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return 0, 0, 0, invalid(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return 0, 0, 0, errors.New("body holds more than one value")
	}
	return start, end, members, nil
}

// invalid says where the body is wrong. The parser's own words would quote names from it, and
// errors end up in logs.
func invalid(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("body is not strict JSON at byte %d", e.ByteOffset)
	}
	return errors.New("body ends early")
}

func splice(body []byte, from, to int, insert []byte) []byte {
	out := make([]byte, 0, len(body)-(to-from)+len(insert))
	out = append(out, body[:from]...)
	out = append(out, insert...)
	return append(out, body[to:]...)
}
