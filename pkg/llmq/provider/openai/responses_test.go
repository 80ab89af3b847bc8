package openai_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

const responsesIn = `{ "model":"alias", "input":"hi", "stream":true, "x":1.0 }`

func named(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

var (
	created   = named("response.created", `{"type":"response.created","response":{"id":"resp_1","status":"in_progress","error":null},"sequence_number":0}`)
	itemAdded = named("response.output_item.added", `{"type":"response.output_item.added","output_index":0,"item":{"type":"message"},"sequence_number":1}`)
	delta     = named("response.output_text.delta", `{"type":"response.output_text.delta","delta":"he","sequence_number":2}`)
	completed = named("response.completed", `{"type":"response.completed","response":{"status":"completed","error":null,"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}},"sequence_number":3}`)
	cutShort  = named("response.incomplete", `{"type":"response.incomplete","response":{"status":"incomplete","usage":{"input_tokens":9,"output_tokens":1}},"sequence_number":3}`)
	failedIn  = named("response.failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow down"}},"sequence_number":3}`)
)

// respond makes one streaming attempt of Responses against an upstream that sends pieces.
func respond(t *testing.T, pieces ...string) (streamed, string) {
	t.Helper()
	var sent, path string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent, path = string(body), r.URL.Path
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, p := range pieces {
			if p == "CUT" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(srv.Close)
	p := open(t, srv.URL+"/v1", fixed(secret))
	var got streamed
	resp, err := p.Stream(t.Context(), provider.Request{Op: llmq.OpResponses, ModelID: "m", Body: []byte(responsesIn)}, func(event []byte, content bool) {
		got.events, got.content = append(got.events, string(event)), append(got.content, content)
	})
	got.resp, got.sent = resp, sent
	if err != nil {
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || resp != nil {
			t.Fatalf("Stream = %v, %v; want a *provider.Error alone", resp, err)
		}
		got.err = e
	}
	return got, path
}

// A8, D13: events keep their names, only the model is changed and nothing is kept, and the last event is the end.
func TestStream_ResponsesAsTheyCame(t *testing.T) {
	t.Parallel()
	keepalive := named("keepalive", `{"type":"keepalive","sequence_number":9}`)
	got, path := respond(t, created, ": a comment\n\nevent: ping\ndata: {}\n\n"+itemAdded+keepalive, delta, completed, "data: more\n\n")
	if diff := cmp.Diff([]string{created, itemAdded, keepalive, delta, completed}, got.events); diff != "" || got.err != nil {
		t.Errorf("events (-want +got):\n%s%v", diff, got.err)
	}
	if diff := cmp.Diff([]bool{false, false, false, true, true}, got.content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if path != "/v1/responses" || got.sent != `{"store":false, "model":"m", "input":"hi", "stream":true, "x":1.0 }` {
		t.Errorf("sent %s %s", path, got.sent)
	}
	if u := got.resp.Usage; u == nil || *u != (provider.Usage{Input: 9, Output: 2}) {
		t.Errorf("usage %+v", u)
	}
}

// The three events that end a response, and what must not look like one.
func TestStream_ResponsesEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pieces []string
		events int
		class  provider.Class // 0: it is whole
		code   llmq.Code
		status int
	}{
		"completed":                     {[]string{created, delta, completed}, 3, 0, "", 0},
		"incomplete":                    {[]string{created, delta, cutShort}, 3, 0, "", 0},
		"failed after it said a thing":  {[]string{created, delta, failedIn}, 3, 0, "", 0},
		"failed before":                 {[]string{created, itemAdded, failedIn}, 2, provider.Throttle, llmq.CodeRateLimited, 429},
		"cut":                           {[]string{created, delta, "CUT"}, 2, provider.Retryable, llmq.CodeProviderError, 200},
		"cut in the last event":         {[]string{created, delta, completed[:80]}, 2, provider.Retryable, llmq.CodeProviderError, 200},
		"ended without its last event":  {[]string{created, delta}, 2, provider.Retryable, llmq.CodeProviderError, 200},
		"the mark of chats":             {[]string{created, delta, "data: [DONE]\n\n"}, 2, provider.Retryable, llmq.CodeProviderError, 200},
		"no JSON":                       {[]string{created, "data: {\n\n"}, 1, provider.Retryable, llmq.CodeProviderError, 200},
		"an error, as it is documented": {[]string{created, named("error", `{"type":"error","code":"server_error","message":"it broke","param":null,"sequence_number":1}`)}, 1, provider.Retryable, llmq.CodeProviderError, 500},
		"an error, as it is sent":       {[]string{created, named("error", `{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded","message":"slow down"}}`)}, 1, provider.Throttle, llmq.CodeRateLimited, 429},
		"an error without a name":       {[]string{"data: {\"error\":{\"message\":\"no\",\"code\":400}}\n\n"}, 0, provider.CallFatal, llmq.CodeProviderRejected, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := respond(t, tc.pieces...)
			if len(got.events) != tc.events {
				t.Errorf("%d events, want %d: %q", len(got.events), tc.events, got.events)
			}
			if tc.class == 0 {
				if got.err != nil {
					t.Error(got.err)
				}
				return
			}
			if e := got.err; e == nil || e.Class != tc.class || e.Code != tc.code || e.Status != tc.status {
				t.Errorf("got %v", e)
			}
		})
	}
}

// A whole response that failed, with status 200, is no success.
func TestCall_ResponsesThatFailed(t *testing.T) {
	t.Parallel()
	answer := `{"object":"response","status":"failed","error":{"code":"server_error","message":"it broke"}}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(srv.Close)
	p := open(t, srv.URL+"/v1", fixed(secret))
	resp, err := p.Call(t.Context(), provider.Request{Op: llmq.OpResponses, ModelID: "m", Body: []byte(`{"model":"m"}`)})
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || e.Message != "it broke" {
		t.Errorf("Call = %+v, %v", resp, err)
	}
}

// C13: a response reserves what it may be at most, and what is put in is max_output_tokens.
func TestMeasure_Responses(t *testing.T) {
	t.Parallel()
	p := open(t, "http://127.0.0.1:1/v1", fixed(secret))
	for _, tc := range []struct {
		body string
		most int
		want provider.Load
	}{
		{`{"input":"hello","instructions":"be brief"}`, 0, provider.Load{InputChars: 13}},
		{`{"input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]}],"max_output_tokens":7}`, 50, provider.Load{InputChars: 5, MaxOutput: 7}},
		{`{"input":"hello","max_tokens":9}`, 50, provider.Load{InputChars: 5, MaxOutput: 50}},
	} {
		got := p.Measure(provider.Request{Op: llmq.OpResponses, ModelID: "m", Body: []byte(tc.body), DefaultMaxOutput: tc.most})
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.body, got, tc.want)
		}
	}
}
