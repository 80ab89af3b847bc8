package llmq_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

var update = flag.Bool("update", false, "rewrite golden files") //nolint:gochecknoglobals // a flag is one

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatalf("write golden: %v", err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden: %v", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func fullEnvelope() llmq.Envelope {
	return llmq.Envelope{
		ID: "req-1", Op: llmq.OpChat, Model: "chat-a@main", Lane: llmq.LaneBG, Fallback: llmq.FallbackTarget,
		Deadline: time.UnixMilli(1_795_953_600_123), Tenant: "team-a", KeyID: "k1", User: "u <1>", Session: "s",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ReplyTo: "billing", Generation: 2,
		Params: []byte("{ \"b\" : 1.0,\n\t\"a\":\"x<y>&z\u2028\" , \"n\": 1e2}"),
	}
}

func TestEnvelope_GoldenAndBack(t *testing.T) {
	t.Parallel()
	offloaded := fullEnvelope()
	offloaded.Params, offloaded.Ref = nil, &llmq.Ref{Key: "off/aaaa/b", SHA256: strings.Repeat("0a", 32), Bytes: 4711}
	for name, want := range map[string]llmq.Envelope{
		"envelope_full.json":  fullEnvelope(),
		"envelope_ref.json":   offloaded,
		"envelope_least.json": {ID: "r", Op: llmq.OpConverse, Model: "m", Params: []byte(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := want.Encode()
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			golden(t, name, b)
			got, err := llmq.DecodeEnvelope(b)
			if err != nil {
				t.Fatalf("decode: %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
		})
	}
}

// H06: SQS refuses U+FFFE and U+FFFF, which JSON allows.
func TestEnvelope_CarriesNoCharacterThatSQSRefuses(t *testing.T) {
	t.Parallel()
	e := fullEnvelope()
	e.User = "odd\x07\uFFFE label"
	e.Params = []byte("{\"model\":\"chat-a\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xef\xbf\xbeb\xef\xbf\xbfc\\u0001 \\\\\uFFFE \U0001FFFE\"}]}")
	b, err := e.Encode()
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	for _, r := range string(b) {
		legal := r == 0x9 || r == 0xA || r == 0xD || 0x20 <= r && r <= 0xD7FF || 0xE000 <= r && r <= 0xFFFD || 0x10000 <= r && r <= 0x10FFFF
		if !legal {
			t.Errorf("the message holds %U", r)
		}
	}
	got, err := llmq.DecodeEnvelope(b)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	var want, have any
	if err := errors.Join(json.Unmarshal(e.Params, &want), json.Unmarshal(got.Params, &have)); err != nil {
		t.Fatalf("params: %v", err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("what the provider reads (-want +got):\n%s", diff)
	}
	if got.User != e.User {
		t.Errorf("user = %q, want %q", got.User, e.User)
	}
}

// edit makes an envelope's text from the least one and members that replace its own.
func edit(t *testing.T, members map[string]string) []byte {
	t.Helper()
	all := map[string]json.RawMessage{"v": []byte("1"), "id": []byte(`"r"`), "op": []byte(`"chat"`), "model": []byte(`"m"`), "params": []byte("{}")}
	for name, raw := range members {
		if raw == "" {
			delete(all, name)
			continue
		}
		all[name] = []byte(raw)
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatalf("build message: %v", err)
	}
	return b
}

func TestDecodeEnvelope_NamesTheFieldItRefuses(t *testing.T) {
	t.Parallel()
	ref := func(key, sha, size string) string {
		return `{"key":` + key + `,"sha256":` + sha + `,"bytes":` + size + `}`
	}
	long := `"` + strings.Repeat("x", 300) + `"`
	for _, tc := range []struct {
		name    string
		members map[string]string
		field   string
	}{
		{"no id", map[string]string{"id": ""}, "id"},
		{"id of another type", map[string]string{"id": "5"}, "id"},
		{"id with a space", map[string]string{"id": `"a b"`}, "id"},
		{"id too long", map[string]string{"id": `"` + strings.Repeat("x", 129) + `"`}, "id"},
		{"id null", map[string]string{"id": "null"}, "id"},
		{"no op", map[string]string{"op": ""}, "op"},
		{"unknown op", map[string]string{"op": `"images"`}, "op"},
		{"no model", map[string]string{"model": ""}, "model"},
		{"model with an empty target", map[string]string{"model": `"m@"`}, "model"},
		{"model with a blank", map[string]string{"model": `"m m"`}, "model"},
		{"unknown lane", map[string]string{"lane": `"RT"`}, "lane"},
		{"unknown fallback", map[string]string{"fallback": `"none"`}, "fallback"},
		{"tenant in capitals", map[string]string{"tenant": `"Team"`}, "tenant"},
		{"no params", map[string]string{"params": ""}, "params"},
		{"params null", map[string]string{"params": "null"}, "params"},
		{"params a list", map[string]string{"params": "[]"}, "params"},
		{"params a text", map[string]string{"params": `"{}"`}, "params"},
		{"params and ref", map[string]string{"ref": ref(`"k"`, `"s"`, "1")}, "ref"},
		{"ref without its hash", map[string]string{"params": "", "ref": `{"key":"k","bytes":1}`}, "ref"},
		{"ref without its key", map[string]string{"params": "", "ref": ref(`""`, `"s"`, "1")}, "ref"},
		{"ref with a member more", map[string]string{"params": "", "ref": `{"key":"k","sha256":"s","bytes":1,"bucket":"b"}`}, "ref"},
		{"ref in capitals", map[string]string{"params": "", "ref": `{"KEY":"k","sha256":"s","bytes":1}`}, "ref"},
		{"ref of too large a body", map[string]string{"params": "", "ref": `{"key":"k","sha256":"s","bytes":2305843009213693952}`}, "ref"},
		{"ref of no bytes", map[string]string{"params": "", "ref": ref(`"k"`, `"s"`, "0")}, "ref"},
		{"ref a list", map[string]string{"params": "", "ref": `["software.amazon.payloadoffloading.PayloadS3Pointer",{}]`}, "ref"},
		{"deadline below zero", map[string]string{"deadline_ms": "-1"}, "deadline_ms"},
		{"deadline in microseconds", map[string]string{"deadline_ms": "1795953600123000"}, "deadline_ms"},
		{"deadline as text", map[string]string{"deadline_ms": `"1795953600123"`}, "deadline_ms"},
		{"deadline not whole", map[string]string{"deadline_ms": "1.5"}, "deadline_ms"},
		{"generation below zero", map[string]string{"generation": "-1"}, "generation"},
		{"generation too high", map[string]string{"generation": "1001"}, "generation"},
		{"user too long", map[string]string{"user": long}, "user"},
		{"session too long", map[string]string{"session": long}, "session"},
		{"kid too long", map[string]string{"kid": long}, "kid"},
		{"trace too long", map[string]string{"traceparent": long}, "traceparent"},
		{"reply alias too long", map[string]string{"reply_to": long}, "reply_to"},
		{"unknown field", map[string]string{"delay": "1"}, "delay"},
		{"field in capitals", map[string]string{"ID": `"x"`}, "ID"},
		{"no version", map[string]string{"v": ""}, "v"},
		{"version null", map[string]string{"v": "null"}, "v"},
		{"version zero", map[string]string{"v": "0"}, "v"},
		{"version as text", map[string]string{"v": `"1"`}, "v"},
		{"version not whole", map[string]string{"v": "1.5"}, "v"},
		{"first of two faults by name", map[string]string{"zz": "1", "aa": "1"}, "aa"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := llmq.DecodeEnvelope(edit(t, tc.members))
			e, ok := errors.AsType[*llmq.Error](err)
			if !ok || e.Code != llmq.CodeBadEnvelope || e.Field != tc.field || e.Message == "" {
				t.Errorf("got %v (field %q), want bad_envelope at %q", err, llmq.AsError(err).Field, tc.field)
			}
		})
	}
}

func TestDecodeEnvelope_RefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "null", "not json {", "[]", `"x"`, "5", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`} {
		if _, err := llmq.DecodeEnvelope([]byte(body)); !errors.Is(err, llmq.CodeBadEnvelope) {
			t.Errorf("%q: got %v, want bad_envelope", body, err)
		}
	}
}

func TestDecodeEnvelope_NewerVersionIsNotLookedInto(t *testing.T) {
	t.Parallel()
	_, err := llmq.DecodeEnvelope([]byte(`{"v":2,"id":{"new":"shape"},"surprise":null}`))
	if e := llmq.AsError(err); e == nil || e.Code != llmq.CodeNewerEnvelope || e.Field != "v" {
		t.Errorf("got %v, want newer_envelope at v", err)
	}
}

func TestDecodeEnvelope_HintsAtTheNearestField(t *testing.T) {
	t.Parallel()
	_, err := llmq.DecodeEnvelope(edit(t, map[string]string{"modle": `"m"`}))
	if err == nil || !strings.Contains(err.Error(), "did you mean model?") {
		t.Errorf("got %v, want a hint at model", err)
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	for _, name := range []string{"envelope_full.json", "envelope_ref.json", "envelope_least.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatalf("read seed: %v", err)
		}
		f.Add(b)
	}
	for _, seed := range []string{`{"v":2}`, `{"v":1,"id":"a","op":"chat","model":"m","params":{"a":"\ufffe\\"}}`, "{", `{"v":1,"ref":{"key":1}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := llmq.DecodeEnvelope(b)
		if err != nil {
			ae, ok := errors.AsType[*llmq.Error](err)
			if !ok || (ae.Code != llmq.CodeBadEnvelope && ae.Code != llmq.CodeNewerEnvelope) || !utf8.ValidString(ae.Message) {
				t.Fatalf("refused by %#v", err)
			}
			return
		}
		if !utf8.Valid(b) {
			return // the strict pass in front lets none through
		}
		again, err := e.Encode()
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		back, err := llmq.DecodeEnvelope(again)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		raw := bytes.Contains(e.Params, []byte("\xef\xbf")) // escaped on the way
		if raw {
			e.Params, back.Params = nil, nil
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("round trip (-want +got):\n%s", diff)
		}
	})
}
