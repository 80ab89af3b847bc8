package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nested(depth int, inner string) string {
	return `{"a":` + strings.Repeat("[", depth-1) + inner + strings.Repeat("]", depth-1) + "}"
}

func members(n int) string {
	var b strings.Builder
	b.WriteString(`{"m0":{}`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,"m%d":%d`, i, i)
	}
	return b.String() + "}"
}

// A6: of a job's payload no name is guarded, and all else holds.
func TestFor_JobsNameTheirMembers(t *testing.T) {
	t.Parallel()
	for _, op := range llmq.Ops() {
		for _, body := range []string{`{"Model":"a"}`, `{"N":1}`, `{"\u0074ools":[]}`} {
			if err := Check([]byte(body), For(op)); (err == nil) != (op == llmq.OpJob) {
				t.Errorf("%s of %s: %v", body, op, err)
			}
		}
		for _, body := range []string{`{"a":1,"a":2}`, `[]`, nested(101, "")} {
			if err := Check([]byte(body), For(op)); err == nil {
				t.Errorf("%.20s of %s is let in", body, op)
			}
		}
	}
}

// SEC09 and SEC10: two parsers must read one truth, and no text may be a weapon.
func TestCheck_RefusesWhatReadersWouldDifferOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		code     llmq.Code
		field    string
		message  string // empty: not looked at
	}{
		{"SEC09 model twice", `{"model":"a","model":"b"}`, llmq.CodeInvalidJSON, "model", "model is given twice (byte 13)"},
		{"SEC09 model twice, once escaped", `{"model":"a","\u006dodel":"b"}`, llmq.CodeInvalidJSON, "model", ""},
		{"SEC09 model escaped", `{"\u006dodel":"b"}`, llmq.CodeInvalidRequest, "model", "model is spelled with an escape; write it plainly (byte 13)"},
		{"SEC09 Model", `{"Model":"a"}`, llmq.CodeInvalidRequest, "Model", "Model differs from model in case only; write it exactly so or leave it out (byte 8)"},
		{"SEC09 Model escaped", `{"\u004dodel":"a"}`, llmq.CodeInvalidRequest, "Model", ""},
		{"SEC09 Kelvin sign folds to k", `{"max_to` + "\u212a" + `ens":1}`, llmq.CodeInvalidRequest, "max_to\u212aens", ""},
		{"SEC09 max_tokens twice", `{"max_tokens":1,"max_tokens":2}`, llmq.CodeInvalidJSON, "max_tokens", ""},
		{"SEC09 name twice below", `{"a":[{"b":1,"b":2}]}`, llmq.CodeInvalidJSON, "a.0.b", "a.0.b is given twice (byte 13)"},
		{"SEC10 depth 101", nested(101, ""), llmq.CodeInvalidRequest, "a", ""},
		{"SEC10 4 MiB of brackets", `{"a":` + strings.Repeat("[", 4<<20), llmq.CodeInvalidRequest, "a", ""},
		{"SEC10 4 MiB of bare brackets", strings.Repeat("[", 4<<20), llmq.CodeInvalidRequest, "", "the body is not a JSON object"},
		{"SEC10 10,001 members", members(10_001), llmq.CodeInvalidRequest, "m9999", ""},
		{"SEC10 second value", `{} {}`, llmq.CodeInvalidJSON, "", "something follows the JSON value at byte 4"},
		{"SEC10 text behind", `{"a":1}x`, llmq.CodeInvalidJSON, "", ""},
		{"SEC10 NaN", `{"a":NaN}`, llmq.CodeInvalidJSON, "a", "a is not valid JSON (byte 5)"},
		{"SEC10 Infinity", `{"a":-Infinity}`, llmq.CodeInvalidJSON, "a", ""},
		{"SEC10 byte order mark", "\xef\xbb\xbf{}", llmq.CodeInvalidJSON, "", "the body begins with a byte order mark; leave it out"},
		{"SEC10 lone high surrogate", `{"messages":[{"content":"half \ud83d moon"}]}`, llmq.CodeInvalidJSON, "messages.0.content", "messages.0.content holds half of a surrogate pair (byte 30)"},
		{"SEC10 lone low surrogate", `{"a":"\ude00"}`, llmq.CodeInvalidJSON, "a", ""},
		{"SEC10 surrogates swapped", `{"a":"\ude00\ud83d"}`, llmq.CodeInvalidJSON, "a", ""},
		{"SEC10 lone surrogate in a name", `{"\ud83d":1}`, llmq.CodeInvalidJSON, "", ""},
		{"SEC10 bad UTF-8", "{\"a\":\"\xff\"}", llmq.CodeInvalidJSON, "a", "a is not valid UTF-8 (byte 6)"},
		{"SEC10 surrogate as UTF-8", "{\"a\":\"\xed\xa0\x80\"}", llmq.CodeInvalidJSON, "a", ""},
		{"empty", "", llmq.CodeInvalidJSON, "", "the body is empty; it must be a JSON object"},
		{"blank", " \n", llmq.CodeInvalidJSON, "", ""},
		{"cut", `{"a":`, llmq.CodeInvalidJSON, "a", "a is cut short (byte 5)"},
		{"cut inside a string", `{"a":"x`, llmq.CodeInvalidJSON, "a", ""},
		{"null", "null", llmq.CodeInvalidRequest, "", ""},
		{"array", "[]", llmq.CodeInvalidRequest, "", ""},
		{"text", `"x"`, llmq.CodeInvalidRequest, "", ""},
		{"trailing comma", `{"a":1,}`, llmq.CodeInvalidJSON, "", ""},
		{"comment", `{/*x*/}`, llmq.CodeInvalidJSON, "", ""},
		{"name without quotes", `{a:1}`, llmq.CodeInvalidJSON, "", ""},
		{"NUL in a string", "{\"a\":\"\x00\"}", llmq.CodeInvalidJSON, "a", ""},
		{"leading zero", `{"a":01}`, llmq.CodeInvalidJSON, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			body := []byte(tc.in)
			e, ok := errors.AsType[*llmq.Error](Check(body, Default()))
			if !ok {
				t.Fatal("want a refusal, got none")
			}
			if e.Code != tc.code || !strings.HasPrefix(e.Field, tc.field) || tc.field == "" && e.Field != "" {
				t.Errorf("got %s at %q, want %s at %q (%s)", e.Code, e.Field, tc.code, tc.field, e.Message)
			}
			if tc.message != "" && e.Message != tc.message {
				t.Errorf("message %q, want %q", e.Message, tc.message)
			}
			if len(e.Message) > 400 {
				t.Errorf("message has %d bytes", len(e.Message))
			}
			if string(body) != tc.in {
				t.Error("Check changed the body")
			}
		})
	}
}

func TestCheck_TakesWhatCallersHonestlySend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in string }{
		{"plain", `{"model":"chat-a","messages":[{"role":"user","content":"café ☕ <b>&</b> \ud83d\ude80"}]}`},
		{"depth 100", nested(100, "")},
		{"10,000 members", members(10_000)},
		{"white space around", " \r\n\t{}\n "},
		{"a schema's own Model", `{"model":"a","tools":[{"function":{"parameters":{"properties":{"Model":{},"model":{}}}}}]}`},
		{"one name in two objects", `{"a":{"x":1},"b":{"x":1}}`},
		{"escaped name that nothing guards", `{"caf\u00e9":1}`},
		{"names that differ in case, unguarded", `{"a":1,"A":2}`},
		{"many numbers", `{"input":[` + strings.Repeat("1820,", 200_000) + `1]}`},
		{"numbers beyond float64", `{"a":1e400,"b":123456789012345678901234567890}`},
		{"U+FFFD itself", `{"a":"\ufffd"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			body := []byte(tc.in)
			if err := Check(body, Default()); err != nil {
				t.Errorf("refused: %v", err)
			}
			if string(body) != tc.in {
				t.Error("Check changed the body")
			}
		})
	}
}

func TestFields_AreShortEnoughToBeGuarded(t *testing.T) {
	t.Parallel()
	for _, f := range Fields() {
		if len(f) > maxGuardedBytes {
			t.Errorf("%s has %d bytes, at most %d are compared", f, len(f), maxGuardedBytes)
		}
	}
}

func TestCheck_LimitsAreTheCallers(t *testing.T) {
	t.Parallel()
	if err := Check([]byte(`["Model"]`), Limits{Depth: 1, Members: 0}); err != nil {
		t.Errorf("a value that need not be an object was refused: %v", err)
	}
	if err := Check([]byte(`[{}]`), Limits{Depth: 1, Members: 0}); !errors.Is(err, llmq.CodeInvalidRequest) {
		t.Errorf("depth 2 of 1: got %v", err)
	}
	if err := Check([]byte(`{"Model":1}`), Limits{Depth: 1, Members: 1, Object: true}); err != nil {
		t.Errorf("nothing is guarded, yet: %v", err)
	}
}

// The error is shown to callers and may reach a log, so no value may be in it.
func TestCheck_ErrorsHoldNoValue(t *testing.T) {
	t.Parallel()
	const canary = "canary7f3a"
	for _, in := range []string{
		`{"a":"` + canary + `\ud83d"}`, `{"a":"` + canary + `","a":"` + canary + `"}`, `{"a":` + canary + `}`,
		`{"a":"` + canary, `{"a":["` + canary + `",{"Model":}]}`, `{} "` + canary + `"`, `{"Model":"` + canary + `"}`,
		"{\"a\":\"" + canary + "\xff\"}", `{"a":"\` + canary + `"}`, `{"a":"\u` + canary + `"}`,
	} {
		err := Check([]byte(in), Default())
		if err == nil {
			t.Errorf("%s was taken", in)
			continue
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error shows a value: %v", in, err)
		}
	}
}

func TestCheck_NamesInErrorsAreClippedAndPrintable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	in := `{"\u001b[31m` + long + `":` + strings.Repeat(`{"`+long[:500]+`":`, 50) + `NaN`
	e := llmq.AsError(Check([]byte(in), Default()))
	if len(e.Message) > 400 || len(e.Field) > 300 {
		t.Errorf("message has %d bytes, field %d", len(e.Message), len(e.Field))
	}
	if strings.ContainsRune(e.Message, '\x1b') {
		t.Errorf("a control character got into %q", e.Message)
	}
}

// heapDuring returns how many bytes f allocated in all. It runs alone, since the
// counters are the process's.
func heapDuring(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// SEC10: the memory that a hostile body costs is a small multiple of its size.
//
//nolint:paralleltest // it reads the allocation counters of the whole process
func TestCheck_MemoryIsBounded(t *testing.T) {
	const size = 4 << 20
	for name, in := range hostile(size) {
		body := []byte(in)
		got := heapDuring(func() { _ = Check(body, Default()) })
		t.Logf("%s: %d KiB", name, got>>10)
		if got > 8*size {
			t.Errorf("%s: %d MiB were allocated for a body of %d MiB", name, got>>20, size>>20)
		}
	}
}

func hostile(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	return map[string]string{
		"brackets":       fill("["),
		"nested objects": fill(`{"a":`),
		"strings":        `{"a":[` + fill(`"x",`) + `"x"]}`,
		"one string":     `{"a":"` + fill("x") + `"}`,
		"one name":       `{"` + fill("x") + `":1}`,
		"escapes":        `{"a":"` + fill(`\u00e9`) + `"}`,
		"numbers":        `{"a":[` + fill("1,") + `1]}`,
		"one number":     `{"a":` + fill("1") + `}`,
		"blanks":         fill(" ") + "{}",
		"empty objects":  `{"a":[` + fill("{},") + `{}]}`,
		"long names":     "{" + longNames(size) + `"z":1}`,
	}
}

func longNames(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `"%s%d":1,`, strings.Repeat("n", 400), i)
	}
	return b.String()
}

func BenchmarkCheck(b *testing.B) {
	for name, in := range hostile(4 << 20) {
		body := []byte(in)
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				_ = Check(body, Default())
			}
		})
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`{"model":"a","stream":false}`, `{"\u006dodel":"a"}`, `{"model":"a","model":"b"}`, `{} {}`, "\xef\xbb\xbf{}", `{"a":"\ud83d"}`,
		`{"a":"\\\"","b":"\u0000"}`, `{"":"x","a.b":"y","a*":"z","@this":"q","#":"r"}`, `{"a":[1,2,{"b":null}]}`, nested(101, "1"), "[", `"`,
		"{\"a\":\"\xff\"}", `{"a":1e999}`, `{ "a" : "b" , "c":"\/" }`, "{\"a\":\"\u2028\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		err := Check(body, Default())
		if !bytes.Equal(body, before) {
			t.Fatal("Check changed the body")
		}
		if err != nil {
			e, ok := errors.AsType[*llmq.Error](err)
			if !ok || e.Code != llmq.CodeInvalidJSON && e.Code != llmq.CodeInvalidRequest {
				t.Fatalf("not our error: %v", err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("taken, but encoding/json refuses it: %q", body)
		}
		agree(t, body)
	})
}

// agree fails unless gjson and encoding/json see the same strings at the top level.
func agree(t *testing.T, body []byte) {
	t.Helper()
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // a number beyond float64 is no reason to differ
	if err := dec.Decode(&all); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	want := map[string]string{}
	for name, v := range all {
		if s, ok := v.(string); ok {
			want[name] = s
		}
	}
	got := map[string]string{}
	gjson.ParseBytes(body).ForEach(func(k, v gjson.Result) bool {
		if v.Type == gjson.String {
			got[k.String()] = v.String()
		}
		return true
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the parsers differ (-encoding/json +gjson):\n%s", diff)
	}
	// By path, as the door reads.
	for _, name := range []string{"model", "stream"} {
		if s, ok := want[name]; ok != (gjson.GetBytes(body, name).Type == gjson.String) || ok && gjson.GetBytes(body, name).String() != s {
			t.Fatalf("%s: encoding/json %q, gjson %q", name, s, gjson.GetBytes(body, name).String())
		}
	}
}
