package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// dropIn is an HTTP client that a program's own door serves.
func dropIn(t *testing.T, calls Calls) *http.Client {
	t.Helper()
	catalogue := llmq.NewCatalogue([]llmq.Model{
		{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "chat-a", Name: "eu", Provider: "p", ModelID: "m", Wires: []llmq.Wire{llmq.WireOpenAI}}}},
		{Alias: "conv-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "conv-a", Name: "eu", Provider: "p", ModelID: "c", Wires: []llmq.Wire{llmq.WireConverse}}}},
	})
	h, err := New(DefaultConfig(), Deps{
		Calls: calls, Program: auth.Program("team-a", catalogue.Models()), Catalogue: catalogue, Logger: slog.New(slog.DiscardHandler),
		HashID: func(id string) string { return id },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: NewTransport(h)}
}

func post(ctx context.Context, t *testing.T, c *http.Client, url, body string, headers ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return c.Do(req)
}

const (
	openAIURL   = "https://api.openai.com/v1/chat/completions"
	chatRequest = `{"model":"chat-a","messages":[]}`
)

func replying(body string) *fakeCalls {
	return &fakeCalls{do: func(_ context.Context, r llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, Body: []byte(body), Meta: llmq.Meta{RequestID: r.ID, Model: "chat-a", Target: "eu", Attempts: 2, Lane: r.Lane}}, nil
	}}
}

// A12: the caller is the program, whatever credentials its SDK sends, signed ones too; the answer is the door's.
func TestTransport_ServesAProgramsCalls(t *testing.T) {
	t.Parallel()
	for _, authorization := range []string{"", "Bearer sk-somebody-elses", "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=00"} {
		calls := replying(`{"x":1.0}`)
		resp, err := post(t.Context(), t, dropIn(t, calls), openAIURL, chatRequest, "Authorization", authorization, "X-LLMQ-Lane", "bg", "Idempotency-Key", "id-1")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != `{"x":1.0}` || resp.StatusCode != 200 || resp.ContentLength != 9 {
			t.Errorf("got %d %q of %d bytes, %v", resp.StatusCode, body, resp.ContentLength, err)
		}
		for name, want := range map[string]string{"X-LLMQ-Request-Id": "id-1", "X-LLMQ-Target": "eu", "X-LLMQ-Attempts": "2", "X-LLMQ-Lane": "bg", "X-Request-Id": "id-1"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if got := calls.requests(); len(got) != 1 || got[0].Tenant != "team-a" || got[0].KeyID != "" || string(got[0].Body) != chatRequest {
			t.Errorf("handed over: %+v", got)
		}
	}
}

// A2: user, session and deadline of the context count, where no header says otherwise.
func TestTransport_TakesWhatTheContextSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(llmq.WithSession(llmq.WithUser(t.Context(), "ann"), "s1"), 7*time.Second)
		defer cancel()
		for _, tc := range []struct {
			headers []string
			want    string
		}{
			{nil, "ann s1 7s"},
			{[]string{"X-LLMQ-User", "bob", "X-LLMQ-Timeout-Secs", "60"}, "bob s1 1m0s"},
			{[]string{"X-LLMQ-Session", "s2", "X-LLMQ-Lane", "bulk"}, "ann s2 7s"},
		} {
			calls := replying("{}")
			resp, err := post(ctx, t, dropIn(t, calls), openAIURL, chatRequest, tc.headers...)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			r := calls.requests()[0]
			if got := r.User + " " + r.Session + " " + time.Until(r.Deadline).String(); got != tc.want {
				t.Errorf("%q: %s, want %s", tc.headers, got, tc.want)
			}
		}
	})
}

// A12: what the door doesn't serve is refused in the shape that the path's SDK reads, and it is not to be repeated.
func TestTransport_RefusesOtherPaths(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://api.openai.com/v1/images/generations":                              `"code":"unknown_route"`,
		"https://api.openai.com/v2/chat/completions":                                `"code":"unknown_route"`,
		"https://bedrock-runtime.us-east-1.amazonaws.com/model/conv-a/count-tokens": `"message":`,
	} {
		resp, err := post(t.Context(), t, dropIn(t, &fakeCalls{}), url, "{}")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 404 || !strings.Contains(string(body), want) || resp.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", url, resp.StatusCode, body)
		}
	}
}

// liveStream is a stream that is fed while it is read.
type liveStream struct {
	pieces chan string
	ctx    context.Context
	closed chan error // what ended it: its context's cause at its close
}

func (s *liveStream) Next(ctx context.Context) ([]byte, error) {
	select {
	case p, more := <-s.pieces:
		if !more {
			return nil, io.EOF
		}
		return []byte(p), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *liveStream) Close() { s.closed <- s.ctx.Err() }

func streaming() (*fakeCalls, *liveStream) {
	s := &liveStream{pieces: make(chan string), closed: make(chan error, 1)}
	return &fakeCalls{stream: func(ctx context.Context, _ llmq.Request) (llmq.Stream, error) {
		s.ctx = ctx
		return s, nil
	}}, s
}

const streamRequest = `{"model":"chat-a","stream":true,"messages":[]}`

// A11, A12: a stream's events are read as they come, and its end as the wire has it.
func TestTransport_StreamsFlow(t *testing.T) {
	t.Parallel()
	calls, s := streaming()
	began := make(chan struct{})
	go func() { s.pieces <- "data: 1\n\n"; <-began; s.pieces <- "data: 2\n\n"; close(s.pieces) }()
	resp, err := post(t.Context(), t, dropIn(t, calls), openAIURL, streamRequest)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Fatalf("first event: %q, %v", first, err)
	}
	close(began)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != "data: 2\n\ndata: [DONE]\n\n" || resp.ContentLength != -1 {
		t.Errorf("rest: %q, %v", rest, err)
	}
	resp.Body.Close()
	if err := <-s.closed; err != nil {
		t.Errorf("the stream ended by %v", err)
	}
}

// A5, A12: the end of the context ends the wait and all that works for it; so does a body that is closed early.
func TestTransport_EndsWithItsCaller(t *testing.T) {
	t.Parallel()
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		calls := &fakeCalls{do: func(ctx context.Context, _ llmq.Request) (*llmq.Reply, error) {
			cancel()
			<-ctx.Done()
			ended = true
			return nil, llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")
		}}
		if _, err := post(ctx, t, dropIn(t, calls), openAIURL, chatRequest); !errors.Is(err, context.Canceled) || !ended {
			t.Errorf("err = %v, ended %v", err, ended)
		}
	})
	t.Run("while it reads", func(t *testing.T) {
		t.Parallel()
		calls, s := streaming()
		go func() { s.pieces <- "data: 1\n\n" }()
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := post(ctx, t, dropIn(t, calls), openAIURL, streamRequest)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		cancel()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if err := <-s.closed; !errors.Is(err, context.Canceled) {
			t.Errorf("the stream ended by %v", err)
		}
	})
	t.Run("body closed", func(t *testing.T) {
		t.Parallel()
		calls, s := streaming()
		go func() { s.pieces <- "data: 1\n\n" }()
		resp, err := post(t.Context(), t, dropIn(t, calls), openAIURL, streamRequest)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		select { // it had ended when Close returned
		case err := <-s.closed:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the stream ended by %v", err)
			}
		default:
			t.Error("the stream goes on")
		}
	})
}
