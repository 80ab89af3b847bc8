package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// SEC09 at the door: refused, the field is named, nothing is handed over.
func TestServeHTTP_SEC09TwoReadingsAre400(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, param string }{
		{"model twice", `{"model":"chat-a","model":"conv-a"}`, "model"},
		{"model twice, once escaped", `{"model":"chat-a","\u006dodel":"conv-a"}`, "model"},
		{"model escaped", `{"\u006dodel":"chat-a"}`, "model"},
		{"Model", `{"model":"chat-a","Model":"conv-a"}`, "Model"},
		{"max_tokens twice", `{"model":"chat-a","max_tokens":1,"max_tokens":100000}`, "max_tokens"},
		{"Max_Tokens", `{"model":"chat-a","Max_Tokens":100000}`, "Max_Tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ok)
			w := b.send(http.MethodPost, "/v1/chat/completions", tc.in)
			code, message := openAI(t, w)
			if w.Code != http.StatusBadRequest || len(b.calls.requests()) != 0 || !strings.Contains(w.Body.String(), `"param":"`+tc.param+`"`) {
				t.Errorf("got %d %s (%s), %d calls", w.Code, code, message, len(b.calls.requests()))
			}
		})
	}
}

// SEC10 at the door.
func TestServeHTTP_SEC10WeaponsAre400(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString(`{"model":"chat-a"`)
	for i := range 10_000 {
		fmt.Fprintf(&many, `,"m%d":1`, i)
	}
	for name, in := range map[string]string{
		"brackets": strings.Repeat("[", 4<<20), "depth 101": `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
		"second value": chatBody + "{}", "NaN": `{"model":"chat-a","temperature":NaN}`, "BOM": "\xef\xbb\xbf" + chatBody,
		"lone surrogate": `{"model":"chat-a","messages":[{"role":"user","content":"half \ud83d moon"}]}`, "members": many.String() + "}",
		"empty": "", "null": "null",
	} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, "/v1/chat/completions", in)
		if code, _ := openAI(t, w); w.Code != http.StatusBadRequest || code != "invalid_json" && code != "invalid_request" || len(b.calls.requests()) != 0 {
			t.Errorf("%s: got %d %s", name, w.Code, code)
		}
	}
}

// SEC15, its first half, and the other bodies that are not plain JSON.
func TestServeHTTP_SEC15MediaThatIsNotPlainJSONIs415(t *testing.T) {
	t.Parallel()
	for _, h := range [][]string{
		{"Content-Encoding", "gzip"},
		{"Content-Encoding", "GZIP"},
		{"Content-Encoding", "identity, br"},
		{"Content-Type", ""},
		{"Content-Type", "text/plain"},
		{"Content-Type", "application/json; charset=latin1"},
		{"Content-Type", "application/jsonl"},
		{"Content-Type", "application/json; x"},
		{"Content-Type", "multipart/form-data; boundary=x"},
	} {
		b := setup(t, ok)
		b.refused(t, b.chat(h...), http.StatusUnsupportedMediaType, llmq.CodeUnsupportedMedia)
	}
	b := setup(t, ok)
	if w := b.chat("Content-Encoding", "identity", "Content-Type", "Application/JSON; Charset=\"utf-8\""); w.Code != http.StatusOK {
		t.Errorf("plain JSON was refused: %d %s", w.Code, w.Body)
	}
}

// endless fails the test when more of it is read than may be.
type endless struct {
	t    *testing.T
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left -= len(p); e.left < 0 {
		e.t.Error("the body was read far beyond its limit")
		return 0, io.EOF
	}
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestServeHTTP_BodyIsBoundedBeforeItIsParsed(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	pad := func(n int) string { return chatBody + strings.Repeat(" ", n-len(chatBody)) }
	b := setup(t, ok)
	b.refused(t, b.send(http.MethodPost, "/v1/chat/completions", pad(limit+1)), http.StatusRequestEntityTooLarge, llmq.CodeTooLarge)
	for _, length := range []int64{-1, 10, limit, limit + 1, 1 << 60} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", &endless{t, limit + 1<<20})
		r.ContentLength = length
		r.Header.Set("Authorization", "Bearer "+testSecret)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.door.ServeHTTP(w, r)
		b.refused(t, w, http.StatusRequestEntityTooLarge, llmq.CodeTooLarge)
	}
	if w := b.send(http.MethodPost, "/v1/chat/completions", pad(limit)); w.Code != http.StatusOK {
		t.Errorf("a body of exactly the limit: %d %s", w.Code, w.Body)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset, canary7f3a") }

func TestServeHTTP_BodyThatBreaksOffIs400(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", broken{})
	r.Header.Set("Authorization", "Bearer "+testSecret)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.door.ServeHTTP(w, r)
	b.refused(t, w, http.StatusBadRequest, llmq.CodeInvalidRequest)
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("the cause is shown: %s", w.Body)
	}
}

func TestServeHTTP_ModelOfTheBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		status   int
		code     llmq.Code
		message  string
	}{
		{"missing", `{}`, 400, llmq.CodeInvalidRequest, "model is missing"},
		{"null", `{"model":null}`, 400, llmq.CodeInvalidRequest, "must be a string"},
		{"a number", `{"model":7}`, 400, llmq.CodeInvalidRequest, "must be a string"},
		{"empty", `{"model":""}`, 400, llmq.CodeInvalidRequest, "model is missing"},
		{"two targets", `{"model":"chat-a@eu@us"}`, 400, llmq.CodeInvalidRequest, "no model name has"},
		{"unknown", `{"model":"chat-b"}`, 404, llmq.CodeModelNotFound, "did you mean chat-a?"},
		{"unknown target", `{"model":"chat-a@ue"}`, 404, llmq.CodeModelNotFound, "did you mean eu?"},
		{"another wire", `{"model":"conv-a"}`, 400, llmq.CodeWrongWire, "it can be called at POST /model/conv-a/converse or POST /model/conv-a/converse-stream"},
		{"another wire, pinned", `{"model":"both-a@conv"}`, 400, llmq.CodeWrongWire, "it can be called at POST /model/both-a@conv/converse or "},
		{"H25d: Bedrock embeds by invocation", `{"model":"raw-a","input":[1820,1053]}`, 400, llmq.CodeWrongWire, "call it at POST /model/raw-a/invoke"},
		{"H25c: text and token numbers", `{"model":"chat-a","input":["x",382]}`, 400, llmq.CodeInvalidRequest, "input mixes token numbers"},
		{"H25c: nothing", `{"model":"chat-a","input":[]}`, 400, llmq.CodeInvalidRequest, "input is a list of nothing"},
		{"stream of a string", `{"model":"chat-a","stream":"true"}`, 400, llmq.CodeInvalidRequest, "stream must be"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ok)
			w := b.send(http.MethodPost, "/v1/embeddings", tc.in)
			b.refused(t, w, tc.status, tc.code)
			if _, message := openAI(t, w); !strings.Contains(message, tc.message) {
				t.Errorf("%q is missing in %q", tc.message, message)
			}
		})
	}
	for _, in := range []string{`{"model":"chat-a@us"}`, `{"model":"vendor/chat-a"}`, `{"model":"both-a","stream":false}`, `{"model":"chat-a","stream":null,"user":"u-1"}`} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, "/v1/embeddings", in)
		if reqs := b.calls.requests(); w.Code != http.StatusOK || len(reqs) != 1 || string(reqs[0].Body) != in || reqs[0].User != "" {
			t.Errorf("%s: got %d %s", in, w.Code, w.Body)
		}
	}
}

func TestServeHTTP_ModelOfThePath(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{
		"unknown": "conv-b", "empty": "", "NUL": "%00", "dots": "..", "dots encoded": "%2e%2e", "dots inside": "a/../conv-a", "slashes": "a//b", "slashes encoded": "a%2F%2Fb",
		"encoded twice": "conv%252Da", "encoded percent": "%25", "too long": strings.Repeat("a", llmq.MaxModelRefBytes+1), "a space": "conv%20a", "not UTF-8": "%ff", "a query inside": "conv-a%3Fx",
	} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, "/model/"+id+"/converse", `{}`)
		if w.Code != http.StatusNotFound || w.Header().Get("X-Amzn-Errortype") != "ResourceNotFoundException" || len(b.calls.requests()) != 0 {
			t.Errorf("%s: got %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
	b := setup(t, ok)
	w := b.send(http.MethodPost, "/model/chat-a/converse", `{}`)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "call it at POST /v1/chat/completions") {
		t.Errorf("another wire: got %d %s", w.Code, w.Body)
	}
}

// Fidelity: angle brackets, spaces and number spellings reach the call as they came.
func TestServeHTTP_BodyIsNotRewritten(t *testing.T) {
	t.Parallel()
	const body = " {\n\"model\" : \"chat-a\",\"messages\":[{\"content\":\"<rules>a && b</rules> \\u00e9 \\ud83d\\ude80\"}],\"x\":1.0e2}\r\n"
	b := setup(t, func(_ context.Context, r llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, Body: r.Body}, nil
	})
	if w := b.send(http.MethodPost, "/v1/chat/completions", body); w.Body.String() != body {
		t.Errorf("got %q", w.Body)
	}
}
