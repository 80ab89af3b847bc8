package llmq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// EnvelopeVersion is the version that this release writes. A reader takes its own
// and older ones; a newer one is released to wait for newer workers, never dropped.
// Within a version no field is added, since an unknown field is refused.
const EnvelopeVersion = 1

// Envelope is a message on a queue: a request on its way. Its JSON form is
// published as a JSON Schema, docs/envelope.schema.json, so that a service in any language can
// write one by hand; only v, id, op, model and params (or ref) are needed.
type Envelope struct {
	ID         string
	Op         Op
	Model      string // model reference
	Lane       Lane   // "" is the queue's lane
	Fallback   FallbackPolicy
	Deadline   time.Time // zero: the lane's default, counted from the send
	Tenant     string    // from our own roles only (SECURITY-DESIGN MS2)
	KeyID      string
	User       string
	Session    string
	Trace      string
	ReplyTo    string            // alias of a configured reply target
	Generation int               // redrives so far
	Headers    map[string]string // what goes with the body of an invocation, by canonical name; from our own roles only, see [Op.Headers]
	Params     []byte            // the wire's own JSON body, byte for byte
	Ref        *Ref              // where the body lies instead, when it is large
}

// Ref points at a stored body. The hash is compared before a byte of it is parsed.
type Ref struct {
	Key    string `json:"key"`    // object key inside the data bucket
	SHA256 string `json:"sha256"` // of the body, lower-case hex
	Bytes  int64  `json:"bytes"`  // of the body
}

// MaxBodyBytes bounds a body that lies apart from its message (SECURITY-DESIGN IN1).
const MaxBodyBytes = 20 << 20

// UnmarshalJSON takes exactly the three members, each of them: where a body lies is no
// place for guesses.
func (r *Ref) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return fmt.Errorf("decode ref: %w", err)
	}
	fields := map[string]any{"key": &r.Key, "sha256": &r.SHA256, "bytes": &r.Bytes}
	for name, dst := range fields {
		if err := json.Unmarshal(members[name], dst); err != nil {
			return fmt.Errorf("decode ref: %s: %w", name, err)
		}
	}
	if len(members) != len(fields) || r.Key == "" || r.SHA256 == "" || r.Bytes < 1 {
		return errors.New("decode ref: needs key, sha256 and bytes, and nothing else")
	}
	if r.Bytes > MaxBodyBytes { // before anybody makes room for it
		return fmt.Errorf("decode ref: bytes is %d, a body has at most %d", r.Bytes, MaxBodyBytes)
	}
	return nil
}

type envelopeJSON struct {
	V          int               `json:"v"`
	ID         string            `json:"id"`
	Op         Op                `json:"op"`
	Model      string            `json:"model"`
	Lane       Lane              `json:"lane,omitempty"`
	Fallback   FallbackPolicy    `json:"fallback,omitempty"`
	DeadlineMS int64             `json:"deadline_ms,omitempty"`
	Tenant     string            `json:"tenant,omitempty"`
	KeyID      string            `json:"kid,omitempty"`
	User       string            `json:"user,omitempty"`
	Session    string            `json:"session,omitempty"`
	Trace      string            `json:"traceparent,omitempty"`
	ReplyTo    string            `json:"reply_to,omitempty"`
	Generation int               `json:"generation,omitempty"`
	Ref        *Ref              `json:"ref,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Params     json.RawMessage   `json:"params,omitempty"`
}

// Encode writes e as JSON that SQS can carry: the params stand in it byte for byte,
// but for the two characters that SQS refuses (U+FFFE, U+FFFF), which are escaped.
func (e Envelope) Encode() ([]byte, error) {
	w := envelopeJSON{
		V: EnvelopeVersion, ID: e.ID, Op: e.Op, Model: e.Model, Lane: e.Lane, Fallback: e.Fallback,
		Tenant: e.Tenant, KeyID: e.KeyID, User: e.User, Session: e.Session, Trace: e.Trace,
		ReplyTo: e.ReplyTo, Generation: e.Generation, Ref: e.Ref, Headers: e.Headers,
	}
	if !e.Deadline.IsZero() {
		w.DeadlineMS = e.Deadline.UnixMilli()
	}
	out, err := spliceLast(w, "params", e.Params)
	if err != nil {
		return nil, fmt.Errorf("encode envelope %s: %w", Clip(e.ID, MaxIDBytes), err)
	}
	return Carriable(out), nil
}

// DecodeEnvelope reads a message's body, which the caller has put through a strict
// JSON pass before (a name twice, bad UTF-8). Names are matched exactly.
//
// It returns [CodeNewerEnvelope] for a newer version, whose fields it does not look
// at, and [CodeBadEnvelope] for everything else that is wrong, naming the field.
func DecodeEnvelope(b []byte) (Envelope, error) {
	bad := func(field, format string, args ...any) (Envelope, error) {
		return Envelope{}, Errorf(CodeBadEnvelope, format, args...).At(field)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return bad("", "the message is not a JSON object")
	}
	var v int
	if raw, ok := members["v"]; !ok || json.Unmarshal(raw, &v) != nil || v < 1 {
		return bad("v", "v is missing or not a positive integer; this release writes %d", EnvelopeVersion)
	}
	if v > EnvelopeVersion {
		return Envelope{}, Errorf(CodeNewerEnvelope, "the message has version %d, this worker reads up to %d", v, EnvelopeVersion).At("v")
	}
	var w envelopeJSON
	fields := w.fields()
	for _, name := range slices.Sorted(maps.Keys(members)) { // sorted: the same message gets the same answer
		raw := members[name]
		dst, ok := fields[name]
		if !ok {
			return bad(name, "unknown field %q%s", Clip(name, 60), hint(name, fieldNames()))
		}
		if bytes.Equal(raw, []byte("null")) {
			return bad(name, "%s is null; leave it out instead", name)
		}
		if err := json.Unmarshal(raw, dst); err != nil {
			return bad(name, "%s is not of its form", name)
		}
	}
	return w.check()
}

// fields maps each name to where its value goes. Matching by map is exact, which
// encoding/json's own matching of struct fields is not.
func (w *envelopeJSON) fields() map[string]any {
	return map[string]any{
		"v": &w.V, "id": &w.ID, "op": &w.Op, "model": &w.Model, "lane": &w.Lane, "fallback": &w.Fallback,
		"deadline_ms": &w.DeadlineMS, "tenant": &w.Tenant, "kid": &w.KeyID, "user": &w.User, "session": &w.Session,
		"traceparent": &w.Trace, "reply_to": &w.ReplyTo, "generation": &w.Generation, "ref": &w.Ref, "headers": &w.Headers, "params": &w.Params,
	}
}

func fieldNames() []string {
	var w envelopeJSON
	return slices.Sorted(maps.Keys(w.fields()))
}

// MaxLabelBytes bounds user and session (SECURITY-DESIGN IN4).
const MaxLabelBytes = 256

func (w *envelopeJSON) check() (Envelope, error) {
	for _, err := range []error{CheckID("id", w.ID), checkOp(w.Op), checkRef(w.Model), checkLane(w.Lane), checkFallback(w.Fallback), checkTenant(w.Tenant), w.Op.CheckHeaders(w.Headers)} {
		if err != nil {
			e := AsError(err)
			return Envelope{}, Errorf(CodeBadEnvelope, "%s", e.Message).At(e.Field)
		}
	}
	bad := func(field, format string, args ...any) (Envelope, error) {
		return Envelope{}, Errorf(CodeBadEnvelope, format, args...).At(field)
	}
	switch {
	case len(w.Params) == 0 && w.Ref == nil:
		return bad("params", "params is missing; it holds the provider's own request body")
	case len(w.Params) != 0 && w.Ref != nil:
		return bad("ref", "params and ref are both given; a body lies in one place")
	case len(w.Params) != 0 && w.Params[0] != '{':
		return bad("params", "params must be a JSON object")
	case w.DeadlineMS < 0 || w.DeadlineMS >= 1e14:
		return bad("deadline_ms", "deadline_ms must be milliseconds since 1970 below 10^14, is %d", w.DeadlineMS)
	case w.Generation < 0 || w.Generation > 1000:
		return bad("generation", "generation must be from 0 to 1000, is %d", w.Generation)
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{
		{"user", w.User, MaxLabelBytes},
		{"session", w.Session, MaxLabelBytes},
		{"kid", w.KeyID, MaxIDBytes},
		{"traceparent", w.Trace, MaxIDBytes},
		{"reply_to", w.ReplyTo, MaxIDBytes},
	} {
		if len(text.value) > text.most {
			return bad(text.field, "%s holds at most %d bytes, has %d", text.field, text.most, len(text.value))
		}
	}
	e := Envelope{
		ID: w.ID, Op: w.Op, Model: w.Model, Lane: w.Lane, Fallback: w.Fallback, Tenant: w.Tenant, KeyID: w.KeyID,
		User: w.User, Session: w.Session, Trace: w.Trace, ReplyTo: w.ReplyTo, Generation: w.Generation, Ref: w.Ref, Headers: w.Headers, Params: w.Params,
	}
	if w.DeadlineMS > 0 {
		e.Deadline = time.UnixMilli(w.DeadlineMS)
	}
	return e, nil
}

func checkOp(o Op) error {
	if o == "" {
		return Errorf(CodeBadEnvelope, "op is missing; use %s", opNames()).At("op")
	}
	_, err := ParseOp(string(o))
	return err
}

func checkRef(s string) error              { _, err := ParseModelRef(s); return err }
func checkFallback(p FallbackPolicy) error { _, err := ParseFallback(string(p)); return err }
func checkLane(l Lane) error               { _, err := ParseLane(string(l)); return err }

func checkTenant(t string) error {
	if t == "" {
		return nil
	}
	return CheckTenant(t)
}

// spliceLast marshals v and adds one more member with raw as its value, untouched:
// json.Marshal would compact it and escape its angle brackets.
func spliceLast(v any, name string, raw []byte) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(512 + len(raw))
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	if len(raw) == 0 {
		return bytes.TrimRight(buf.Bytes(), "\n"), nil
	}
	buf.Truncate(buf.Len() - len("}\n"))
	buf.WriteString(`,"` + name + `":`)
	buf.Write(raw)
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

// Carriable is JSON as SQS takes it in a body: with escapes for the two characters that are legal in JSON and not there (U+FFFE,
// U+FFFF). They can only stand inside strings, where the escape means the same.
func Carriable(b []byte) []byte {
	if !bytes.Contains(b, []byte("\xef\xbf")) { // both begin so, and hardly any text has it
		return b
	}
	b = bytes.ReplaceAll(b, []byte("\uFFFE"), []byte(`\ufffe`))
	return bytes.ReplaceAll(b, []byte("\uFFFF"), []byte(`\uffff`))
}
