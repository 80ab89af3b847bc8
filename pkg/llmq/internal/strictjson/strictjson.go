// Package strictjson is the one pass that a JSON text goes through before any field
// of it is read (SECURITY-DESIGN IN2).
//
// Two parsers can read two truths out of one text: with a name given twice gjson
// reads the first, encoding/json the last, and neither says so. A text that has
// passed [Check] means the same to all of them, is bounded in depth and in members,
// and can therefore be given to gjson and sjson.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Limits bounds a text. Start from [Default].
type Limits struct {
	Depth   int // containers inside each other, at least 1
	Members int // object members in the whole text; array elements are not counted, since they cost no memory here
	// Object says that the text must be an object, as every request body is.
	Object bool
	// Guarded lists names that must be spelled exactly at the top level: one that
	// equals such a name in all but case, or that is written with an escape, is
	// refused, because a lenient reader further on would take it for the field.
	// Deeper names are free: a tool's schema may well have a property "Model".
	// Each has at most 64 bytes.
	Guarded []string
}

// Default is the door's bounds: an object of depth 100 with 10,000 members, and the
// names of [Fields] guarded.
func Default() Limits {
	return Limits{Depth: 100, Members: 10_000, Object: true, Guarded: Fields()}
}

// For is what bounds the body of an op: [Default], but that a job's payload is its function's own, so that none of its names is anybody's field.
func For(op llmq.Op) Limits {
	l := Default()
	if op == llmq.OpJob {
		l.Guarded = nil
	}
	return l
}

// Fields lists the body fields that spend money or reach somewhere (SECURITY-DESIGN
// IN5), over all wires, with the two that the door reads.
func Fields() []string {
	return []string{
		"model", "stream",
		"max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of",
		"service_tier", "store", "stream_options", "prompt_cache_key", "cache_salt",
		"api_base", "base_url", "api_key", "extra_body", "extra_headers",
		"models", "route", "provider", "plugins", "tools",
		"background", "previous_response_id", "conversation", "prompt",
		"inferenceConfig", "guardrailConfig", "performanceConfig", "serviceTier",
		"additionalModelRequestFields", "toolConfig",
	}
}

var bom = []byte("\xef\xbb\xbf")

// Check reports whether body is exactly one JSON value within l: names unique in
// their object (however they are escaped), text valid UTF-8 without half surrogate
// pairs. It does not change body and keeps nothing of it. It allocates at most eight
// times body's length in all (long strings and names), mostly a few KiB, and reads
// 40 MB/s or more on one core.
//
// The error is an [*llmq.Error] with [llmq.CodeInvalidJSON], or
// [llmq.CodeInvalidRequest] for a limit or a guarded name. It names the member's path
// and the byte, and holds nothing else of body.
func Check(body []byte, l Limits) error {
	if bytes.HasPrefix(body, bom) {
		return llmq.Errorf(llmq.CodeInvalidJSON, "the body begins with a byte order mark; leave it out")
	}
	c := checker{limits: l, dec: jsontext.NewDecoder(bytes.NewReader(body))}
	if l.Object && c.dec.PeekKind() != '{' {
		if len(bytes.TrimSpace(body)) == 0 {
			return llmq.Errorf(llmq.CodeInvalidJSON, "the body is empty; it must be a JSON object")
		}
		return llmq.Errorf(llmq.CodeInvalidRequest, "the body is not a JSON object")
	}
	if err := c.value(); err != nil {
		return err
	}
	// jsontext reads streams of values, so that the end must be asked for.
	switch _, err := c.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	default:
		return llmq.Errorf(llmq.CodeInvalidJSON, "something follows the JSON value at byte %d", c.dec.InputOffset())
	}
}

type checker struct {
	limits  Limits
	dec     *jsontext.Decoder
	members int
}

// value reads tokens up to the end of the first value.
func (c *checker) value() error {
	for {
		if kind, n := c.dec.StackIndex(c.dec.StackDepth()); kind == '{' && n%2 == 0 && c.dec.PeekKind() == '"' {
			if err := c.name(); err != nil {
				return err
			}
			continue
		}
		if k := c.dec.PeekKind(); (k == '{' || k == '[') && c.dec.StackDepth() >= c.limits.Depth {
			return c.refuse(llmq.CodeInvalidRequest, "lies deeper than %d levels", c.limits.Depth)
		}
		if _, err := c.dec.ReadToken(); err != nil {
			return c.syntax(err)
		}
		if c.dec.StackDepth() == 0 {
			return nil
		}
	}
}

// name reads a member's name.
func (c *checker) name() error {
	if c.members++; c.members > c.limits.Members {
		return c.refuse(llmq.CodeInvalidRequest, "is too much: the body has more than %d members", c.limits.Members)
	}
	top := c.dec.StackDepth() == 1
	raw, err := c.dec.ReadValue()
	if err != nil {
		return c.syntax(err)
	}
	if !top || len(c.limits.Guarded) == 0 {
		return nil
	}
	return c.guard(raw)
}

func (c *checker) guard(raw jsontext.Value) error {
	if len(raw) > len(`""`)+maxGuardedBytes*len(`\u0000`) {
		return nil // too long for a guarded name, however it is escaped, and perhaps megabytes
	}
	unquoted, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return c.syntax(err)
	}
	name := string(unquoted)
	exact := slices.Contains(c.limits.Guarded, name)
	if exact && bytes.IndexByte(raw, '\\') >= 0 {
		return c.refuse(llmq.CodeInvalidRequest, "is spelled with an escape; write it plainly")
	}
	if exact {
		return nil
	}
	for _, want := range c.limits.Guarded {
		if strings.EqualFold(name, want) {
			return c.refuse(llmq.CodeInvalidRequest, "differs from %s in case only; write it exactly so or leave it out", want)
		}
	}
	return nil
}

// syntax turns a fault that jsontext found into ours. Its own text quotes the body,
// so nothing of it is used but its place.
func (c *checker) syntax(err error) error {
	offset, pointer := c.dec.InputOffset(), c.dec.StackPointer()
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset, pointer = se.ByteOffset, se.JSONPointer
	}
	what := "is not valid JSON"
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		what = "is given twice"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		what = "is cut short"
	case strings.HasPrefix(cause(err), "invalid UTF-8"):
		what = "is not valid UTF-8"
	case strings.HasPrefix(cause(err), "invalid surrogate pair"):
		what = "holds half of a surrogate pair"
	}
	return at(llmq.CodeInvalidJSON, pointer, offset, what)
}

// cause is jsontext's word for what was wrong. It is compared only, never shown; should
// a release change it, the fault is still refused, in more general words.
func cause(err error) string {
	if c := errors.Unwrap(err); c != nil {
		return c.Error()
	}
	return ""
}

func (c *checker) refuse(code llmq.Code, format string, args ...any) error {
	return at(code, c.dec.StackPointer(), c.dec.InputOffset(), fmt.Sprintf(format, args...))
}

func at(code llmq.Code, pointer jsontext.Pointer, offset int64, what string) error {
	field := path(pointer)
	subject := field
	if subject == "" {
		subject = "the body"
	}
	return llmq.Errorf(code, "%s %s (byte %d)", subject, what, offset).At(field)
}

// maxGuardedBytes bounds a guarded name.
const maxGuardedBytes = 64

const (
	maxNameBytes = 60  // of one name in a path
	maxPathBytes = 200 // of a whole path
)

// path writes a pointer as people and SDKs write it: messages.0.content.
func path(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(llmq.Clip(printable(name), maxNameBytes))
		if b.Len() > maxPathBytes {
			return llmq.Clip(b.String(), maxPathBytes)
		}
	}
	return b.String()
}

// printable replaces what could play tricks with a terminal or a log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, llmq.Clip(s, 4*maxNameBytes))
}
