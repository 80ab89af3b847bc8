package server

import (
	"context"
	"net"
	"net/http"
	"time"
)

// call is a call on its way through the server.
type call struct {
	id      string
	record  Call          // the goroutine that serves the call changes it, and after begin only Outcome, Status and Duration
	gauges  []*Gauge      // where it counts as in flight, between begin and end; guarded by state.mu
	release chan struct{} // closed by Release; nil if the call does not hang; set by begin
}

// wait lets the time of the plan pass, and says how the call ends.
func (s *Server) wait(ctx context.Context, c *call, p plan) Outcome {
	if c.release != nil {
		select {
		case <-c.release:
		case <-ctx.Done():
			return Aborted
		case <-s.closed:
			return Reset
		}
	}
	if p.delay > 0 {
		timer := time.NewTimer(p.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Aborted
		case <-s.closed:
			return Reset
		}
	}
	switch {
	case ctx.Err() != nil: // a client that left at the last moment is not told apart by chance
		return Aborted
	case p.programmed.Reset:
		return Reset
	default:
		return Replied
	}
}

// dropConnection ends the response without a byte. Where it can, it makes the client see a
// connection reset rather than a clean end of file.
func dropConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2 or no connection at all: the server resets the stream
		panic(http.ErrAbortHandler)
	}
	under := conn
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		under = wrapped.NetConn() // below TLS, which would say good-bye
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // close sends RST; failing that, FIN does
	}
	_ = under.Close()
}
