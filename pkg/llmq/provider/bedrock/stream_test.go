package bedrock

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// The frames of case H24.
var (
	start    = unhex("000000760000005296d5fade0b3a6576656e742d7479706507000c6d65737361676553746172740d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22726f6c65223a22617373697374616e74227d6fa8c599")
	hel      = unhex("000000950000005789cbb35e0b3a6576656e742d74797065070011636f6e74656e74426c6f636b44656c74610d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22636f6e74656e74426c6f636b496e646578223a302c2264656c7461223a7b2274657874223a2248656c227d7d6413a776")
	throttle = unhex("00000090000000618e91a9b70f3a657863657074696f6e2d747970650700137468726f74746c696e67457863657074696f6e0d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d74797065070009657863657074696f6e7b226d657373616765223a22546f6f206d616e79207265717565737473227de67f8005")
)

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func framed(kind, name, payload string) string {
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", eventstream.StringValue(kind))
	switch kind {
	case "error":
		m.Headers.Set(":error-code", eventstream.StringValue(name))
		m.Headers.Set(":error-message", eventstream.StringValue(payload))
	case "exception":
		m.Headers.Set(":exception-type", eventstream.StringValue(name))
	default:
		m.Headers.Set(":event-type", eventstream.StringValue(name))
	}
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		panic(err)
	}
	return b.String()
}

var (
	messageStop = framed("event", "messageStop", `{"stopReason":"end_turn"}`)
	metadata    = framed("event", "metadata", `{"usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5,"cacheWriteInputTokens":1},"metrics":{"latencyMs":9}}`)
)

const cutHere = "CUT"

// run makes one attempt against an upstream that sends pieces, and returns what was emitted.
func run(t *testing.T, pieces ...string) (events []string, content []bool, resp *provider.Response, failed *provider.Error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent, _ := io.ReadAll(r.Body); string(sent) != body || r.URL.EscapedPath() != "/model/"+arnURL+"/converse-stream" || r.Header.Get("Accept") != eventStream {
			t.Errorf("sent %s %s, %s", r.URL.EscapedPath(), sent, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", eventStream)
		w.Header().Set("X-Amzn-Requestid", "exchange-1")
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
	resp, err := p.Stream(t.Context(), provider.Request{Op: llmq.OpConverseStream, ModelID: arn, Body: []byte(body)}, func(event []byte, c bool) {
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

func TestStream_PassesFramesAsTheyCame(t *testing.T) {
	t.Parallel()
	events, content, resp, err := run(t, start+hel[:40], hel[40:]+messageStop, metadata)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{start, hel, messageStop, metadata}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, true, true, true}, content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if resp.ContentType != eventStream || resp.RequestID != "exchange-1" || resp.Usage == nil || *resp.Usage != (provider.Usage{Input: 3, CacheWrite: 1, Output: 2}) {
		t.Errorf("response = %+v, usage %+v", resp, resp.Usage)
	}
}

// H24: an exception within a stream is no event of it, whether or not text came before.
func TestStream_H24ExceptionsWithinEndIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pieces []string
		events int
		class  provider.Class
		code   llmq.Code
		status int
		says   string
	}{
		"a":          {[]string{start, hel, throttle}, 2, provider.Throttle, llmq.CodeRateLimited, 429, "Too many requests"},
		"b":          {[]string{start, throttle}, 1, provider.Throttle, llmq.CodeRateLimited, 429, "Too many requests"},
		"model":      {[]string{start, hel, framed("exception", "modelStreamErrorException", `{"message":"it broke"}`)}, 2, provider.Retryable, llmq.CodeProviderError, 424, "it broke"},
		"validation": {[]string{framed("exception", "validationException", `{"message":"no"}`)}, 0, provider.CallFatal, llmq.CodeProviderRejected, 400, "no"},
		"unknown":    {[]string{start, framed("exception", "newException", `x`)}, 1, provider.Retryable, llmq.CodeProviderError, 500, ""},
		"no name":    {[]string{start, framed("exception", "", `{}`)}, 1, provider.Retryable, llmq.CodeProviderError, 500, ""},
		"error":      {[]string{start, hel, framed("error", "InternalFailure", `broken`)}, 2, provider.Retryable, llmq.CodeProviderError, 500, "broken"},
		"at the end": {[]string{start, hel, messageStop, throttle}, 2, provider.Throttle, llmq.CodeRateLimited, 429, "Too many requests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, _, _, err := run(t, tc.pieces...)
			if err == nil || err.Class != tc.class || err.Code != tc.code || err.Status != tc.status || err.Message != tc.says {
				t.Errorf("Stream = %v", err)
			}
			if len(events) != tc.events {
				t.Errorf("%d events, want %d", len(events), tc.events)
			}
		})
	}
}

// D13: a stream that broke off is never a success, and none of its ends is passed on.
func TestStream_WhatIsNotWholeIsAnError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pieces []string
		class  provider.Class
	}{
		"no messageStop":                 {[]string{start, hel}, provider.Retryable},
		"half a frame":                   {[]string{start, hel, messageStop, metadata[:50]}, provider.Retryable},
		"half a prelude":                 {[]string{start, hel, messageStop, metadata[:5]}, provider.Retryable},
		"connection lost after the stop": {[]string{start, hel, messageStop, cutHere}, provider.Retryable},
		"nothing":                        {nil, provider.Retryable},
		"no frame":                       {[]string{start, hel, "data: [DONE]\n\n"}, provider.TargetFatal}, // its first bytes are a length
		"wrong checksum":                 {[]string{start, hel[:len(hel)-1] + "x", messageStop}, provider.Retryable},
		"wrong prelude":                  {[]string{start, "\x00\x00\x00\x10\x00\x00\x00\x01abcdefgh"}, provider.Retryable},
		"too large":                      {[]string{start, "\x01\x00\x00\x00\x00\x00\x00\x00abcd"}, provider.TargetFatal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, _, _, err := run(t, tc.pieces...)
			if err == nil || err.Class != tc.class || err.Code != llmq.CodeProviderError {
				t.Errorf("Stream = %v", err)
			}
			if strings.Contains(strings.Join(events, ""), "messageStop") {
				t.Error("the end was passed on")
			}
		})
	}
}

// The shared part is tested with the openai provider; here only that the pace is passed on.
func TestStream_PaceIsBounded(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", eventStream)
		_, _ = io.WriteString(w, start)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	p := open(t, Config{Endpoint: srv.URL, Credentials: static})
	_, err := p.Stream(t.Context(), provider.Request{Op: llmq.OpConverseStream, ModelID: arn, Body: []byte(body), Pace: provider.Pace{FirstContent: 50 * time.Millisecond}}, func([]byte, bool) {})
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Code != llmq.CodeTimeout || e.Class != provider.Retryable {
		t.Errorf("Stream = %v", err)
	}
}

// A reply that has told its cost is whole, though its connection stays open; one without is not, however long it has rested.
func TestStream_SettledIsWholeThoughTheConnectionStaysOpen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		op    llmq.Op
		sends string
		whole bool
	}{
		"Converse":                  {llmq.OpConverseStream, start + hel + messageStop + metadata, true},
		"Converse without metadata": {llmq.OpConverseStream, start + hel + messageStop, false},
		"an invocation":             {llmq.OpInvokeStream, messageStart + textDelta + theStop, true},
		"half a frame behind it":    {llmq.OpInvokeStream, messageStart + textDelta + theStop + textDelta[:20], true},
		"one without metrics":       {llmq.OpInvokeStream, messageStart + textDelta + bareStop, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", eventStream)
				_, _ = io.WriteString(w, tc.sends)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			t.Cleanup(srv.Close)
			p := open(t, Config{Endpoint: srv.URL, Credentials: static})
			pace := provider.Pace{Stall: time.Second} // shorter than the wait for the end, which it doesn't bound
			got := ""
			_, err := p.Stream(t.Context(), provider.Request{Op: tc.op, ModelID: arn, Body: []byte(body), Pace: pace}, func(event []byte, _ bool) { got += string(event) })
			if e, _ := errors.AsType[*provider.Error](err); tc.whole != (err == nil) || err != nil && e.Code != llmq.CodeTimeout {
				t.Errorf("Stream = %v", err)
			}
			if tc.whole != (strings.HasSuffix(got, metadata) || strings.HasSuffix(got, theStop)) {
				t.Errorf("%d bytes were passed on", len(got))
			}
		})
	}
}

func TestStream_OnlyOfConverseStream(t *testing.T) {
	t.Parallel()
	p := open(t, Config{Endpoint: "http://127.0.0.1:1", Credentials: static})
	_, err := p.Stream(t.Context(), provider.Request{Op: llmq.OpConverse, ModelID: "m", Body: []byte(`{}`)}, nil)
	if e, ok := errors.AsType[*provider.Error](err); !ok || !e.Unsent || e.Code != llmq.CodeWrongWire {
		t.Errorf("Stream = %v", err)
	}
}

// Whatever bytes come, and however they are cut, the frames are the same, and each is one that decodes.
func FuzzFrameReader(f *testing.F) {
	for _, s := range []string{start, hel + throttle, start + messageStop[:30], "", "\x00\x00\x00\x10\x00\x00\x00\x00", framed("error", "x", "y")} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, cut := newFrameReader(bytes.NewReader(in), 1<<16), newFrameReader(iotest.OneByteReader(bytes.NewReader(in)), 1<<16)
		read := 0
		for {
			a, err := whole.next()
			b, cutErr := cut.next()
			if (err == nil) != (cutErr == nil) || a.kind != b.kind || a.name != b.name || !bytes.Equal(a.raw, b.raw) {
				t.Fatalf("%+v, %v; cut: %+v, %v", a, err, b, cutErr)
			}
			if err != nil {
				return
			}
			if !bytes.Equal(a.raw, in[read:read+len(a.raw)]) {
				t.Fatalf("frame is %q, want what stands at %d", a.raw, read)
			}
			read += len(a.raw)
		}
	})
}
