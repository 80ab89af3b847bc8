package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

const (
	role   = `{"id":"g1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	hello  = `{"id":"g1","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}`
	stop   = `{"id":"g1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage  = `{"id":"g1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`
	chatIn = `{"model":"alias","stream":true,"messages":[]}`
)

func data(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

// streamed is what came of one streaming attempt.
type streamed struct {
	events  []string
	content []bool
	resp    *provider.Response
	err     *provider.Error
	sent    string // body
}

// serve answers with a stream in pieces, each flushed by itself.
func serveStream(t *testing.T, sent *string, pieces ...string) *openai.Provider {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if sent != nil {
			*sent = string(body)
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("X-Request-Id", "exchange-1")
		for _, p := range pieces {
			if p == "CUT" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(srv.Close)
	return open(t, srv.URL+"/v1", fixed(secret))
}

func stream(ctx context.Context, t *testing.T, p provider.Streamer, body string, pace provider.Pace) streamed {
	t.Helper()
	var got streamed
	resp, err := p.Stream(ctx, provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(body), Pace: pace}, func(event []byte, content bool) {
		got.events, got.content = append(got.events, string(event)), append(got.content, content)
	})
	got.resp = resp
	if err != nil {
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || resp != nil {
			t.Fatalf("Stream = %v, %v; want a *provider.Error alone", resp, err)
		}
		got.err = e
	}
	return got
}

func run(t *testing.T, body string, pieces ...string) streamed {
	t.Helper()
	var sent string
	got := stream(t.Context(), t, serveStream(t, &sent, pieces...), body, provider.Pace{})
	got.sent = sent
	return got
}

func TestStream_PassesEventsAsTheyCame(t *testing.T) {
	t.Parallel()
	got := run(t, chatIn, data(role, hello, stop), "data: [DONE]\n\n")
	if diff := cmp.Diff([]string{data(role), data(hello), data(stop)}, got.events); diff != "" || got.err != nil {
		t.Errorf("events (-want +got):\n%s%v", diff, got.err)
	}
	if diff := cmp.Diff([]bool{false, true, true}, got.content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if r := got.resp; r.Status != 200 || r.ContentType != "text/event-stream" || r.RequestID != "exchange-1" || r.Body != nil || r.Usage != nil {
		t.Errorf("response = %+v", r)
	}
}

// H20: comments and pings are no events, and what follows the mark is nobody's.
func TestStream_H20CommentsAndPingsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	got := run(t, chatIn, ": OPENROUTER PROCESSING\n\n", ": keep-alive\n\n:\n\nevent: ping\ndata: {}\n\n", data(hello), data(stop)+": cost=0.01\n\ndata: [DONE]\n\n", data(hello))
	if diff := cmp.Diff([]string{data(hello), data(stop)}, got.events); diff != "" || got.err != nil {
		t.Errorf("events (-want +got):\n%s%v", diff, got.err)
	}
}

// H21: reads may cut a character in two, and an event may have millions of bytes.
func TestStream_H21EventsAreWholeHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	cut := run(
		t, chatIn, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe6\x97", "\xa5\xe6\x9c\xac \xf0\x9f", "\x9a\x80\"},\"finish_reason\":null}]}\n", "\r\ndata: [DO", "NE]\n\n",
	)
	if want := []string{data(`{"choices":[{"index":0,"delta":{"content":"日本 🚀"},"finish_reason":null}]}`)}; cut.err != nil || !cmp.Equal(want, cut.events) {
		t.Errorf("events = %q, %v", cut.events, cut.err)
	}
	long := `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"` + strings.Repeat("y", 2_000_000) + `\""}}]}}]}`
	if got := run(t, chatIn, data(long, "[DONE]")); got.err != nil || len(got.events) != 1 || got.events[0] != data(long) {
		t.Errorf("%d events, %v", len(got.events), got.err)
	}
	tooLong := run(t, chatIn, data(hello), "data: "+strings.Repeat("x", provider.MaxEventBytes+1)+"\n\n")
	if tooLong.err == nil || tooLong.err.Class != provider.TargetFatal || !strings.Contains(tooLong.err.Message, "8 MiB") {
		t.Errorf("an event that is too large: %v", tooLong.err)
	}
}

// H22: usage is asked for always, and shown to those who asked.
func TestStream_H22UsageIsAskedForAndShownToWhoAsked(t *testing.T) {
	t.Parallel()
	azure := `{"id":"","prompt_filter_results":[],"choices":[]}`
	bare := `{"id":"g1","choices":[{"index":0,"finish_reason":"stop"}],"usage":null}`
	all := data(azure, hello, bare, usage, "[DONE]")
	for name, tc := range map[string]struct {
		in, sent string
		shown    bool
	}{
		"not asked": {chatIn, `{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}`, false},
		"asked":     {`{"model":"m","stream_options":{ "include_usage":true}}`, `{"model":"m","stream_options":{ "include_usage":true}}`, true},
		"refused":   {`{"model":"m","stream_options":{"x":1,"include_usage":false}}`, `{"model":"m","stream_options":{"x":1,"include_usage":true}}`, false},
		"null":      {`{"model":"m","stream_options":null}`, `{"model":"m","stream_options":{"include_usage":true}}`, false},
		"nonsense":  {`{"model":"m","stream_options":[1]}`, `{"model":"m","stream_options":[1]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, tc.in, all)
			want := []string{data(azure), data(hello), data(bare)}
			if tc.shown {
				want = append(want, data(usage))
			}
			if diff := cmp.Diff(want, got.events); diff != "" || got.err != nil {
				t.Errorf("events (-want +got):\n%s%v", diff, got.err)
			}
			if got.sent != tc.sent {
				t.Errorf("sent %s, want %s", got.sent, tc.sent)
			}
			if u := got.resp.Usage; u == nil || *u != (provider.Usage{Input: 9, Output: 1}) {
				t.Errorf("usage = %v", u)
			}
		})
	}
}

// D13: a stream that broke off is never a success.
func TestStream_WhatIsNotWholeIsAnError(t *testing.T) {
	t.Parallel()
	two := `{"choices":[{"index":1,"delta":{"content":"b"}}]}`
	for name, tc := range map[string]struct {
		pieces []string
		whole  bool
	}{
		"mark":                                {[]string{data(hello), data("[DONE]")}, true},
		"mark without a line's end":           {[]string{data(hello), "data: [DONE]"}, true},
		"mark of another line end":            {[]string{data(hello), "data:[DONE]\r\r"}, true},
		"no mark, but every choice finished":  {[]string{data(hello, stop)}, true},
		"no mark, and another choice goes on": {[]string{data(hello, two, stop)}, false},
		"no mark and no finish":               {[]string{data(hello)}, false},
		"connection lost after the finish":    {[]string{data(hello, stop), "CUT"}, false},
		"connection lost":                     {[]string{data(hello), "CUT"}, false},
		"half an event":                       {[]string{data(hello), "data: " + stop}, false},
		"half a mark":                         {[]string{data(hello), "data: [DON"}, false},
		"nothing":                             {nil, false},
		"the mark alone":                      {[]string{data("[DONE]")}, false},
		"what it cost, and no choice":         {[]string{data(usage, "[DONE]")}, true},
		"filters, and no choice":              {[]string{data(`{"prompt_filter_results":[],"choices":[]}`, "[DONE]")}, false},
		"no JSON":                             {[]string{data(hello, "<html>", "[DONE]")}, false},
		"JSON too deep":                       {[]string{data(hello, strings.Repeat("[", 2000)+strings.Repeat("]", 2000), "[DONE]")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, chatIn, tc.pieces...)
			if (got.err == nil) != tc.whole {
				t.Fatalf("Stream = %+v, %v", got.resp, got.err)
			}
			if !tc.whole && (got.err.Class != provider.Retryable || got.err.Code != llmq.CodeProviderError) {
				t.Errorf("error = %v", got.err)
			}
		})
	}
}

// An error inside a stream means what the same refusal would mean (case H24's kind).
func TestStream_ErrorsInsideAreClassified(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]provider.Class{
		`{"error":{"message":"busy","type":"overloaded_error"}}`:           provider.Throttle,
		`{"error":{"message":"slow down","code":429}}`:                     provider.Throttle,
		`{"error":{"message":"broken","type":"server_error","code":null}}`: provider.Retryable,
		`{"error":"broken"}`: provider.Retryable,
		`{"error":{"message":"no money","code":"insufficient_quota"},"choices":[]}`: provider.TargetFatal,
	} {
		got := run(t, chatIn, data(hello, event, "[DONE]"))
		if got.err == nil || got.err.Class != want || len(got.events) != 1 {
			t.Errorf("%s: %v after %d events, want %v", event, got.err, len(got.events), want)
		}
	}
	if got := run(t, chatIn, "event: error\n"+data(`{"message":"broken"}`)); got.err == nil || got.err.Class != provider.Retryable {
		t.Errorf("an event named error: %v", got.err)
	}
	for _, none := range []string{`null`, `""`, `{}`, `false`} {
		if got := run(t, chatIn, data(`{"error":`+none+`,`+hello[1:], "[DONE]")); got.err != nil || len(got.events) != 1 {
			t.Errorf("no error, %s: %v", none, got.err)
		}
	}
}

func TestStream_ARefusalIsThatOfACall(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"error":{"message":"slow down, %s"}}`, secret)
	}))
	t.Cleanup(srv.Close)
	got := stream(t.Context(), t, open(t, srv.URL, fixed(secret)), chatIn, provider.Pace{FirstContent: time.Minute})
	if e := got.err; e == nil || e.Class != provider.Throttle || e.RetryAfter != 7*time.Second || strings.Contains(e.Error(), secret) {
		t.Errorf("Stream = %v", got.err)
	}
}

// H19: a whole reply in place of a stream would come again, and be paid for again; a page passes, as it does for a call.
func TestStream_AReplyThatIsNoStream(t *testing.T) {
	t.Parallel()
	for media, class := range map[string]provider.Class{
		"application/json; charset=utf-8": provider.TargetFatal, "application/problem+json": provider.TargetFatal, "text/html": provider.Retryable, "": provider.Retryable,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{media}
			fmt.Fprint(w, `{"choices":[]}`)
		}))
		t.Cleanup(srv.Close)
		got := stream(t.Context(), t, open(t, srv.URL, fixed(secret)), chatIn, provider.Pace{})
		if e := got.err; e == nil || e.Class != class || e.Code != llmq.CodeProviderError {
			t.Errorf("%q: Stream = %v", media, got.err)
		}
	}
}

// D13: the time to the first content is bounded, comments or not; then the time between two reads.
func TestStream_PaceIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		silent bool   // no header
		begin  string // sent at once
		beat   string // sent ever after
		pace   provider.Pace
		says   string
	}{
		"no header":               {true, "", "", provider.Pace{FirstContent: 50 * time.Millisecond}, "began no reply in 50ms"},
		"comments are no content": {false, data(role), ": wait\n\n", provider.Pace{FirstContent: 200 * time.Millisecond, Stall: time.Minute}, "began no reply in 200ms"},
		"standstill":              {false, data(hello), "", provider.Pace{FirstContent: time.Minute, Stall: 50 * time.Millisecond}, "stood still for 50ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if !tc.silent {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, tc.begin)
					w.(http.Flusher).Flush()
				}
				beat := time.NewTicker(10 * time.Millisecond)
				defer beat.Stop()
				for {
					select {
					case <-r.Context().Done():
						return
					case <-beat.C:
						if tc.beat != "" {
							_, _ = io.WriteString(w, tc.beat)
							w.(http.Flusher).Flush()
						}
					}
				}
			}))
			t.Cleanup(srv.Close)
			got := stream(t.Context(), t, open(t, srv.URL, fixed(secret)), chatIn, tc.pace)
			if e := got.err; e == nil || e.Class != provider.Retryable || e.Code != llmq.CodeTimeout || !strings.Contains(e.Message, tc.says) {
				t.Errorf("Stream = %v, want it to say %q", got.err, tc.says)
			}
		})
	}
}

func TestStream_CancelClosesUpstream(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, data(hello))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := open(t, srv.URL, fixed(secret)).Stream(ctx, provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(chatIn)}, func([]byte, bool) { cancel() })
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Code != llmq.CodeCancelled {
		t.Errorf("Stream = %v", err)
	}
	<-gone
}

// A reply that was read to its end leaves its connection to the next call.
func TestStream_ConnectionIsKept(t *testing.T) {
	t.Parallel()
	peers := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers <- r.RemoteAddr
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, data(hello, "[DONE]"))
	}))
	t.Cleanup(srv.Close)
	p := open(t, srv.URL, fixed(secret))
	for range 2 {
		if got := stream(t.Context(), t, p, chatIn, provider.Pace{}); got.err != nil {
			t.Fatal(got.err)
		}
	}
	if a, b := <-peers, <-peers; a != b {
		t.Errorf("connections %s and %s", a, b)
	}
}

func TestStream_OnlyOfChat(t *testing.T) {
	t.Parallel()
	_, err := serveStream(t, nil).Stream(t.Context(), provider.Request{Op: llmq.OpEmbeddings, ModelID: "m", Body: []byte(`{}`)}, nil)
	if e, ok := errors.AsType[*provider.Error](err); !ok || !e.Unsent || e.Code != llmq.CodeUnsupported {
		t.Errorf("Stream = %v", err)
	}
}
