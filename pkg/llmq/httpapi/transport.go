package httpapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Transport is a door without a connection: what an HTTP client sends through it is served by a handler of the same
// process. With it an unchanged OpenAI or Bedrock client of a Go program calls models through the queue (FEATURES A12).
//
// Hosts and credentials of requests mean nothing to it. Their paths do: those that the door doesn't serve get its 404,
// which says what it serves. Answers are the door's, errors and headers too. All state is the handler's and what is
// behind it, so that each call is routed as things are when it is made.
//
// Of a request's context, its user and session count ([llmq.WithUser]) where no header names them, and its deadline,
// where that is earlier than the call's own and no header asks for another: nothing goes on that nobody waits for. The
// end of the context ends the wait, with the context's error. So does closing a body before its end.
type Transport struct{ door *Handler }

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport serves requests by a handler, best by one that is its program's own ([Deps.Program]).
func NewTransport(h *Handler) *Transport { return &Transport{door: h} }

// RoundTrip implements [http.RoundTripper]. When it fails, or the answer's body is closed, nothing of it runs any more.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	r := req.Clone(ctx)
	if r.Body == nil {
		r.Body = http.NoBody
	}
	t.adopt(r)
	body, in := io.Pipe()
	a := &pipedAnswer{header: http.Header{}, in: in, begun: make(chan struct{})}
	served := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) }) // a reader must not wait for what is not read on
	go func() {
		defer close(served)
		t.door.ServeHTTP(a, r)
		_ = r.Body.Close()               // all of it that counts was read
		_ = in.CloseWithError(ctx.Err()) // says that the answer is whole, unless its caller had gone; then it doesn't look so
	}()
	select {
	case <-a.begun:
	case <-served:
	}
	if err := ctx.Err(); err != nil { // as of a connection: whatever it would have been, nobody waits for it
		cancel()
		<-served
		return nil, err
	}
	return &http.Response{
		Status: strconv.Itoa(a.status) + " " + http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, ContentLength: a.length(), Request: req,
		Body: &pipedBody{PipeReader: body, leave: func() { stop(); cancel() }, ended: served},
	}, nil
}

// adopt tells the door what a request's context says.
func (t *Transport) adopt(r *http.Request) {
	for name, value := range map[string]string{hdrUser: llmq.UserFrom(r.Context()), hdrSession: llmq.SessionFrom(r.Context())} {
		if value != "" && r.Header.Get(name) == "" {
			r.Header.Set(name, value)
		}
	}
	end, bounded := r.Context().Deadline()
	if !bounded || r.Header.Get(hdrTimeout) != "" || r.Header.Get(hdrDeadline) != "" {
		return
	}
	lane, err := llmq.ParseLane(r.Header.Get(hdrLane)) // an unknown one is for the door to refuse
	if now := time.Now(); err == nil && end.After(now) && end.Before(now.Add(t.door.cfg.Timeouts[lane].Default)) {
		r.Header.Set(hdrDeadline, end.UTC().Format(time.RFC3339Nano))
	}
}

// pipedAnswer is the door's way to write an answer that is read while it is written.
type pipedAnswer struct {
	header http.Header
	in     *io.PipeWriter
	begun  chan struct{} // closed when status and sent are set, which nobody changes afterwards
	status int
	sent   http.Header
}

var _ http.Flusher = (*pipedAnswer)(nil)

func (a *pipedAnswer) Header() http.Header { return a.header }

func (a *pipedAnswer) WriteHeader(status int) {
	if a.sent == nil {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}

func (a *pipedAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.in.Write(p)
}

// Flush implements [http.Flusher]: what was written has been read.
func (a *pipedAnswer) Flush() {}

// length is what the answer's head tells; -1 is unknown.
func (a *pipedAnswer) length() int64 {
	n, err := strconv.ParseInt(a.sent.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// pipedBody is the answer's body at its reader.
type pipedBody struct {
	*io.PipeReader
	leave func()
	ended <-chan struct{}
}

// Close ends the door's work on the answer. It is told that its caller has gone before a write of it fails: else it would see a
// connection that broke, which cancels nothing.
func (b *pipedBody) Close() error {
	b.leave()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}
