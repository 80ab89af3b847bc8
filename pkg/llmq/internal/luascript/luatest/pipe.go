package luatest

import (
	"net"
	"os"
	"sync"
	"time"
)

// pumped makes an in-memory pipe take bytes both ways as a socket does, whether or not anybody reads
// them. On the bare pipe a pipeline larger than the server's read buffer is a deadlock: the client
// writes on while the server waits for its first answer to be read. And a server that tells something to
// a connection that lies idle would hold its lock until somebody listens, which stops a bubble.
type pumped struct {
	net.Conn
	kick    chan struct{} // capacity 1: something is pending
	arrived chan struct{} // capacity 1: something can be read
	closed  chan struct{}
	pumps   sync.WaitGroup
	once    sync.Once

	mu       sync.Mutex // guards all below
	pending  []byte     // to be written
	err      error      // of writing
	in       []byte     // read, and not yet asked for
	inErr    error      // of reading
	deadline time.Time  // of reads
	moved    chan struct{}
}

func newPumped(c net.Conn) *pumped {
	p := &pumped{
		Conn: c, kick: make(chan struct{}, 1), arrived: make(chan struct{}, 1), closed: make(chan struct{}), moved: make(chan struct{}),
	}
	p.pumps.Go(p.pumpOut)
	p.pumps.Go(p.pumpIn)
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
	signal(p.kick)
	return len(b), nil
}

func (p *pumped) pumpOut() {
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

// Read implements net.Conn, for one reader at a time.
func (p *pumped) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		if len(p.in) > 0 {
			n := copy(b, p.in)
			p.in = p.in[n:]
			p.mu.Unlock()
			return n, nil
		}
		err, deadline, moved := p.inErr, p.deadline, p.moved
		p.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if err := p.await(deadline, moved); err != nil {
			return 0, err
		}
	}
}

// await returns when there may be something to read, or another deadline.
func (p *pumped) await(deadline time.Time, moved <-chan struct{}) error {
	var due <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-p.arrived:
	case <-moved:
	case <-due:
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (p *pumped) pumpIn() {
	b := make([]byte, 4<<10)
	for {
		n, err := p.Conn.Read(b)
		p.mu.Lock()
		p.in, p.inErr = append(p.in, b[:n]...), err
		p.mu.Unlock()
		signal(p.arrived)
		if err != nil {
			return
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close implements net.Conn and waits for the pumps.
func (p *pumped) Close() error {
	p.once.Do(func() { close(p.closed) })
	err := p.Conn.Close()
	p.pumps.Wait()
	return err
}

// SetDeadline implements net.Conn. A write never blocks, so only reads have one.
func (p *pumped) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (p *pumped) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	close(p.moved)
	p.moved = make(chan struct{})
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *pumped) SetWriteDeadline(time.Time) error { return nil }
