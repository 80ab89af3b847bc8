package bedrock

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// C13: what is sent is what is reserved.
func TestMeasure_TellsWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		most int
		want provider.Load
	}{
		"nothing sent":    {`{"messages":[{"role":"user","content":[{"text":"12345"}]}]}`, 0, provider.Load{InputChars: 5}},
		"maxTokens":       {`{"system":[{"text":"123"}],"messages":[],"inferenceConfig":{"maxTokens":390}}`, 500, provider.Load{InputChars: 3, MaxOutput: 390}},
		"the model's own": {`{"messages":[]}`, 500, provider.Load{MaxOutput: 500}},
		"beside others":   {`{"inferenceConfig":{"temperature":1}}`, 500, provider.Load{MaxOutput: 500}},
		"null is none":    {`{"inferenceConfig":{"maxTokens":null}}`, 500, provider.Load{MaxOutput: 500}},
		"in words":        {`{"inferenceConfig":{"maxTokens":"7"}}`, 500, provider.Load{}},
		"no object":       {`{"inferenceConfig":[]}`, 500, provider.Load{}},
		"media and tools": {
			`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"AAAA"}}},{"text":"12"},{"toolResult":{"toolUseId":"x","content":[{"text":"345"}],"status":"error"}}]}],` +
				`"toolConfig":{"tools":[{"toolSpec":{"name":"add","inputSchema":{"json":{"type":"object"}}}}]}}`,
			0,
			provider.Load{InputChars: 8},
		},
		"no JSON": {`{"messages":`, 500, provider.Load{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&Provider{}).Measure(provider.Request{Op: llmq.OpConverse, Body: []byte(tc.body), DefaultMaxOutput: tc.most})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
		})
	}
}

// C13: the model's own bound goes in where the caller sends none.
func TestWithMost_ChangesNothingElse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`:                                 `{"inferenceConfig":{"maxTokens":9}}`,
		`{ "messages" : [] }`:                `{"inferenceConfig":{"maxTokens":9}, "messages" : [] }`,
		`{"inferenceConfig":{},"a":1.0}`:     `{"inferenceConfig":{"maxTokens":9},"a":1.0}`,
		`{"inferenceConfig":{ "topP":1.0 }}`: `{"inferenceConfig":{"maxTokens":9, "topP":1.0 }}`,
		`{"inferenceConfig":{"topP":1.0,"maxTokens" : null},"x":[]}`: `{"inferenceConfig":{"topP":1.0,"maxTokens" : 9},"x":[]}`,
		`{"inferenceConfig":null}`:                                   `{"inferenceConfig":{"maxTokens":9}}`,
		`{"inferenceConfig":{"maxTokens":5}}`:                        `{"inferenceConfig":{"maxTokens":5}}`,
		`{"inferenceConfig":{"maxTokens":"5"}}`:                      `{"inferenceConfig":{"maxTokens":"5"}}`,
		`{"inferenceConfig":7}`:                                      `{"inferenceConfig":7}`,
		`[]`:                                                         `[]`,
		`{"a":`:                                                      `{"a":`,
	} {
		if got := string(withMost([]byte(in), 9)); got != want {
			t.Errorf("withMost(%s) = %s, want %s", in, got, want)
		}
		if got := string(withMost([]byte(in), 0)); got != in {
			t.Errorf("without a bound %s became %s", in, got)
		}
	}
}

func TestUsageOf_ReadsWhatIsCharged(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*provider.Usage{
		reply: {Input: 1, Output: 1},
		`{"usage":{"inputTokens":5,"outputTokens":7,"cacheReadInputTokens":900,"cacheWriteInputTokens":20}}`: {Input: 5, CacheWrite: 20, Output: 7},
		`{}`:                                     nil,
		`{"usage":{"inputTokens":1e400}}`:        nil,
		`{"usage":{"inputTokens":"many"}}`:       nil,
		`{"output":{"usage":{"inputTokens":1}}}`: nil,
	} {
		if diff := cmp.Diff(want, usageOf([]byte(in))); diff != "" {
			t.Errorf("usageOf(%s) (-want +got):\n%s", in, diff)
		}
	}
}

// Whatever the body, what is measured is what is sent, and JSON stays JSON.
func FuzzWithMost(f *testing.F) {
	for _, s := range []string{`{}`, `{"inferenceConfig":{"maxTokens":null}}`, `{"inferenceConfig":null}`, `{"a":1,"inferenceConfig":{"x":{"maxTokens":1}}}`} {
		f.Add([]byte(s), 100)
	}
	f.Fuzz(func(t *testing.T, body []byte, most int) {
		sent := withMost(body, most)
		if json.Valid(body) && !json.Valid(sent) {
			t.Fatalf("withMost(%q) = %q", body, sent)
		}
		before := (&Provider{}).Measure(provider.Request{Body: body, DefaultMaxOutput: most})
		after := (&Provider{}).Measure(provider.Request{Body: sent})
		if json.Valid(body) && most < 1<<30 && before != after {
			t.Fatalf("measured %+v for %q, and %+v was sent as %q", before, body, after, sent)
		}
	})
}

func BenchmarkMeasure(b *testing.B) {
	body := []byte(`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"` + strings.Repeat("A", 20<<20) + `"}}}]}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		(&Provider{}).Measure(provider.Request{Op: llmq.OpConverse, Body: body})
	}
}
