package cassette_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// adapter is a real adapter whose transport is a tape.
func adapter(t *testing.T, r *rig, key string, o cassette.Options) (*openai.Provider, *cassette.Tape) {
	t.Helper()
	o.Dir = r.dir
	if o.Env == nil {
		o.Env = []string{}
	}
	tape, err := cassette.New(o)
	if err != nil {
		t.Fatal(err)
	}
	n := provider.DefaultNetwork()
	n.Loopback, n.Wrap = true, tape.Wrap
	p, err := openai.New(openai.Config{
		Name: "p", BaseURL: r.srv.URL + "/v1", Network: n, APIKey: func(context.Context) (string, error) { return key, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, tape
}

func chat(content string) provider.Request {
	return provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(`{"model":"alias","messages":[{"role":"user","content":"` + content + `"}]}`)}
}

// F3: under an adapter a tape is the provider: replies, refusals and broken replies are what they
// were, and a call that nothing answers fails for good.
func TestAdapter_MeetsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	const reply = `{ "choices": [{}] }`
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "busy"):
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"code":"rate_limit_exceeded","message":"slow down"}}`)
		case strings.Contains(string(body), "cut"):
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"choices":`)
		default:
			_, _ = io.WriteString(w, reply)
		}
	})
	check := func(p *openai.Provider) {
		t.Helper()
		if got, err := p.Call(t.Context(), chat("hello")); err != nil || string(got.Body) != reply {
			t.Errorf("hello: %v, %v", got, err)
		}
		_, err := p.Call(t.Context(), chat("busy"))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Throttle || e.RetryAfter.Seconds() != 7 {
			t.Errorf("busy: %v", err)
		}
		_, err = p.Call(t.Context(), chat("cut"))
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut: %v", err)
		}
	}
	const key = "0123456789abcdef0123456789abcdef"
	p, tape := adapter(t, r, key, cassette.Options{Mode: cassette.Record, Env: recordEnv()})
	check(p)
	if err := tape.Close(); err != nil {
		t.Fatal(err)
	}
	wantNone(t, r, key)
	calls := r.calls.Load()

	p, _ = adapter(t, r, "another-key-another-key", cassette.Options{})
	check(p)
	_, err := p.Call(t.Context(), chat("canary"))
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Class != provider.CallFatal || e.Code != llmq.CodeConfiguration || !isMiss(err) {
		t.Fatalf("a miss is %v", err)
	}
	for _, part := range []string{"POST " + r.srv.URL + "/v1/chat/completions", "body at /messages/0/content", ".json"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q does not say %q", e.Message, part)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the prompt is in the error: %v", err)
	}
	if got := r.calls.Load(); got != calls {
		t.Errorf("%d calls went out", got-calls)
	}
}
