package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// setModel is the body of a call to an endpoint of ours.
func setModel(body []byte, id string) ([]byte, error) {
	return edited(provider.Request{Op: llmq.OpChat, ModelID: id, Body: body}, (&Provider{most: maxTokens}).edits)
}

func TestBody_ChangesNothingElse(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, id, want string }{
		{"set", `{"model":"alias","messages":[]}`, "gpt-5", `{"model":"gpt-5","messages":[]}`},
		{"spaces and order kept", "{ \"n\" : 1.0e0 ,\n\t\"model\" : \"alias\" , \"x\":{\"model\":\"inner\"}}\n", "m", "{ \"n\" : 1.0e0 ,\n\t\"model\" : \"m\" , \"x\":{\"model\":\"inner\"}}\n"},
		{"escapes kept", `{"messages":["\u00e9\/"],"model":"a"}`, "m", `{"messages":["\u00e9\/"],"model":"m"}`},
		{"escaped name", `{"\u006dodel":"a"}`, "m", `{"\u006dodel":"m"}`},
		{"same", `{"model":"m"}`, "m", `{"model":"m"}`},
		{"same in other words", `{"model":"\u006d"}`, "m", `{"model":"\u006d"}`},
		{"another type", `{"model":{"a":[1,2]},"n":1}`, "m", `{"model":"m","n":1}`},
		{"null", `{"model":null}`, "m", `{"model":"m"}`},
		{"missing", `{"n":1}`, "m", `{"model":"m","n":1}`},
		{"missing in nothing", ` {} `, "m", ` {"model":"m"} `},
		{"id that needs quoting", `{"model":"a"}`, "q\"\\\n/é", `{"model":"q\"\\\n/é"}`},
		{"only inside", `{"x":{"model":"a"}}`, "m", `{"model":"m","x":{"model":"a"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := []byte(tt.in)
			got, err := setModel(in, tt.id)
			if err != nil || string(got) != tt.want {
				t.Errorf("setModel(%q, %q) = %q, %v; want %q", tt.in, tt.id, got, err, tt.want)
			}
			if string(in) != tt.in {
				t.Errorf("the caller's bytes became %q", in)
			}
		})
	}
}

func TestBody_RefusesWhatReadsTwoWays(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{"model":"a"`, `{"model":"a"} {}`, `{"model":"a"}x`, `{"model":"a",}`,
		`{"model":"a","model":"b"}`, `{"model":"a","\u006dodel":"b"}`, `{"n":1,"n":2}`, `{"model":"a","Model":"b"}`, `{"MODEL":"b"}`,
		"{\"model\":\"a\xff\"}", `{"model":"\ud800"}`, "\xef\xbb\xbf{}", `{"a":NaN}`, strings.Repeat("[", 100_000), `{"a":` + strings.Repeat("[", 100_000),
	} {
		if got, err := setModel([]byte(in), "m"); err == nil {
			t.Errorf("setModel(%.60q) = %.60q, want an error", in, got)
		}
	}
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"model":"a"}`, `{}`, `{"n":1}`, ` { "a" : {"model":1}, "model" : null } `, `{"\u006dodel":"x"}`, `{"model":"a","model":"b"}`} {
		f.Add([]byte(s), "gpt-5")
	}
	f.Fuzz(func(t *testing.T, body []byte, id string) {
		got, err := setModel(body, id)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatalf("a body was taken that is no JSON: %q", body)
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("setModel(%q) is no JSON: %q", body, got)
		}
		var model string
		if err := json.Unmarshal(after["model"], &model); err != nil || model != id {
			t.Fatalf("setModel(%q, %q) has the model %q", body, id, after["model"])
		}
		delete(before, "model")
		delete(after, "model")
		if len(before) != len(after) {
			t.Fatalf("setModel(%q) = %q", body, got)
		}
		for k, v := range before {
			if !bytes.Equal(v, after[k]) {
				t.Fatalf("setModel(%q) changed %q: %q", body, k, after[k])
			}
		}
	})
}
