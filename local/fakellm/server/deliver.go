package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"
)

// waited lets a call's hang pass, and then the time d, in which the model says up to so many
// tokens. If the call does not live to the end of them, it is over and waited returns false.
func (s *Server) waited(ctx context.Context, w http.ResponseWriter, c *call, p plan, d time.Duration, output int) bool {
	outcome := Outcome("")
	if p.reply.Hang {
		outcome = s.awaitRelease(ctx, c)
	}
	begun := time.Now()
	if outcome == "" {
		outcome = s.pause(ctx, d)
	}
	if outcome == "" {
		return true
	}
	if said := time.Since(begun) - p.first; p.perToken > 0 && said > 0 {
		c.record.OutputTokens = min(output, int(said/p.perToken))
	}
	s.finish(ctx, c, outcome)
	dropConnection(w)
	return false
}

// awaitRelease returns how the call ends; empty if it goes on.
func (s *Server) awaitRelease(ctx context.Context, c *call) Outcome {
	select {
	case <-c.release:
		return ""
	case <-ctx.Done():
		return Aborted
	case <-s.closed:
		return Reset
	}
}

// pause returns how the call ends; empty if it goes on.
func (s *Server) pause(ctx context.Context, d time.Duration) Outcome {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Aborted
		case <-s.closed:
			return Reset
		}
	}
	if ctx.Err() != nil { // a client that left at the last moment is not told apart by chance
		return Aborted
	}
	return ""
}

// deliver writes an answer, and logs the call before the last of it leaves.
func (s *Server) deliver(ctx context.Context, w http.ResponseWriter, c *call, p plan, d delivery) {
	c.record.Status = d.status
	outcome := p.reply.Fail.outcome()
	if d.slowHead {
		s.deliverSlowly(ctx, w, c, outcome, d)
		return
	}
	header := w.Header()
	for name, values := range d.header {
		header[name] = values
	}
	if !d.pieces {
		s.finish(ctx, c, outcome)
		w.WriteHeader(d.status)
		_, _ = w.Write(d.steps[0].data) // a client that left needs no answer
		return
	}
	w.WriteHeader(d.status)
	if ended := s.deliverPieces(ctx, w, c, p, d, outcome); ended != "" {
		s.finish(ctx, c, ended)
		dropConnection(w)
		return
	}
	switch d.ending {
	case endReset:
		dropConnection(w)
	case endClose:
		panic(http.ErrAbortHandler) // the server's way to close a connection in the middle of a body
	case endWell:
	}
}

// deliverPieces returns how the call ends if it does not go as planned; empty if it has been
// logged with its outcome.
func (s *Server) deliverPieces(ctx context.Context, w http.ResponseWriter, c *call, p plan, d delivery, outcome Outcome) (ended Outcome) {
	begun, said, logged := time.Now(), 0, false
	if d.stream {
		c.record.OutputTokens = 0 // so far
	}
	for i, e := range d.steps {
		if i == d.stallAt {
			_ = http.NewResponseController(w).Flush() // what fails here fails below
			if ended := s.awaitRelease(ctx, c); ended != "" {
				return ended
			}
			begun = begun.Add(time.Since(begun) - time.Duration(said)*p.perToken) // it speaks on where it stopped
		}
		said += e.tokens
		if due := time.Duration(said) * p.perToken; due > 0 {
			if ended := s.pause(ctx, due-time.Since(begun)); ended != "" {
				return ended
			}
		}
		c.record.Events++
		if d.stream {
			c.record.OutputTokens = said
		}
		if i == len(d.steps)-1 && d.ending == endWell {
			s.finish(ctx, c, outcome)
			logged = true
		}
		if ended := s.writePiece(ctx, w, d, e.bytes(time.Since(c.record.At))); ended != "" && !logged {
			return ended
		}
	}
	if !logged { // it ends badly, or without a piece
		_ = http.NewResponseController(w).Flush() // the head at least
		s.finish(ctx, c, outcome)
	}
	return ""
}

// writePiece returns how the call ends if its client has left or the server closes.
func (s *Server) writePiece(ctx context.Context, w http.ResponseWriter, d delivery, data []byte) (ended Outcome) {
	parts := [][]byte{data}
	if d.split {
		first, second := halves(data)
		parts = [][]byte{first, second}
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return Aborted
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return Aborted
		}
		if d.split {
			if ended := s.pause(ctx, d.pause); ended != "" {
				return ended
			}
		}
	}
	return ""
}

// deliverSlowly writes the head line by line, which only works on a connection of its own.
func (s *Server) deliverSlowly(ctx context.Context, w http.ResponseWriter, c *call, outcome Outcome, d delivery) {
	var body []byte
	for _, e := range d.steps {
		body = append(body, e.bytes(time.Since(c.record.At))...)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2, or no connection: the head comes late, but in one piece
		if ended := s.pause(ctx, d.pause*time.Duration(len(d.header)+1)); ended != "" {
			s.finish(ctx, c, ended)
			dropConnection(w)
			return
		}
		s.answer(ctx, w, c, outcome, reply{status: d.status, header: d.header, body: body})
		return
	}
	defer conn.Close() // what went wrong has been seen in writing
	for _, line := range d.head(len(body)) {
		if _, err := conn.Write(line); err != nil {
			s.finish(ctx, c, Aborted)
			return
		}
		if ended := s.pause(context.WithoutCancel(ctx), d.pause); ended != "" {
			s.finish(ctx, c, ended)
			return
		}
	}
	s.finish(ctx, c, outcome)
	_, _ = conn.Write(append([]byte("\r\n"), body...)) // a client that left needs no answer
}

// head is the status line and the headers, one by one.
func (d delivery) head(bodyBytes int) [][]byte {
	lines := [][]byte{fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", d.status, http.StatusText(d.status))}
	var headers bytes.Buffer
	h := d.header.Clone()
	h.Set("Content-Length", itoa(bodyBytes))
	h.Set("Connection", "close")
	_ = h.Write(&headers) // a buffer never fails
	for line := range bytes.Lines(headers.Bytes()) {
		lines = append(lines, slices.Clone(line))
	}
	return lines
}

// dropConnection ends the response without a further byte. Where it can, it makes the client see a
// connection reset rather than a clean end of file.
func dropConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2 or no connection at all: the server resets the stream
		panic(http.ErrAbortHandler)
	}
	under := conn
	for {
		wrapped, ok := under.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		under = wrapped.NetConn() // below TLS, which would say good-bye, and below a limiting listener
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // close sends RST; failing that, FIN does
	}
	_ = under.Close()
	_ = conn.Close() // what wraps it may hold more, such as a listener's slot
}
