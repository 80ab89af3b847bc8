package wiring

import (
	"bytes"
	"io"
	"net/http"
)

// rebuffer sends a copy of each request's body. The SDK closes a request's body as
// soon as the transport has an answer; a server that answers in microseconds makes
// that race with the body's last read, and the connection is torn down with the
// answer on it: a receive is lost for a visibility timeout (aws-sdk-go-v2 issue 1825).
type rebuffer struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t rebuffer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.base.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it was read to its end, or the read's error is returned
	if err != nil {
		return nil, err
	}
	copied := r.Clone(r.Context())
	copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return t.base.RoundTrip(copied)
}
