package sqs

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// Transport returns a transport that carries every request to s without a socket, whatever host its URL names. Client and server may
// then live in one testing/synctest bubble, where minutes of delays, timeouts and long polls take no time; no [RebufferTransport]
// is needed around it.
//
// A request is served on the goroutine that makes it. If its context ends, the server sees its caller leave, as over a socket, and
// RoundTrip fails with the context's error. Where a [Fault] cuts the connection, RoundTrip fails with ECONNRESET.
func (s *Server) Transport() http.RoundTripper { return inProcess{s} }

type inProcess struct{ handler http.Handler }

// RoundTrip serves r and returns the answer.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	defer func() { _ = served.Body.Close() }() // as the contract of RoundTripper asks; it has been read
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	if cut := t.serve(answer, served); cut {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	if r.Context().Err() != nil { // the caller had left before the answer came
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", answer.status, http.StatusText(answer.status)), StatusCode: answer.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()), Request: r,
	}, nil
}

// serve runs the handler, and tells whether it cut the connection.
func (t inProcess) serve(w http.ResponseWriter, r *http.Request) (cut bool) {
	defer func() {
		switch failure := recover(); failure {
		case nil:
		case http.ErrAbortHandler:
			cut = true
		default:
			panic(failure)
		}
	}()
	t.handler.ServeHTTP(w, r)
	return false
}

// answer collects what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
