package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
)

// frame is a message of Bedrock's streams.
func frame(t *testing.T, kind, nameHeader, name, payload string) []byte {
	t.Helper()
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(eventstreamapi.MessageTypeHeader, eventstream.StringValue(kind))
	m.Headers.Set(nameHeader, eventstream.StringValue(name))
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func streamOf(t *testing.T, op string, width int, body []byte) told {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-LLMQ-Request-Id", "req_1")
		w.Write(body) //nolint:errcheck // the test's own client
	}))
	defer server.Close()
	env := []string{"OPENAI_BASE_URL=" + server.URL + "/v1", "OPENAI_API_KEY=" + testKey}
	return invoke(t, at{width: width, env: env}, "call", "hi", "--stream", "--model", "m", "--op", op)
}

// Streams on both wires: text for people, a line of JSON for each event for programs; an error after the first byte, and a
// break, are told.
func TestCall_Streams(t *testing.T) {
	t.Parallel()
	delta := func(text string) []byte {
		return frame(t, "event", eventstreamapi.EventTypeHeader, "contentBlockDelta", `{"delta":{"text":"`+text+`"}}`)
	}
	stop := frame(t, "event", eventstreamapi.EventTypeHeader, "messageStop", `{"stopReason":"end_turn"}`)
	exception := frame(t, "exception", eventstreamapi.ExceptionTypeHeader, "modelTimeoutException", `{"message":"too slow"}`)
	const chunk = `data: {"choices":[{"delta":{"content":"he\u001b[31mllo"}}]}` + "\n\n"
	for _, tt := range []struct {
		name  string
		op    string
		width int
		body  string
		want  told
	}{
		{"converse", "converse", 80, string(delta("he")) + string(delta("llo")) + string(stop), told{0, "hello\n", ""}},
		{"converse, piped", "converse", 0, string(delta("he")) + string(stop), told{0, `{"contentBlockDelta":{"delta":{"text":"he"}}}` + "\n" + `{"messageStop":{"stopReason":"end_turn"}}` + "\n", ""}},
		{"converse, an exception", "converse", 80, string(delta("he")) + string(exception), told{exitFailed, "he\n", "llmq: too slow (modelTimeoutException)"}},
		{"converse, broken off", "converse", 80, string(delta("he")), told{exitUnreachable, "he\n", "the stream broke off"}},
		{"converse, broken frame", "converse", 80, string(delta("he")[:20]), told{exitUnreachable, "", "the stream broke off"}},
		{"chat, steering the terminal", "chat", 80, ": waiting\n\n" + chunk + "data: [DONE]\n\n", told{0, "he[31mllo\n", ""}},
		{"chat, an error", "chat", 80, chunk + `data: {"error":{"code":"stream_broken","message":"the worker died"}}` + "\n\n", told{exitFailed, "he[31mllo\n", "llmq: the worker died (stream_broken)"}},
		{"chat, broken off", "chat", 0, "data: {}\n\n", told{exitUnreachable, "{}\n", "the stream broke off"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := streamOf(t, tt.op, tt.width, []byte(tt.body))
			if got.code != tt.want.code || got.out != tt.want.out || !strings.Contains(got.err, tt.want.err) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Whatever comes, an event or an error does, and it ends.
func FuzzEvents_End(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n"))
	f.Add([]byte("data: {\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		converse := func(own bool) func(io.Reader) func() (event, error) {
			return func(body io.Reader) func() (event, error) { return converseEvents(body, own) }
		}
		for _, events := range []func(io.Reader) func() (event, error){chatEvents, responseEvents, converse(false), converse(true)} {
			next := events(bytes.NewReader(body))
			for n := 0; ; n++ {
				_, err := next()
				if _, told := errors.AsType[*remote.Refused](err); err != nil && !told || n > len(body) {
					if n > len(body) {
						t.Fatal("more events than bytes")
					}
					break
				}
			}
		}
	})
}
