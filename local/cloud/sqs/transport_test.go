package sqs_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closable is a body that cannot be read once it is closed, as the SDK's are.
type closable struct {
	io.Reader
	closed bool
	err    error // of Close
}

func (c *closable) Read(p []byte) (int, error) {
	if c.closed {
		return 0, errors.New("read of a closed body")
	}
	return c.Reader.Read(p)
}

func (c *closable) Close() error {
	c.closed = true
	return c.err
}

func TestRebufferTransport_BodyOutlivesItsClose(t *testing.T) {
	t.Parallel()
	body := &closable{Reader: strings.NewReader("hello")}
	original, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sqs.test/", body)
	if err != nil {
		t.Fatal(err)
	}
	var sent *http.Request
	transport := sqs.RebufferTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	response, err := transport.RoundTrip(original)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if !body.closed {
		t.Error("the original body was left open")
	}
	again, err := sent.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []io.Reader{sent.Body, again} {
		if got, err := io.ReadAll(r); err != nil || string(got) != "hello" {
			t.Errorf("the transport may read %q, %v", got, err)
		}
	}
	if sent.ContentLength != 5 {
		t.Errorf("content length %d, want 5", sent.ContentLength)
	}
	if original.Body != body {
		t.Error("the caller's request was changed")
	}
}

func TestRebufferTransport_FailsOnABodyItCannotCopy(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	transport := sqs.RebufferTransport(roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("the request was sent")
		return nil, broken
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sqs.test/", &closable{Reader: strings.NewReader("x"), err: broken})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := transport.RoundTrip(r); !errors.Is(err, broken) { // there is none
		t.Fatalf("error %v, want the body's", err)
	}
}
