// Package events holds examples of what llmq's functions are given; its test keeps
// them, the published schema and the code in step.
package events

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awsevents "github.com/aws/aws-lambda-go/events"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const schemaFile = "../docs/envelope.schema.json"

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	s, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatalf("compile the published schema: %v", err)
	}
	return s
}

// verdict is the schema's word on a message.
func verdict(t interface{ Fatalf(string, ...any) }, s *jsonschema.Schema, message []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(message))
	if err != nil {
		t.Fatalf("not JSON: %v\n%s", err, message)
	}
	return s.Validate(v)
}

func load(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEnvelopes_AreTakenByCodeAndSchema(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for file, fields := range map[string]int{"envelope-minimal.json": 5, "envelope-reply.json": 6, "envelope-full.json": 15, "envelope-ref.json": 6} {
		b := load(t, file)
		e, err := llmq.DecodeEnvelope(b)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := verdict(t, s, b); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(b, &members); err != nil || len(members) != fields {
			t.Errorf("%s has %d fields, want %d (%v)", file, len(members), fields, err)
		}
		out, err := e.Encode()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := verdict(t, s, out); err != nil {
			t.Errorf("%s, written again: %v", file, err)
		}
	}
}

func TestEnvelopes_AllFilesAreKnownToATest(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	known := "admin-key-create.json door-chat.json door-converse.json door-embeddings.json door-health.json envelope-full.json envelope-minimal.json envelope-ref.json envelope-reply.json reply.json sqs-two-envelopes.json"
	if got := strings.Join(files, " "); got != known {
		t.Errorf("the files are %s", got)
	}
}

// A13: the reply is the end of the request that its message makes.
func TestReply_IsThatOfItsMessage(t *testing.T) {
	t.Parallel()
	e, err := llmq.DecodeEnvelope(load(t, "envelope-reply.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := llmq.Request{ID: e.ID, Tenant: "default"} // of the local cloud's producer
	res, ref, err := llmq.DecodeResult(load(t, "reply.json"), r.RID(), r.Tenant)
	if err != nil || ref != nil || res.Reply == nil || res.Reply.Status != 200 || res.Reply.Meta.RequestID != e.ID {
		t.Errorf("the reply is %+v, %v", res, err)
	}
}

func TestSQSEvent_HoldsTwoEnvelopesOfItsQueue(t *testing.T) {
	t.Parallel()
	s := schema(t)
	var e awsevents.SQSEvent
	dec := json.NewDecoder(bytes.NewReader(load(t, "sqs-two-envelopes.json")))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil || len(e.Records) != 2 {
		t.Fatalf("%d records, %v", len(e.Records), err)
	}
	for _, r := range e.Records {
		env, err := llmq.DecodeEnvelope([]byte(r.Body))
		if err != nil {
			t.Fatalf("%s: %v", r.MessageId, err)
		}
		if err := verdict(t, s, []byte(r.Body)); err != nil {
			t.Errorf("%s: %v", r.MessageId, err)
		}
		sum := md5.Sum([]byte(r.Body))
		if r.Md5OfBody != hex.EncodeToString(sum[:]) || r.EventSource != "aws:sqs" || !strings.HasSuffix(r.EventSourceARN, ":llm-"+env.Model) {
			t.Errorf("%s: the record does not fit its body", r.MessageId)
		}
	}
}

// The schema says what code says, also about the fields that only Encode writes.
func TestSchema_TakesWhateverEncodeWrites(t *testing.T) {
	t.Parallel()
	s := schema(t)
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringOfN(rapid.RuneFrom([]rune("aé☕<&\"\\\n\uFFFE")), 0, 40, 256)
		e := llmq.Envelope{
			ID: rapid.StringMatching(`[A-Za-z0-9._:-]{1,128}`).Draw(t, "id"), Op: rapid.SampledFrom(llmq.Ops()).Draw(t, "op"),
			Model: rapid.StringMatching(`[A-Za-z0-9._:/+-]{1,20}(@[a-z0-9-]{1,8})?`).Draw(t, "model"),
			Lane:  rapid.SampledFrom(append(llmq.Lanes(), "")).Draw(t, "lane"), Fallback: rapid.SampledFrom([]llmq.FallbackPolicy{"", llmq.FallbackChain, llmq.FallbackTarget}).Draw(t, "fallback"),
			Tenant: rapid.StringMatching(`[a-z0-9-]{0,48}`).Draw(t, "tenant"), KeyID: rapid.StringMatching(`[a-z0-9]{0,20}`).Draw(t, "kid"),
			User: label.Draw(t, "user"), Session: label.Draw(t, "session"), Generation: rapid.IntRange(0, 1000).Draw(t, "generation"),
		}
		if ms := rapid.Int64Range(0, 1e14-1).Draw(t, "deadline"); ms > 0 {
			e.Deadline = time.UnixMilli(ms)
		}
		if rapid.Bool().Draw(t, "by reference") {
			e.Ref = &llmq.Ref{Key: "off/a/b", SHA256: strings.Repeat("0a", 32), Bytes: rapid.Int64Range(1, llmq.MaxBodyBytes).Draw(t, "bytes")}
		} else {
			e.Params = []byte(`{ "a" : [1.0, "<>"] }`)
		}
		b, err := e.Encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if err := verdict(t, s, b); err != nil {
			t.Fatalf("the schema refuses %s: %v", b, err)
		}
		if _, err := llmq.DecodeEnvelope(b); err != nil {
			t.Fatalf("the code refuses %s: %v", b, err)
		}
	})
}

// fault is one way to break a message. It works on the parsed members.
type fault struct {
	name  string
	apply func(t *rapid.T, m map[string]any)
}

func set(name string, values ...any) fault {
	return fault{name, func(t *rapid.T, m map[string]any) { m[name] = rapid.SampledFrom(values).Draw(t, name) }}
}

// faults holds changes that both judges can judge. Left out on purpose: a newer v
// (released, not refused), 1.0 for an integer (the same to a schema), a name given
// twice (a parser's business), labels whose bytes and characters differ in number, and
// the form of a ref's key and hash (looked at when it is followed).
func faults() []fault {
	long := func(n int) string { return strings.Repeat("x", n) }
	return []fault{
		set("v", 0, -1, "1", 1.5, nil, true, 1),
		set("id", "", "a b", "a\n", "é", long(128), long(129), 7, nil, "a/b", "ok-1"),
		set("op", "", "chats", "CHAT", "embeddings", nil, 1),
		set("model", "", "@", "a@", "@b", "a@b", "a@b@c", "a b", "arn:aws:bedrock:eu:1:x/y", long(2048), long(2049), nil, "a%2Fb"),
		set("lane", "rt", "bg", "bulk", "", "RT", "fast", nil, 1),
		set("fallback", "chain", "target", "", "none", nil, false),
		set("deadline_ms", 0, 1, -1, int64(1e14), int64(1e14-1), 1.5, "1", nil),
		set("tenant", "", "a-1", "A", "a_b", long(48), long(49), nil),
		set("kid", "", long(128), long(129), nil, 1),
		set("user", "", long(256), long(257), nil, 1),
		set("session", "", long(256), long(257), nil, []any{}),
		set("traceparent", "anything", long(128), long(129), nil),
		set("reply_to", "billing", long(128), long(129), nil, map[string]any{}),
		set("generation", 0, 1000, 1001, -1, 0.5, nil, "1"),
		set("params", map[string]any{}, map[string]any{"x": nil}, []any{}, "x", 1, nil),
		set("ref", nil, []any{}, "x", map[string]any{}, map[string]any{"key": "off/a/b"}, ref(nil), ref(map[string]any{"bytes": 0}), ref(map[string]any{"bytes": "1"}),
			ref(map[string]any{"bytes": 1.5}), ref(map[string]any{"key": ""}), ref(map[string]any{"sha256": nil}), ref(map[string]any{"bucket": "x"}), ref(map[string]any{"key": 1})),
		{"drop", func(t *rapid.T, m map[string]any) {
			delete(m, rapid.SampledFrom([]string{"v", "id", "op", "model", "params", "ref", "lane"}).Draw(t, "dropped"))
		}},
		{"unknown", func(t *rapid.T, m map[string]any) {
			m[rapid.SampledFrom([]string{"base_url", "headers", "ID", "Params", "attempts", "", "v "}).Draw(t, "added")] = rapid.SampledFrom([]any{"x", 1, nil}).Draw(t, "value")
		}},
	}
}

func ref(set map[string]any) map[string]any {
	r := map[string]any{"key": "off/a/b", "sha256": strings.Repeat("0a", 32), "bytes": 4711}
	for k, v := range set {
		r[k] = v
	}
	return r
}

func TestSchema_JudgesBrokenEnvelopesAsTheCodeDoes(t *testing.T) {
	t.Parallel()
	s := schema(t)
	taken, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := map[string]any{"v": 1, "id": "r-1", "op": "chat", "model": "chat-a", "lane": "bg"}
		if rapid.Bool().Draw(t, "by reference") {
			m["ref"] = ref(nil)
		} else {
			m["params"] = map[string]any{"messages": []any{}}
		}
		for range rapid.IntRange(0, 2).Draw(t, "faults") {
			rapid.SampledFrom(faults()).Draw(t, "fault").apply(t, m)
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		_, codeErr := llmq.DecodeEnvelope(b)
		schemaErr := verdict(t, s, b)
		if (codeErr == nil) != (schemaErr == nil) {
			t.Fatalf("%s\ncode: %v\nschema: %v", b, codeErr, schemaErr)
		}
		if codeErr == nil {
			taken++
			return
		}
		refused++
		if !errors.Is(codeErr, llmq.CodeBadEnvelope) {
			t.Fatalf("%s: code says %v", b, codeErr)
		}
	})
	if taken == 0 || refused == 0 {
		t.Errorf("nothing was told apart: %d taken, %d refused", taken, refused)
	}
}

// Every single fault is tried, too, so that the property above can't miss one by luck.
func TestSchema_JudgesEachKindOfFault(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for name, value := range map[string]string{
		"v": `"1"`, "id": `"a b"`, "op": `"chats"`, "model": `"a@"`, "lane": `"fast"`, "fallback": `"none"`, "deadline_ms": `-1`, "tenant": `"A"`,
		"kid": `1`, "user": `1`, "session": `1`, "traceparent": `1`, "reply_to": `1`, "generation": `1001`, "ref": `{}`, "params": `[]`, "base_url": `"http://169.254.169.254"`,
	} {
		members := map[string]json.RawMessage{"v": []byte("1"), "id": []byte(`"r"`), "op": []byte(`"chat"`), "model": []byte(`"m"`), "params": []byte("{}")}
		if name == "ref" {
			delete(members, "params")
		}
		members[name] = json.RawMessage(value)
		b, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		_, codeErr := llmq.DecodeEnvelope(b)
		if schemaErr := verdict(t, s, b); codeErr == nil || schemaErr == nil {
			t.Errorf("%s: code %v, schema %v", b, codeErr, schemaErr)
		}
	}
}

// The schema's fields are the envelope's, no more and no fewer.
func TestSchema_ListsEveryField(t *testing.T) {
	t.Parallel()
	var doc struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(load(t, schemaFile), &doc); err != nil {
		t.Fatal(err)
	}
	full := llmq.Envelope{
		ID: "r", Op: llmq.OpChat, Model: "m", Lane: "rt", Fallback: "chain", Deadline: time.UnixMilli(1), Tenant: "t", KeyID: "k", User: "u", Session: "s", Trace: "t",
		ReplyTo: "r", Generation: 1, Params: []byte("{}"), Ref: &llmq.Ref{Key: "k", SHA256: "0", Bytes: 1}, Headers: map[string]string{"X-Amzn-Bedrock-Trace": "ENABLED"},
	}
	b, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal(b, &written); err != nil {
		t.Fatal(err)
	}
	for name := range written {
		if doc.Properties[name].Description == "" {
			t.Errorf("%s is not described", name)
		}
	}
	if len(doc.Properties) != len(written) {
		t.Errorf("the schema has %d fields, an envelope %d", len(doc.Properties), len(written))
	}
}
