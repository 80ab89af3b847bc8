package cassette

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// play makes a reply of a recording.
func play(req *http.Request, r *recording, timed bool) (*http.Response, error) {
	res := r.response
	if timed {
		if err := pause(req.Context(), res.wait); err != nil {
			return nil, err
		}
	}
	header := res.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	resp := &http.Response{
		Status: fmt.Sprintf("%d %s", res.status, http.StatusText(res.status)), StatusCode: res.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: res.length, Request: req,
		Body: &player{ctx: req.Context(), chunks: res.chunks, end: res.end, timed: timed},
	}
	if res.length >= 0 && res.end == complete && req.Method != http.MethodHead {
		resp.ContentLength = int64(len(res.joined())) // a file may have been changed by hand
	}
	if resp.ContentLength >= 0 {
		header.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	} else {
		resp.TransferEncoding = []string{"chunked"}
	}
	return resp, nil
}

var errClosed = errors.New("cassette: when this was recorded, the reply was read no further")

// player is a reply's body. As on the network, a Read gives a chunk at most.
type player struct {
	ctx    context.Context // a body's reads end with their request
	chunks []chunk
	rest   []byte // of the chunk that is being read
	end    ending
	timed  bool
	closed bool
}

// Read gives what came next when it was recorded.
func (p *player) Read(b []byte) (int, error) {
	if p.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	for len(p.rest) == 0 {
		if len(p.chunks) == 0 {
			return 0, p.over()
		}
		if p.timed {
			if err := pause(p.ctx, p.chunks[0].after); err != nil {
				return 0, err
			}
		}
		p.rest, p.chunks = p.chunks[0].body, p.chunks[1:]
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *player) over() error {
	switch p.end {
	case broken:
		return io.ErrUnexpectedEOF
	case closed:
		return errClosed
	case complete:
	}
	return io.EOF
}

// Close ends the reading.
func (p *player) Close() error {
	p.closed = true
	return nil
}

// pause waits, or says why it stopped.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
