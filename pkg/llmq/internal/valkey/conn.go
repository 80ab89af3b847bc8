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

// Trust is what the connections of a client share: which of them may be used again. The zero value trusts all. It is safe for
// concurrent use.
type Trust struct {
	deaths atomic.Int64 // connections that were found dead
	losses atomic.Int64 // times that Lose dropped all
	lost   atomic.Int64 // when it last did, in Unix seconds
}

// loseEvery is how far apart Lose drops connections, in seconds: what makes it be called may be what a caller stored, who would
// have a process dial all the time.
const loseEvery = 10

// Lose has no connection that was made before be used again. It is for a reply that belongs to another command: the connection that
// gave it gives each command the reply of the one before, and nobody can tell which it is. Within 10 s it does so once.
func (t *Trust) Lose() {
	now, was := time.Now().Unix(), t.lost.Load()
	if now-was >= loseEvery && t.lost.CompareAndSwap(was, now) {
		t.losses.Add(1)
	}
}

var (
	errStale = errors.New("another connection was found dead since this one was heard")
	errLost  = errors.New("a connection as old as this one gave a reply that was another's")
)

// conn is a connection that knows whether it was heard since the last death.
type conn struct {
	net.Conn
	trust  *Trust
	losses int64        // when it was made
	heard  atomic.Int64 // deaths at the last sign of life
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(c.trust.deaths.Load())
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
		c.trust.deaths.Add(1)
	}
}

// SyscallConn is what the pool asks before it hands a connection out; an error makes it drop it.
// Behind TLS it gives nothing to look at: what lies on the socket then is no reply.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.losses != c.trust.losses.Load() {
		return nil, errLost
	}
	if c.heard.Load() != c.trust.deaths.Load() {
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
func dialer(within time.Duration, secure *tls.Config, known *Trust) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{KeepAliveConfig: keepAlive}
	dial := plain.DialContext
	if secure != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		losses := known.losses.Load()
		made, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: made, trust: known, losses: losses}
		c.heard.Store(known.deaths.Load())
		return c, nil
	}
}
