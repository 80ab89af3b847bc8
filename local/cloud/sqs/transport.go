package sqs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// RebufferTransport returns base with one change: it sends a copy of each request's body. base nil means http.DefaultTransport.
//
// Give it to every AWS SDK client that talks to a server on this machine. The SDK closes a request's body as the call to the
// transport returns; net/http may still be about to read its end, and then tears down the connection, with the response on it. A
// server that answers in microseconds wins that race once in some thousands of requests: the client sees "use of closed network
// connection" with status 200, retries, and the messages of that ReceiveMessage stay hidden for a whole visibility timeout. AWS
// is too slow to show it often (aws-sdk-go-v2 issues 1825 and 2737).
func RebufferTransport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return rebuffer{base}
}

type rebuffer struct{ base http.RoundTripper }

// RoundTrip sends r with a body that nobody else can close.
func (t rebuffer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.base.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return nil, fmt.Errorf("copy the request's body: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.ContentLength = int64(len(body))
	return t.base.RoundTrip(r)
}
