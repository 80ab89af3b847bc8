package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// F3: what is wrapped around the transport is asked for every exchange, and may answer itself.
func TestWrap_StandsBeforeTheTransport(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from the server") })
	n := local()
	n.Wrap = func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/live" {
				return next.RoundTrip(r)
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("from the tape"))}, nil
		})
	}
	c := open(t, srv.URL, n, hooks{})
	for path, want := range map[string]string{"/live": "from the server", "/taped": "from the tape"} {
		if reply, err := c.Do(post(t, srv.URL+path, "{}")); err != nil || string(reply.Body) != want {
			t.Errorf("%s: %q, %v", path, reply.Body, err)
		}
	}
	// Even so, a request for elsewhere goes nowhere.
	_, err := c.Do(post(t, "http://127.0.0.1:1/taped", "{}"))
	want(t, err, provider.TargetFatal, llmq.CodeProviderError)
}

// Its errors mean what it says, however they are wrapped; others are the network's.
func TestWrap_SaysWhatItsErrorsMean(t *testing.T) {
	t.Parallel()
	own := &provider.Error{Class: provider.CallFatal, Code: llmq.CodeConfiguration, Message: "no recording"}
	for _, tt := range []struct {
		err   error
		class provider.Class
		code  llmq.Code
	}{
		{fmt.Errorf("tape: %w", own), provider.CallFatal, llmq.CodeConfiguration},
		{errors.New("anything"), provider.Retryable, llmq.CodeProviderError},
	} {
		n := local()
		n.Wrap = func(http.RoundTripper) http.RoundTripper {
			return transportFunc(func(*http.Request) (*http.Response, error) { return nil, tt.err })
		}
		_, err := open(t, "http://127.0.0.1:1", n, hooks{}).Do(post(t, "http://127.0.0.1:1/x", "{}"))
		want(t, err, tt.class, tt.code)
	}
}
