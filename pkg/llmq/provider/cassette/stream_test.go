package cassette_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// inChunks serves chunks, each of which the client has before the next is sent: taken says so.
func inChunks(contentType string, taken <-chan struct{}, abort bool, chunks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a test server
		w.Header().Set("Content-Type", contentType)
		for _, c := range chunks {
			_, _ = io.WriteString(w, c)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-taken:
			case <-r.Context().Done():
				return
			}
		}
		if abort {
			panic(http.ErrAbortHandler)
		}
	}
}

// readChunks reads as a stream's client does, a Read for each thing that comes.
func readChunks(t *testing.T, c *http.Client, url string, took func()) ([]string, *http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(bodyA))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out []string
	buf := make([]byte, 1<<16)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			out = append(out, string(buf[:n]))
			took()
		}
		if err != nil {
			return out, resp, err
		}
	}
}

func nothing() {}

func frames(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, payload := range []string{`{"delta":{"text":"caf\u00e9"},"p":"ab"}`, `{"stopReason":"end_turn"}`} {
		var b bytes.Buffer
		m := eventstream.Message{Payload: []byte(payload)}
		m.Headers.Set(":event-type", eventstream.StringValue("contentBlockDelta"))
		if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.String())
	}
	return out
}

func TestStream_KeepsItsChunksAndItsBytes(t *testing.T) {
	t.Parallel()
	half := "data: caf\xc3" // a chunk may end within a character
	for _, tt := range []struct {
		name, contentType string
		chunks            []string
	}{
		{"server-sent events", "text/event-stream; charset=utf-8", []string{"data: {\"a\":\"<b>&\"}\n\n", ": wait\n\n", "data: [DONE]\r\n\r\n"}},
		{"within a character", "text/event-stream", []string{half, "\xa9\n\n"}},
		{"event stream", "application/vnd.amazon.eventstream", frames(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			taken := make(chan struct{}, 1)
			r := newRig(t, inChunks(tt.contentType, taken, false, tt.chunks...))
			if err := r.record(t, cassette.Options{}, func(c *http.Client) {
				if got, _, err := readChunks(t, c, r.srv.URL, func() { taken <- struct{}{} }); !slices.Equal(got, tt.chunks) || !errors.Is(err, io.EOF) {
					t.Errorf("recorded %q, %v", got, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			_, c := r.tape(t, cassette.Options{})
			got, resp, err := readChunks(t, c, r.srv.URL, nothing)
			if diff := cmp.Diff(tt.chunks, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Errorf("%v, chunks (-want +got):\n%s", err, diff)
			}
			if resp.Header.Get("Content-Type") != tt.contentType || resp.ContentLength != -1 {
				t.Errorf("header %v, length %d", resp.Header, resp.ContentLength)
			}
		})
	}
}

// What broke when it was recorded breaks again, where it broke.
func TestStream_BrokenStaysBroken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, contentType, length string }{
		{"stream", "text/event-stream", ""},
		{"document of known length", "application/json", "100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			taken := make(chan struct{}, 1)
			serve := inChunks(tt.contentType, taken, true, `{"half":`)
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if tt.length != "" {
					w.Header().Set("Content-Length", tt.length)
				}
				serve(w, req)
			})
			if err := r.record(t, cassette.Options{}, func(c *http.Client) {
				if got, _, err := readChunks(t, c, r.srv.URL, func() { taken <- struct{}{} }); !slices.Equal(got, []string{`{"half":`}) || errors.Is(err, io.EOF) {
					t.Errorf("recorded %q, %v", got, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			_, c := r.tape(t, cassette.Options{})
			got, resp, err := readChunks(t, c, r.srv.URL, nothing)
			if !slices.Equal(got, []string{`{"half":`}) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("played %q, %v", got, err)
			}
			if tt.length != "" && resp.Header.Get("Content-Length") != tt.length {
				t.Errorf("Content-Length %q", resp.Header.Get("Content-Length"))
			}
		})
	}
}

// A caller that gives up is not how the provider answers.
func TestStream_CancelledIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, inChunks("text/event-stream", nil, false, "data: 1\n\n"))
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.srv.URL, strings.NewReader(bodyA))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = resp.Body.Read(make([]byte, 9)) // the first chunk
		cancel()
		_, _ = io.Copy(io.Discard, resp.Body) // until it fails
		_ = resp.Body.Close()
	}); err != nil {
		t.Fatal(err)
	}
	if files := r.files(t); len(files) != 0 {
		t.Errorf("recorded %v", files)
	}
}

// A reader that wants no more gets as much again, and no made-up end.
func TestStream_ClosedEarlyEndsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, inChunks("text/event-stream", nil, false, "data: 1\n\n"))
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		resp, err := c.Post(r.srv.URL, "", strings.NewReader(bodyA))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = resp.Body.Read(make([]byte, 4)) // of nine
		_ = resp.Body.Close()
	}); err != nil {
		t.Fatal(err)
	}
	_, c := r.tape(t, cassette.Options{})
	got, err := send(c, r.srv.URL, bodyA)
	if got != "data: 1\n\n" || err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("played %q, %v", got, err)
	}
}

// H03a: what a body says is in the file as it was sent. Replies are the same to the byte.
func TestReply_BytesAreExact(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, body := range map[string]string{
		"json": `{ "b":1.0,"a":"<rules>a && b</rules>\u00e9" }` + "\n", "empty": "", "bytes": string(all), "byte order mark": "\xef\xbb\xbf{}", "large": strings.Repeat("0123456789", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, body)
			})
			if err := r.record(t, cassette.Options{}, func(c *http.Client) {
				mustSend(t, c, r.srv.URL, `{"q":"<rules>a && b</rules>"}`)
			}); err != nil {
				t.Fatal(err)
			}
			for _, text := range r.files(t) {
				if !strings.Contains(text, `"q": "<rules>a && b</rules>"`) {
					t.Errorf("the prompt is spelled differently:\n%.400s", text)
				}
			}
			_, c := r.tape(t, cassette.Options{})
			if got := mustSend(t, c, r.srv.URL, `{"q":"<rules>a && b</rules>"}`); got != body {
				t.Errorf("got %s", hex.EncodeToString([]byte(got[:min(len(got), 300)])))
			}
		})
	}
}

func TestReply_ErrorsKeepStatusAndTheHeadersThatMatter(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Retry-After", "7")
		h.Set("X-Ratelimit-Remaining-Tokens", "0")
		h.Set("X-Request-Id", "0123456789")
		h.Set("Openai-Organization", "acme")
		h.Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	if err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, bodyA) }); err != nil {
		t.Fatal(err)
	}
	_, c := r.tape(t, cassette.Options{})
	resp, err := c.Post(r.srv.URL, "", strings.NewReader(bodyA))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	want := http.Header{"Retry-After": {"7"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "Content-Length": {"0"}}
	if diff := cmp.Diff(want, resp.Header); diff != "" || resp.StatusCode != 429 {
		t.Errorf("status %d, headers (-want +got):\n%s", resp.StatusCode, diff)
	}
}

// A packed reply is stored as what is inside, so that it can be searched.
func TestReply_GzippedIsStoredUnpacked(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "inside")
		_ = z.Close()
	})
	packed := func(req *http.Request) { req.Header.Set("Accept-Encoding", "gzip") } // so net/http leaves it
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		if got := mustSend(t, c, r.srv.URL, bodyA, packed); got == "inside" {
			t.Error("the live reply was unpacked")
		}
	}); err != nil {
		t.Fatal(err)
	}
	_, c := r.tape(t, cassette.Options{})
	if got := mustSend(t, c, r.srv.URL, bodyA, packed); got != "inside" {
		t.Errorf("got %q", got)
	}
}

func TestReply_WhatCannotBeSearchedIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "????")
	})
	err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, bodyA) })
	if err == nil || len(r.files(t)) != 0 {
		t.Errorf("error %v, files %v", err, r.files(t))
	}
}

// What is larger than the limit passes, and is not kept.
func TestReply_TooLargeIsNotRecorded(t *testing.T) {
	t.Parallel()
	const size = cassette.MaxBodyBytes + 1
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	err := r.record(t, cassette.Options{}, func(c *http.Client) {
		if got := mustSend(t, c, r.srv.URL, bodyA); len(got) != size {
			t.Errorf("%d bytes", len(got))
		}
	})
	if err == nil || !strings.Contains(err.Error(), "larger than") || len(r.files(t)) != 0 {
		t.Errorf("error %v", err)
	}
}

func TestReplay_TimedTakesAsLongAsItDid(t *testing.T) {
	t.Parallel()
	const file = `{"cassette":1,"request":{"method":"POST","url":"http://h/","text":"x"},"response":{"status":200,"header":{"Content-Type":["text/event-stream"]},` +
		`"wait_ms":1000,"chunks":[{"after_ms":200,"text":"a"},{"after_ms":30000,"text":"b"}],"end":"complete"}}`
	dir := folder(t, map[string]string{"a.json": file})
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			timed bool
			want  []time.Duration
		}{{true, []time.Duration{time.Second, 1200 * time.Millisecond, 31200 * time.Millisecond}}, {false, make([]time.Duration, 3)}} {
			tape, err := cassette.New(cassette.Options{Dir: dir, Timed: tt.timed})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			resp, err := (&http.Client{Transport: tape.Wrap(nil)}).Post("http://h/", "", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			got := []time.Duration{time.Since(start)}
			for range 2 {
				if _, err := resp.Body.Read(make([]byte, 9)); err != nil {
					t.Fatal(err)
				}
				got = append(got, time.Since(start))
			}
			_ = resp.Body.Close()
			if !slices.Equal(got, tt.want) {
				t.Errorf("timed %t: %v, want %v", tt.timed, got, tt.want)
			}
		}
	})
}

func TestReplay_TimedEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	const file = `{"cassette":1,"request":{"method":"GET","url":"http://h/"},"response":{"status":200,"wait_ms":0,"chunks":[{"after_ms":3600000,"text":"a"}],"end":"complete"}}`
	dir := folder(t, map[string]string{"a.json": file})
	synctest.Test(t, func(t *testing.T) {
		tape, err := cassette.New(cassette.Options{Dir: dir, Timed: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tape.Wrap(nil).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 9)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
}
