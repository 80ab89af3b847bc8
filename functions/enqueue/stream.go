package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
)

// stream runs h on r and returns once its status and headers are fixed; the body
// follows as h writes it. The response owns the goroutine that runs h: it has ended
// when the body has been read to its end or closed, and told was called last of all.
func stream(ctx context.Context, h http.Handler, r *http.Request, told func()) *events.APIGatewayProxyStreamingResponse {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	w := &streamWriter{header: http.Header{}, head: make(chan struct{}), body: pw}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer told()
		defer cancel()
		_ = pw.CloseWithError(w.run(h, r.WithContext(ctx))) //nolint:contextcheck // the request carries ctx; it never fails
	}()
	<-w.head
	res := &events.APIGatewayProxyStreamingResponse{
		StatusCode: w.status, Headers: map[string]string{}, MultiValueHeaders: map[string][]string{},
		Body: &streamBody{PipeReader: pr, cancel: cancel, done: done},
	}
	for name, values := range w.sent {
		switch {
		case name == "Content-Length": // the stream's framing is the gateway's affair
		case len(values) == 1:
			res.Headers[name] = values[0]
		default:
			res.MultiValueHeaders[name] = values
		}
	}
	return res
}

// streamWriter is the http.ResponseWriter of one response.
type streamWriter struct {
	header http.Header
	body   *io.PipeWriter

	// Written before head is closed, read after it.
	head   chan struct{}
	sent   http.Header // what header was when the status went out
	status int
}

var _ http.Flusher = (*streamWriter)(nil)

// run serves one request to its end. Its error cuts the body off, so that a stream
// that broke never ends like one that is complete.
func (w *streamWriter) run(h http.Handler, r *http.Request) (err error) {
	defer w.WriteHeader(http.StatusOK) // for a handler that wrote nothing
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		slog.ErrorContext(r.Context(), "panic in the handler", "error", panicked(v).Error(), "stack", string(debug.Stack()))
		if w.status != 0 {
			err = panicked(v)
			return
		}
		w.header = http.Header{}
		httpapi.WriteError(w, r.URL.EscapedPath(), llmq.Errorf(llmq.CodeInternal, "an internal error ended the request"))
	}()
	h.ServeHTTP(w, r)
	return nil
}

func (w *streamWriter) Header() http.Header { return w.header }

// WriteHeader fixes the status and the headers. Only the first call counts.
func (w *streamWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status, w.sent = status, w.header.Clone()
	close(w.head)
}

// Write waits until the bytes have been taken by whoever reads the response.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush does nothing: every write is passed on at once.
func (w *streamWriter) Flush() { w.WriteHeader(http.StatusOK) }

// streamBody is the reading end, which waits for the writing one.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   <-chan struct{}
}

// Read returns io.EOF only after the goroutine that wrote has ended.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	if err != nil {
		<-b.done
	}
	return n, err
}

// Close tells the handler that nobody reads on, and waits for its end.
func (b *streamBody) Close() error {
	err := b.PipeReader.Close()
	b.cancel()
	<-b.done
	return err
}
