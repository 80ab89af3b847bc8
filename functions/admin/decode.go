package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// maxBodyBytes bounds a verb's arguments; the longest is a redrive's cursor.
const maxBodyBytes = 16 << 10

// decode reads a verb's arguments: one object, no field that the verb doesn't have. A misspelt dry_run must not become a
// redrive.
func decode(body []byte, into any) error {
	if len(body) > maxBodyBytes {
		return llmq.Errorf(llmq.CodeTooLarge, "the body has %d bytes; a verb takes %d", len(body), maxBodyBytes)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return llmq.Errorf(llmq.CodeInvalidJSON, "the body is missing; send the verb's arguments as a JSON object: %s", fields(into))
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return explain(err, into)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return llmq.Errorf(llmq.CodeInvalidJSON, "the body holds more than one JSON value")
	}
	return nil
}

// fields lists what a verb takes, in the order of its struct.
func fields(into any) string {
	var names []string
	for f := range reflect.TypeOf(into).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func explain(err error, into any) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return llmq.Errorf(llmq.CodeInvalidRequest, "the body must be a JSON object")
		}
		return llmq.Errorf(llmq.CodeInvalidRequest, "%s can't be a JSON %s", wrong.Field, wrong.Value).At(wrong.Field)
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return llmq.Errorf(llmq.CodeInvalidRequest, "the verb has no field %s; it takes %s", llmq.Clip(name, 60), fields(into))
	}
	return llmq.Errorf(llmq.CodeInvalidJSON, "the body is no JSON")
}
