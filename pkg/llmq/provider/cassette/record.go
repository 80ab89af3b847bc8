package cassette

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"
)

// readSize is how much of a reply is read at once, in bytes. It is the tape's own, so that a
// reader's small buffer does not cut a chunk in pieces.
const readSize = 64 << 10

// recorder passes a reply on and keeps it. The file is on the disk before the reader learns of the
// reply's end.
type recorder struct {
	tape *Tape
	key  Key
	ctx  context.Context // the request's: who cancels it is not the provider
	head bool
	src  io.ReadCloser

	// Of Read alone.
	buf   []byte // read from src and not yet passed on
	err   error  // what src said after buf
	space []byte

	mu    sync.Mutex // guards what follows, since Close may be called while Read waits
	r     *recording // whose it is once ended is set
	size  int
	since time.Time // of the last chunk
	ended bool
}

// record begins to keep a reply.
func (t *Tape) record(req *http.Request, resp *http.Response, asked request, key Key, wait time.Duration) io.ReadCloser {
	return &recorder{
		tape: t, key: key, ctx: req.Context(), head: req.Method == http.MethodHead, src: resp.Body, since: time.Now(),
		r: &recording{request: asked, response: response{
			status: resp.StatusCode, header: resp.Header.Clone(), wait: wait, length: resp.ContentLength,
		}},
	}
}

// Read passes on what came.
func (c *recorder) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.buf) == 0 && c.err == nil {
		if c.space == nil {
			c.space = make([]byte, readSize)
		}
		n, err := c.src.Read(c.space)
		c.buf, c.err = c.space[:n], err
		c.keep(c.buf)
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	if len(c.buf) > 0 || c.err == nil {
		return n, nil
	}
	switch {
	case errors.Is(c.err, io.EOF):
		c.end(complete)
	case c.ctx.Err() == nil:
		c.end(broken)
	default:
		c.end("") // the caller ended it, so this is not how the provider answers
	}
	return n, c.err
}

// Close ends a reply that was not read to its end.
func (c *recorder) Close() error {
	err := c.src.Close()
	c.mu.Lock()
	all := c.head || c.r.response.length == int64(c.size)
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		c.end("")
	case all:
		c.end(complete) // nobody looked for the end
	default:
		c.end(closed)
	}
	return err
}

func (c *recorder) keep(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size += len(b)
	if len(b) == 0 || c.size > MaxBodyBytes || c.ended {
		return
	}
	now := time.Now()
	c.r.response.chunks = append(c.r.response.chunks, chunk{after: now.Sub(c.since), body: slices.Clone(b)})
	c.since = now
}

// end writes the recording, unless e is "". Only the first call counts.
func (c *recorder) end(e ending) {
	c.mu.Lock()
	first := !c.ended
	c.ended = true
	c.mu.Unlock()
	if !first || e == "" {
		return
	}
	c.r.response.end = e
	err := c.write()
	if err != nil {
		secrets := slices.Concat(c.tape.opts.Secrets, c.r.request.secrets)
		if Scan([]byte(err.Error()), secrets...) != nil {
			err = errors.New("refused: the cause's text holds a secret")
		}
		err = fmt.Errorf("cassette: %s was not recorded: %w", shown(c.r.request, secrets), err)
		c.tape.opts.Logger.Error("exchange not recorded", "error", err)
	}
	c.tape.recorded(c.key, c.r, err)
}

func (c *recorder) write() error {
	res := &c.r.response
	switch {
	case c.size > MaxBodyBytes:
		return fmt.Errorf("the reply is larger than %d bytes", MaxBodyBytes)
	case len(res.chunks) > maxChunks:
		return fmt.Errorf("the reply has more than %d chunks", maxChunks)
	case res.status < 200:
		return fmt.Errorf("status %d is no final one", res.status)
	}
	whole := res.joined()
	plain, err := decoded(whole, res.header)
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	if len(plain) != len(whole) || len(plain) > 0 && &plain[0] != &whole[0] {
		res.chunks, res.length = []chunk{{after: total(res.chunks), body: plain}}, int64(len(plain))
	}
	if len(res.chunks) > 1 && !streams(res.header.Get("Content-Type")) {
		// How a document fell into packets means nothing, and would be another diff each time.
		res.chunks = []chunk{{after: total(res.chunks), body: res.joined()}}
	}
	return write(c.tape.opts.Dir, c.r, c.key, slices.Concat(c.tape.opts.Secrets, c.r.request.secrets), false)
}

func total(chunks []chunk) (d time.Duration) {
	for _, c := range chunks {
		d += c.after
	}
	return d
}

// streams reports whether a reply of this type comes in pieces that mean something.
func streams(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && slices.Contains([]string{"text/event-stream", "application/vnd.amazon.eventstream", "application/x-ndjson", "application/jsonl"}, media)
}
