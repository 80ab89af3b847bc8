package bedrock

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/providertest"
)

const invokeBody = `{ "anthropic_version":"bedrock-2023-05-31", "max_tokens":10, "messages":[{"role":"user","content":"h\u00e9\/"}], "k":1.0 }`

// D8, Bedrock's InvokeModel.
func TestProvider_Invoke(t *testing.T) {
	t.Parallel()
	f := features()
	f.Request = provider.Request{Op: llmq.OpInvoke, ModelID: arn, Body: []byte(invokeBody), DefaultMaxOutput: 500}
	f.Reply, f.Path, f.Body, f.Secret = `{"content":[]}`, "/model/"+arnURL+"/invoke", invokeBody, apiKey
	providertest.Exercise(t, f, func(t *testing.T, base string) provider.Provider {
		t.Helper()
		return open(t, Config{Endpoint: base, APIKey: func(context.Context) (string, error) { return apiKey, nil }})
	})
}

func chunk(event string) string {
	return framed("event", "chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(event))+`","p":"abc"}`)
}

var (
	messageStart = chunk(`{"type":"message_start","message":{"usage":{"input_tokens":3}}}`)
	blockStart   = chunk(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	textDelta    = chunk(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`)
	messageDelta = chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`)
	theStop      = chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":3,"outputTokenCount":2,"cacheWriteInputTokenCount":1}}`)
	bareStop     = chunk(`{"type":"message_stop"}`)
)

// choice is a chunk of one of the choices that OpenAI's models write.
func choice(index int, finish string) string {
	return chunk(fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"content":"a"},"finish_reason":%s}]}`, index, finish))
}

func invokeStream(t *testing.T, pieces ...string) (events []string, content []bool, resp *provider.Response, failed *provider.Error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent, _ := io.ReadAll(r.Body); string(sent) != invokeBody || r.URL.EscapedPath() != "/model/"+arnURL+"/invoke-with-response-stream" {
			t.Errorf("sent %s %s", r.URL.EscapedPath(), sent)
		}
		w.Header().Set("Content-Type", eventStream)
		for _, p := range pieces {
			if p == cutHere {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(srv.Close)
	p := open(t, Config{Endpoint: srv.URL, Credentials: static})
	resp, err := p.Stream(t.Context(), provider.Request{Op: llmq.OpInvokeStream, ModelID: arn, Body: []byte(invokeBody)}, func(event []byte, c bool) {
		events, content = append(events, string(event)), append(content, c)
	})
	if err != nil {
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || resp != nil {
			t.Fatalf("Stream = %v, %v; want a *provider.Error alone", resp, err)
		}
		failed = e
	}
	return events, content, resp, failed
}

// A8, D13: chunks are passed on as the frames that came; the last one only with the end.
func TestStream_InvokeFramesAsTheyCame(t *testing.T) {
	t.Parallel()
	all := []string{messageStart, blockStart, textDelta, messageDelta, theStop}
	events, content, resp, err := invokeStream(t, messageStart+blockStart[:20], blockStart[20:]+textDelta, messageDelta, theStop)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, false, true, true, true}, content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if u := resp.Usage; u == nil || *u != (provider.Usage{Input: 3, CacheWrite: 1, Output: 2}) {
		t.Errorf("usage %+v", u)
	}
}

// A cut stream never looks finished, whoever cut it, and an exception within ends it (case H24).
func TestStream_InvokeEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pieces []string
		events int
		class  provider.Class // 0: it is whole
		status int
	}{
		"by its vendor's words alone":  {[]string{messageStart, textDelta, bareStop}, 3, 0, 0},
		"Meta's":                       {[]string{chunk(`{"generation":"a","stop_reason":null}`), chunk(`{"generation":"","stop_reason":"stop"}`)}, 2, 0, 0},
		"two choices, each to its end": {[]string{choice(0, "null"), choice(0, `"stop"`), choice(1, "null"), choice(1, `"length"`)}, 4, 0, 0},
		"the second choice is cut":     {[]string{choice(0, "null"), choice(0, `"stop"`), choice(1, "null"), cutHere}, 3, provider.Retryable, 200},
		"the second choice is missing": {[]string{choice(0, "null"), choice(1, "null"), choice(0, `"stop"`)}, 3, provider.Retryable, 200},
		"the second choice has no end": {[]string{choice(0, "null"), choice(0, `"stop"`), choice(1, "null")}, 3, provider.Retryable, 200},
		"the first choice has no end":  {[]string{choice(1, `"stop"`), choice(0, "null")}, 2, provider.Retryable, 200},
		"choices without numbers":      {[]string{chunk(`{"outputs":[{"text":"a","stop_reason":null},{"text":"b","stop_reason":"stop"}]}`)}, 1, provider.Retryable, 200},
		"Mistral's":                    {[]string{chunk(`{"outputs":[{"text":"a","stop_reason":null}]}`), chunk(`{"outputs":[{"text":"","stop_reason":"stop"}]}`)}, 2, 0, 0},
		"choices that metrics end":     {[]string{choice(0, "null"), theStop}, 2, 0, 0},
		"cut before the end":           {[]string{messageStart, textDelta, cutHere}, 2, provider.Retryable, 200},
		"closed before the end":        {[]string{messageStart, textDelta, messageDelta}, 3, provider.Retryable, 200},
		"cut behind the last frame":    {[]string{messageStart, textDelta, theStop, cutHere}, 2, provider.Retryable, 200},
		"a throttle within":            {[]string{messageStart, textDelta, throttle}, 2, provider.Throttle, 429},
		"a timeout within":             {[]string{messageStart, framed("exception", "modelTimeoutException", `{}`)}, 1, provider.Retryable, 408},
		"a chunk that is no base64":    {[]string{framed("event", "chunk", `{"bytes":"%"}`), theStop}, 2, 0, 0},
		"an event that is new to this": {[]string{framed("event", "other", `{}`), theStop}, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, _, _, err := invokeStream(t, tc.pieces...)
			if len(events) != tc.events {
				t.Errorf("%d events, want %d", len(events), tc.events)
			}
			switch {
			case tc.class == 0 && err != nil:
				t.Error(err)
			case tc.class != 0 && (err == nil || err.Class != tc.class || err.Status != tc.status):
				t.Errorf("got %v", err)
			}
		})
	}
}

// Usage of an invocation: Bedrock's headers say it, else each vendor's body.
func TestInvokedUsage(t *testing.T) {
	t.Parallel()
	told := http.Header{"X-Amzn-Bedrock-Input-Token-Count": {"12"}, "X-Amzn-Bedrock-Output-Token-Count": {"34"}, "X-Amzn-Bedrock-Cache-Write-Input-Token-Count": {"5"}}
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		want   *provider.Usage
	}{
		"headers":                          {told, `{"usage":{"input_tokens":99}}`, &provider.Usage{Input: 12, CacheWrite: 5, Output: 34}},
		"nonsense":                         {http.Header{"X-Amzn-Bedrock-Input-Token-Count": {"-1"}}, `{}`, nil},
		"Anthropic":                        {nil, `{"usage":{"input_tokens":1,"cache_creation_input_tokens":2,"cache_read_input_tokens":9,"output_tokens":3}}`, &provider.Usage{Input: 1, CacheWrite: 2, Output: 3}},
		"Nova":                             {nil, `{"usage":{"inputTokens":1,"outputTokens":3,"cacheWriteInputTokenCount":2}}`, &provider.Usage{Input: 1, CacheWrite: 2, Output: 3}},
		"OpenAI":                           {nil, `{"usage":{"prompt_tokens":1,"completion_tokens":3}}`, &provider.Usage{Input: 1, Output: 3}},
		"Meta":                             {nil, `{"generation":"a","prompt_token_count":1,"generation_token_count":3,"stop_reason":"stop"}`, &provider.Usage{Input: 1, Output: 3}},
		"Titan's text":                     {nil, `{"inputTextTokenCount":1,"results":[{"tokenCount":3,"outputText":"a"}]}`, &provider.Usage{Input: 1, Output: 3}},
		"Titan's embedding":                {nil, `{"embedding":[0.1],"inputTextTokenCount":4}`, &provider.Usage{Input: 4}},
		"Cohere's says it in headers only": {nil, `{"embeddings":[[0.1]],"id":"x","response_type":"embeddings_floats"}`, nil},
	} {
		got := invokedUsage(tc.header, []byte(tc.body))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// C13: what an invocation reserves.
func TestMeasure_Invoke(t *testing.T) {
	t.Parallel()
	p := open(t, Config{Endpoint: "http://127.0.0.1:1", Credentials: static})
	for name, tc := range map[string]struct {
		body string
		want provider.Load
	}{
		"Anthropic":          {`{"anthropic_version":"bedrock-2023-05-31","max_tokens":10,"system":"be","messages":[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}`, provider.Load{InputChars: 7, MaxOutput: 10}},
		"Meta":               {`{"prompt":"hello","max_gen_len":512,"temperature":0.5}`, provider.Load{InputChars: 5, MaxOutput: 512}},
		"Titan's text":       {`{"inputText":"hello","textGenerationConfig":{"maxTokenCount":300}}`, provider.Load{InputChars: 5, MaxOutput: 300}},
		"Titan's unbounded":  {`{"inputText":"hello","textGenerationConfig":{}}`, provider.Load{InputChars: 5}},
		"Titan's embedding":  {`{"inputText":"hello","dimensions":256,"normalize":true}`, provider.Load{InputChars: 5, NoOutput: true}},
		"Cohere's embedding": {`{"texts":["hello","you"],"input_type":"search_document","truncate":"END"}`, provider.Load{InputChars: 8, NoOutput: true}},
		"Nova":               {`{"messages":[{"role":"user","content":[{"text":"hello"}]}],"inferenceConfig":{"maxTokens":40}}`, provider.Load{InputChars: 5, MaxOutput: 40}},
		"nothing known":      {`{"x":{"y":"hello"}}`, provider.Load{InputChars: 5}},
		"no JSON":            {`hello`, provider.Load{}},
	} {
		got := p.Measure(provider.Request{Op: llmq.OpInvoke, ModelID: "m", Body: []byte(tc.body), DefaultMaxOutput: 99})
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
