package front

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// chunk is how much of a body is passed on at once, in bytes.
const chunk = 32 << 10

// stream runs the function and passes its reply on as it comes.
func (f *Front) stream(w http.ResponseWriter, r *http.Request, id string, event []byte, functions streamer) {
	// Not r's context: the client's leaving must not end the function, nor the reading of its reply.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), f.opts.Timeout)
	defer cancel()
	// The idle clock runs before the first byte, too.
	begin, begun := context.WithTimeout(ctx, f.opts.IdleTimeout)
	reply, err := functions.InvokeStream(begin, f.opts.Function, event)
	begun()
	if err != nil {
		f.fail(w, id, classify(err), err)
		return
	}
	late := newWatch(reply, f.opts.IdleTimeout)
	defer late.timer.Stop()
	stop := context.AfterFunc(ctx, late.expire)
	defer stop()
	defer func() { _ = reply.Close() }() // always nil; the function is not told

	if reply.ContentType != integrationResponse {
		f.fail(w, id, badReply, errors.New("reply is not of the streaming kind"))
		return
	}
	head, body, err := readPrelude(late)
	switch {
	case err != nil && late.over.Load():
		f.fail(w, id, timeout, err)
		return
	case err != nil && failed(err):
		f.fail(w, id, functionFailed, err)
		return
	case err != nil:
		f.fail(w, id, badReply, err)
		return
	}
	writeHeaders(w.Header(), head.Headers, head.MultiValueHeaders, head.Cookies)
	w.WriteHeader(head.StatusCode)
	if err := relay(w, body, late); err != nil {
		f.opts.Logger.Warn("stream cut", "request_id", id, "err", err)
		// The status is long gone. Only a connection that breaks tells the client that this is not all; net/http makes
		// it so for this panic, and does not log it.
		panic(http.ErrAbortHandler)
	}
}

// failed reports whether a reply broke off because its function did.
func failed(err error) bool {
	_, ok := errors.AsType[*lambda.FunctionError](err)
	return ok
}

// relay writes a body chunk by chunk, each flushed, the first of them perhaps empty so that the headers go out. It returns
// the reply's error. A client that has left is no error: the rest is dropped by the function's host.
func relay(w http.ResponseWriter, first []byte, rest io.Reader) error {
	flush := http.NewResponseController(w).Flush
	if len(first) > 0 {
		if _, err := w.Write(first); err != nil {
			return nil //nolint:nilerr // see above
		}
	}
	if err := flush(); err != nil {
		return nil //nolint:nilerr // see above
	}
	buf := make([]byte, chunk)
	for {
		n, err := rest.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil //nolint:nilerr // see above
			}
			if err := flush(); err != nil {
				return nil //nolint:nilerr // see above
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watch is a reply that is given up when nothing comes for too long.
type watch struct {
	reply *lambda.Stream
	idle  time.Duration
	timer *time.Timer
	over  atomic.Bool
}

func newWatch(reply *lambda.Stream, idle time.Duration) *watch {
	l := &watch{reply: reply, idle: idle}
	l.timer = time.AfterFunc(idle, l.expire)
	return l
}

// Read waits for the next chunk. Only this wait counts as idle, not the client's slowness.
func (l *watch) Read(p []byte) (int, error) {
	l.timer.Reset(l.idle)
	defer l.timer.Stop()
	return l.reply.Read(p)
}

// expire makes the Read that waits, or the next one, fail.
func (l *watch) expire() {
	l.over.Store(true)
	_ = l.reply.Close() // always nil
}
