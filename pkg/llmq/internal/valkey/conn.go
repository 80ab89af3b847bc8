package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A process that was frozen may find that all its pooled connections have died, and that nobody has
// told it: each dies by its next use. The client library repeats a command once, but on
// the next pooled connection, which is as dead. So the connections of a client share what they
// learn: once one was found dead, those that were not heard since are not used again, and
// the repeat dials.

// deaths counts the connections of a client that were found dead.
type deaths struct{ atomic.Int64 }

var errStale = errors.New("another connection was found dead since this one was heard")

// conn is a connection that knows whether it was heard since the last death.
type conn struct {
	net.Conn
	deaths *deaths
	heard  atomic.Int64 // deaths at the last sign of life
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(c.deaths.Load())
	}
	c.note(err)
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.note(err)
	return n, err
}

// note takes down what an error says of the connection. A time-out says nothing: the server may be
// slow.
func (c *conn) note(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		c.deaths.Add(1)
	}
}

// SyscallConn is what the pool asks before it hands a connection out; an error makes it drop it.
// Behind TLS it gives nothing to look at: what lies on the socket then is no reply.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.heard.Load() != c.deaths.Load() {
		return nil, errStale
	}
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is a socket that can't be looked at.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }

// keepAlive finds a peer that vanished while nothing is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3} //nolint:gochecknoglobals // never changed

// dialer connects within the given time, handshake included.
func dialer(within time.Duration, secure *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	known := &deaths{}
	plain := &net.Dialer{KeepAliveConfig: keepAlive}
	dial := plain.DialContext
	if secure != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		made, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: made, deaths: known}
		c.heard.Store(known.Load())
		return c, nil
	}
}
