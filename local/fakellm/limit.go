package main

import (
	"net"
	"sync"
)

// limited accepts at most so many connections at a time; more wait in the system's backlog. Unlike
// netutil.LimitListener it lets the connection below be reached, without which the fake could not
// reset it.
type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	close  func() error
}

func limit(l net.Listener, conns int) *limited {
	closed := make(chan struct{})
	return &limited{
		Listener: l,
		slots:    make(chan struct{}, conns),
		closed:   closed,
		close: sync.OnceValue(func() error {
			close(closed)
			return l.Close()
		}),
	}
}

// Accept waits for a free slot, and then for a connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept, also where it waits for a slot. Connections stay open.
func (l *limited) Close() error { return l.close() }

// limitedConn gives its slot back when it is closed, the first time.
type limitedConn struct {
	net.Conn
	free func()
}

// Close closes the connection and frees its slot.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err
}

// NetConn is the connection below. Who closes that one must close this one as well.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
