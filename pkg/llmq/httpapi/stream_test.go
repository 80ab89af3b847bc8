package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// part is what a scripted stream gives next, after a time.
type part struct {
	after time.Duration
	text  string
	err   error
}

// scripted is a stream of parts. What an ended context interrupts it gives at the time it had.
type scripted struct {
	parts  []part
	due    time.Time
	closed bool
}

func (s *scripted) Next(ctx context.Context) ([]byte, error) {
	p := s.parts[0]
	if s.due.IsZero() {
		s.due = time.Now().Add(p.after)
	}
	select {
	case <-time.After(time.Until(s.due)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.parts, s.due = s.parts[1:], time.Time{}
	if p.err != nil {
		return nil, p.err
	}
	return []byte(p.text), nil
}

func (s *scripted) Close() { s.closed = true }

// timed is an answer with the time of each of its writes.
type timed struct {
	*httptest.ResponseRecorder
	begun  time.Time
	writes []string
	broken bool
}

func (w *timed) Write(b []byte) (int, error) {
	if w.broken {
		return 0, io.ErrClosedPipe
	}
	w.writes = append(w.writes, fmt.Sprintf("%v %s", time.Since(w.begun), strings.TrimSpace(string(b))))
	return w.ResponseRecorder.Write(b)
}

// streams serves one call of a scripted stream.
func streams(t *testing.T, path, body string, parts ...part) (w *timed, s *scripted, b *bundle) {
	t.Helper()
	s = &scripted{parts: parts}
	b = setup(t, nil)
	b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) { return s, nil }
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testSecret)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "r-1")
	w = &timed{ResponseRecorder: httptest.NewRecorder(), begun: time.Now()}
	b.door.ServeHTTP(w, r)
	if !s.closed {
		t.Error("the stream is left open")
	}
	return w, s, b
}

const (
	chatStream = `{"model":"chat-a","stream":true,"messages":[]}`
	chatPath   = "/v1/chat/completions"
	convPath   = "/model/conv-a/converse-stream"
)

func wantWrites(t *testing.T, w *timed, want ...string) {
	t.Helper()
	if got := strings.Join(w.writes, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("writes:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// A11: pieces are passed on as they come, and the mark is ours to write.
func TestStream_PiecesAndTheMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, b := streams(t, chatPath, chatStream, part{time.Second, "data: a\n\n", nil}, part{time.Second, "data: b\n\n", nil}, part{0, "", io.EOF})
		wantWrites(t, w, "1s data: a", "2s data: b", "2s data: [DONE]")
		h := w.Header()
		if w.Code != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Content-Length") != "" || h.Get("X-LLMQ-Request-Id") != "r-1" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %v", w.Code, h)
		}
		if r := b.calls.requests()[0]; !r.Stream || r.Op != llmq.OpChat || string(r.Body) != chatStream {
			t.Errorf("handed over %+v", r)
		}
	})
}

// D13: the events of a response are its own to the last; no mark follows, and one that broke ends with an event that
// SDKs raise, nothing that looks like an end.
func TestStream_ResponsesEndByTheirOwnEvent(t *testing.T) {
	t.Parallel()
	const in = `{"model":"chat-a","stream":true,"input":"x"}`
	event := func(name string) string { return "event: " + name + "\ndata: {\"type\":\"" + name + "\"}" }
	for _, last := range []string{"response.completed", "response.incomplete", "response.failed"} {
		synctest.Test(t, func(t *testing.T) {
			w, _, b := streams(t, "/v1/responses", in, part{time.Second, event("response.created") + "\n\n", nil}, part{16 * time.Second, event(last) + "\n\n", nil}, part{0, "", io.EOF})
			wantWrites(t, w, "1s "+event("response.created"), "16s : waiting", "17s "+event(last), "17s ")
			if r := b.calls.requests()[0]; !r.Stream || r.Op != llmq.OpResponses || w.Header().Get("Content-Type") != "text/event-stream" {
				t.Errorf("handed over %+v, %v", r, w.Header())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, "/v1/responses", in, part{time.Second, event("response.created") + "\n\n", nil}, part{time.Second, "", llmq.Errorf(llmq.CodeStreamBroken, "it broke")})
		wantWrites(t, w, "1s "+event("response.created"),
			`2s event: error`+"\n"+`data: {"type":"error","code":"stream_broken","message":"it broke","param":null,"error":{"message":"it broke","type":"server_error","param":null,"code":"stream_broken"}}`)
	})
}

// A11: nothing is sent for 20 s but the first piece or an error, which has its status; then comments.
func TestStream_SilentAtFirstThenComments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, chatPath, chatStream, part{40 * time.Second, "data: a\n\n", nil}, part{16 * time.Second, "data: b\n\n", nil}, part{0, "", io.EOF})
		wantWrites(t, w, "20s : waiting", "35s : waiting", "40s data: a", "55s : waiting", "56s data: b", "56s data: [DONE]")
	})
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, chatPath, chatStream, part{19 * time.Second, "", llmq.Errorf(llmq.CodeRateLimited, "slow down").After(3 * time.Second)})
		if code, _ := openAI(t, w.ResponseRecorder); w.Code != 429 || code != "rate_limited" || w.Header().Get("Retry-After") != "3" {
			t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// A22, DS50: what broke after its first byte ends with an error event, and without a mark.
func TestStream_BrokenEndsWithAnErrorEvent(t *testing.T) {
	t.Parallel()
	broke := llmq.Errorf(llmq.CodeStreamBroken, "the reply broke off: <b>\nbusy")
	for name, first := range map[string]part{"after a piece": {0, "data: a\n\n", nil}, "after a comment": {21 * time.Second, "", broke}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, _, b := streams(t, chatPath, chatStream, first, part{0, "", broke})
				last := w.writes[len(w.writes)-1]
				if !strings.HasSuffix(last, `data: {"error":{"message":"the reply broke off: <b>\nbusy","type":"server_error","param":null,"code":"stream_broken"}}`) || strings.Contains(w.Body.String(), "[DONE]") {
					t.Errorf("body %s", w.Body)
				}
				if w.Code != 200 || !strings.Contains(b.log.String(), "stream_broken") {
					t.Errorf("got %d, log %s", w.Code, b.log)
				}
			})
		})
	}
}

func TestStream_DoorsWaitEndsItAndTellsHowToGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, chatPath, chatStream, part{0, "data: a\n\n", nil}, part{time.Hour, "", io.EOF})
		last := w.writes[len(w.writes)-1]
		if !strings.HasPrefix(last, "4m40s data: {") || !strings.Contains(last, `"code":"timeout"`) || !strings.Contains(last, "Idempotency-Key: r-1") {
			t.Errorf("last write %s", last)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, convPath, `{}`, part{time.Hour, "", io.EOF})
		if w.Code != http.StatusRequestTimeout || time.Since(w.begun) != 280*time.Second {
			t.Errorf("got %d after %v: %s", w.Code, time.Since(w.begun), w.Body)
		}
	})
}

// A8, A22: Bedrock's frames know no comment and no mark, and an error is a frame.
func TestStream_Converse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, b := streams(t, convPath, `{"messages":[]}`, part{100 * time.Second, "frame 1 ", nil}, part{100 * time.Second, "frame 2", nil}, part{0, "", io.EOF})
		if w.Code != 200 || w.Body.String() != "frame 1 frame 2" || w.Header().Get("Content-Type") != "application/vnd.amazon.eventstream" {
			t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
		}
		if r := b.calls.requests()[0]; !r.Stream || r.Op != llmq.OpConverseStream || r.Model.Alias != "conv-a" {
			t.Errorf("handed over %+v", r)
		}
	})
	for code, exception := range map[llmq.Code]string{
		llmq.CodeStreamBroken: "modelStreamErrorException", llmq.CodeTimeout: "modelStreamErrorException", llmq.CodeRateLimited: "throttlingException",
		llmq.CodeQueueUnavailable: "serviceUnavailableException", llmq.CodeInternal: "internalServerException", llmq.CodeCancelled: "validationException",
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _, _ := streams(t, convPath, `{}`, part{0, "x", nil}, part{0, "", llmq.Errorf(code, "it failed")})
			m, err := eventstream.NewDecoder().Decode(bytes.NewReader(w.Body.Bytes()[1:]), nil)
			if err != nil || m.Headers.Get(":message-type").String() != "exception" || m.Headers.Get(":exception-type").String() != exception || string(m.Payload) != `{"message":"it failed"}` {
				t.Errorf("%s: %v %v %s", code, err, m.Headers, m.Payload)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := streams(t, convPath, `{}`, part{0, "", llmq.Errorf(llmq.CodeRateLimited, "slow down")})
		if w.Code != 429 || w.Header().Get("X-Amzn-Errortype") != "ThrottlingException" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	})
}

// A caller that is gone is told nothing more; the call is not ours to end.
func TestStream_CallerThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{parts: []part{{0, "a", nil}, {0, "b", nil}, {0, "", io.EOF}}}
		b := setup(t, nil)
		b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) { return s, nil }
		r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(chatStream))
		r.Header.Set("Authorization", "Bearer "+testSecret)
		r.Header.Set("Content-Type", "application/json")
		b.door.ServeHTTP(&timed{ResponseRecorder: httptest.NewRecorder(), broken: true}, r)
		if !s.closed || len(s.parts) != 2 {
			t.Errorf("closed %t, %d parts left", s.closed, len(s.parts))
		}
	})
}

func TestStream_WhatCanNotBeginHasItsStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
		return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "down").Because(errors.New("no route"))
	}
	w := b.send(http.MethodPost, chatPath, chatStream)
	if code, _ := openAI(t, w); w.Code != 503 || code != "queue_unavailable" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestStream_EmbeddingsHaveNone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.refused(t, b.send(http.MethodPost, "/v1/embeddings", `{"model":"chat-a","input":"x","stream":true}`), http.StatusBadRequest, llmq.CodeUnsupported)
}
