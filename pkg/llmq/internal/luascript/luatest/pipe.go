package luatest

import (
	"net"
	"sync"
	"time"
)

// pumped makes writes to an in-memory pipe asynchronous, as those to a socket are. On the
// bare pipe a pipeline larger than the server's read buffer is a deadlock: the client
// writes on while the server waits for its first answer to be read.
type pumped struct {
	net.Conn
	kick   chan struct{} // capacity 1: something is pending
	closed chan struct{}
	done   chan struct{} // the pump has ended
	once   sync.Once

	mu      sync.Mutex // guards all below
	pending []byte
	err     error
}

func newPumped(c net.Conn) *pumped {
	p := &pumped{Conn: c, kick: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.pump()
	}()
	return p
}

// Write implements net.Conn and returns at once.
func (p *pumped) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.pending = append(p.pending, b...)
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *pumped) pump() {
	for {
		select {
		case <-p.closed:
			return
		case <-p.kick:
		}
		p.mu.Lock()
		b := p.pending
		p.pending = nil
		p.mu.Unlock()
		if _, err := p.Conn.Write(b); err != nil {
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
			return
		}
	}
}

// Close implements net.Conn and waits for the pump.
func (p *pumped) Close() error {
	p.once.Do(func() { close(p.closed) })
	err := p.Conn.Close()
	<-p.done
	return err
}

// SetDeadline implements net.Conn. A write never blocks, so only reads have one.
func (p *pumped) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (p *pumped) SetWriteDeadline(time.Time) error { return nil }
