package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// C13: what is sent is what is reserved. The characters of case H13 are its content's.
func TestMeasure_TellsWhatIsSent(t *testing.T) {
	t.Parallel()
	chat := func(rest string) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 40) + `"}]` + rest + `}`
	}
	for name, tc := range map[string]struct {
		op       llmq.Op
		body     string
		fallback int
		want     provider.Load
	}{
		"nothing sent":          {llmq.OpChat, chat(``), 0, provider.Load{InputChars: 40}},
		"max_tokens":            {llmq.OpChat, chat(`,"max_tokens":390`), 0, provider.Load{InputChars: 40, MaxOutput: 390}},
		"max_completion_tokens": {llmq.OpChat, chat(`,"max_completion_tokens":390`), 0, provider.Load{InputChars: 40, MaxOutput: 390}},
		"both":                  {llmq.OpChat, chat(`,"max_completion_tokens":39,"max_tokens":390`), 0, provider.Load{InputChars: 40, MaxOutput: 390}},
		"every choice":          {llmq.OpChat, chat(`,"max_tokens":390,"n":3`), 0, provider.Load{InputChars: 40, MaxOutput: 1170}},
		"a number in words":     {llmq.OpChat, chat(`,"max_tokens":"390"`), 7, provider.Load{InputChars: 40}},
		"as a fraction":         {llmq.OpChat, chat(`,"max_tokens":3.9e2`), 7, provider.Load{InputChars: 40, MaxOutput: 390}},
		"the model's own":       {llmq.OpChat, chat(``), 500, provider.Load{InputChars: 40, MaxOutput: 500}},
		"the model's own times": {llmq.OpChat, chat(`,"n":2`), 500, provider.Load{InputChars: 40, MaxOutput: 1000}},
		"the caller's wins":     {llmq.OpChat, chat(`,"max_tokens":5`), 500, provider.Load{InputChars: 40, MaxOutput: 5}},
		"null is none":          {llmq.OpChat, chat(`,"max_tokens":null`), 500, provider.Load{InputChars: 40, MaxOutput: 500}},
		"parts, no media": {
			llmq.OpChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"12345"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},` +
				`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"file","file":{"file_data":"AAAA","filename":"a.pdf"}}]}]}`,
			0,
			provider.Load{InputChars: 5},
		},
		"tools":            {llmq.OpChat, `{"messages":[],"tools":[{"type":"function","function":{"name":"add","description":"adds"}}],"user":"somebody"}`, 0, provider.Load{InputChars: 7}},
		"embeddings":       {llmq.OpEmbeddings, `{"input":["12345","678"],"model":"m"}`, 500, provider.Load{InputChars: 8, NoOutput: true}},
		"a single input":   {llmq.OpEmbeddings, `{"input":"12345"}`, 0, provider.Load{InputChars: 5, NoOutput: true}},
		"H25 a: tokens":    {llmq.OpEmbeddings, `{"input":[1820,1053,382]}`, 0, provider.Load{InputChars: 12, NoOutput: true}}, // three tokens, as four characters are one
		"H25 b: lists":     {llmq.OpEmbeddings, `{"input":[[1820,1053],[382]]}`, 0, provider.Load{InputChars: 12, NoOutput: true}},
		"token numbers":    {llmq.OpEmbeddings, `{"input":[[1,22],[333]]}`, 0, provider.Load{InputChars: 12, NoOutput: true}},
		"no JSON":          {llmq.OpChat, `{"messages":`, 500, provider.Load{}},
		"a negative bound": {llmq.OpChat, chat(`,"max_tokens":-5`), 0, provider.Load{InputChars: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&Provider{most: maxTokens}).Measure(provider.Request{Op: tc.op, ModelID: "m", Body: []byte(tc.body), DefaultMaxOutput: tc.fallback})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
		})
	}
}

// C13: the model's own bound goes in where the caller sends none, under the name that the endpoint knows.
func TestBody_BoundsOutputWhereNobodyDoes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ most, in, want string }{
		{maxTokens, `{ "model" : "a" ,"n":1.0}`, `{"max_tokens":9, "model" : "gpt-5" ,"n":1.0}`},
		{maxCompletion, `{"n":1,"model":"a"}`, `{"max_completion_tokens":9,"n":1,"model":"gpt-5"}`},
		{maxTokens, `{}`, `{"max_tokens":9,"model":"gpt-5"}`},
		{maxTokens, `{"max_tokens":null,"model":"a","x":[1]}`, `{"max_tokens":9,"model":"gpt-5","x":[1]}`},
		{maxTokens, `{"model":"gpt-5","max_tokens" : null}`, `{"model":"gpt-5","max_tokens" : 9}`},
		{maxTokens, `{"max_completion_tokens":null,"model":"gpt-5"}`, `{"max_tokens":9,"max_completion_tokens":null,"model":"gpt-5"}`},
		{maxTokens, `{"max_tokens":5,"model":"a"}`, `{"max_tokens":5,"model":"gpt-5"}`},
		{maxTokens, `{"max_completion_tokens":"x","model":"a"}`, `{"max_completion_tokens":"x","model":"gpt-5"}`},
	} {
		got, err := edited(provider.Request{Op: llmq.OpChat, ModelID: "gpt-5", Body: []byte(tc.in), DefaultMaxOutput: 9}, (&Provider{most: tc.most}).edits)
		if err != nil || string(got) != tc.want {
			t.Errorf("body(%s) = %s, %v; want %s", tc.in, got, err, tc.want)
		}
	}
	in := []byte(`{"model":"gpt-5","input":"x"}`)
	got, err := edited(provider.Request{Op: llmq.OpEmbeddings, ModelID: "gpt-5", Body: in, DefaultMaxOutput: 9}, (&Provider{most: maxTokens}).edits)
	if err != nil || string(got) != string(in) {
		t.Errorf("embeddings became %s, %v", got, err)
	}
}

func TestMostName_IsTheEndpointsOwn(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://api.openai.com/v1": maxCompletion, "https://x.openai.azure.com/openai/v1": maxCompletion,
		"https://openrouter.ai/api/v1": maxTokens, "http://127.0.0.1:11434/v1": maxTokens, "https://api.openai.com.example.org/v1": maxTokens,
	} {
		if got := mostName(base); got != want {
			t.Errorf("mostName(%s) = %s, want %s", base, got, want)
		}
	}
}

func TestUsageOf_ReadsWhatIsCharged(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*provider.Usage{
		`{"usage":{"prompt_tokens":12,"completion_tokens":38,"total_tokens":50}}`:                           {Input: 12, Output: 38},
		`{"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":10}}}`: {Input: 12, Output: 3},
		`{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`:                                          {Input: 8},
		`{"usage":{"total_tokens":8}}`:                                                                      {Input: 8},
		`{"usage":{"prompt_tokens":12,"completion_tokens":1e400}}`:                                          nil,
		`{"usage":{"prompt_tokens":1e9}}`:                                                                   nil,
		`{"usage":null}`:                                                                                    nil,
		`{}`:                                                                                                nil,
		`{"usage":{"prompt_tokens":-4,"completion_tokens":"x"}}`:                                            nil,
		`{"choices":[{"usage":{"prompt_tokens":1}}]}`:                                                       nil,
	} {
		if diff := cmp.Diff(want, usageOf([]byte(in))); diff != "" {
			t.Errorf("usageOf(%s) (-want +got):\n%s", in, diff)
		}
	}
}

// Whatever the body, what is measured is what is sent.
func FuzzMeasure(f *testing.F) {
	for _, s := range []string{`{"messages":[],"max_tokens":null}`, `{}`, `{"max_completion_tokens":3}`, `{"n":2}`, `{"model":{},"max_tokens":1e9}`} {
		f.Add([]byte(s), 100)
	}
	f.Fuzz(func(t *testing.T, body []byte, most int) {
		p := &Provider{most: maxTokens}
		req := provider.Request{Op: llmq.OpChat, ModelID: "m", Body: body, DefaultMaxOutput: most}
		sent, err := edited(req, p.edits)
		if err != nil {
			return
		}
		if !json.Valid(sent) {
			t.Fatalf("body(%q) = %q", body, sent)
		}
		before := p.Measure(req)
		req.Body, req.DefaultMaxOutput = sent, 0
		if after := p.Measure(req); most < 1<<30 && before != after {
			t.Fatalf("measured %+v for %q, and %+v was sent as %q", before, body, after, sent)
		}
	})
}

func BenchmarkMeasure(b *testing.B) {
	image := []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 20<<20) + `"}}]}]}`)
	prose := []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"`+strings.Repeat("lorem ipsum é\\n", 100)+`"},`, 20<<20/1600), ",") + `]}`)
	for name, body := range map[string][]byte{"image": image, "text": prose, "short": bytes.Replace(image, bytes.Repeat([]byte("A"), 20<<20), nil, 1)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				(&Provider{most: maxTokens}).Measure(provider.Request{Op: llmq.OpChat, ModelID: "m", Body: body})
			}
		})
	}
}
