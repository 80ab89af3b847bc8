// Package relay puts a link that can fail between a program and a server of its own
// machine: one line of a test cuts it, hangs it, slows it or refuses it. It passes bytes
// and knows nothing of what they mean, so TLS, HTTP and RESP all pass.
//
// A relay stands before one server, and each of a server's clients may have one of its
// own: what is to fail alone needs a relay alone.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Counts are what happened to a relay since it was made.
type Counts struct {
	Accepted int64 // connections that were passed on
	Refused  int64 // connections that were not, for Refuse or because the server could not be dialled
	Cut      int64 // connections that were reset, by Cut or by use after Lapse
	Open     int   // connections at this moment
	Up       int64 // bytes passed to the server
	Down     int64 // bytes passed to the clients
}

// Relay is a TCP relay on 127.0.0.1. All its methods are safe for concurrent use, and
// each of the faults holds until Resume.
type Relay struct {
	target string
	ln     net.Listener
	unbind func() bool    // forgets the context
	tasks  sync.WaitGroup // accept loop, links and their copies

	mu      sync.Mutex // guards what follows
	links   map[*link]struct{}
	closed  bool
	refuse  bool
	delay   time.Duration
	flowing chan struct{} // closed while bytes may pass
	counts  Counts
}

// New returns a relay to target, an address host:port, on any free port of 127.0.0.1.
// It ends when ctx does; Close ends it too, and waits.
func New(ctx context.Context, target string) (*Relay, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", target, err)
	}
	r := &Relay{target: target, ln: ln, links: map[*link]struct{}{}, flowing: make(chan struct{})}
	close(r.flowing)
	r.tasks.Go(r.accept)
	r.unbind = context.AfterFunc(ctx, r.shut)
	return r, nil
}

// Addr is where clients dial instead of the server, as host:port.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Cut resets every connection there is, in both directions: each side sees "connection
// reset by peer" at its next use. New ones pass.
func (r *Relay) Cut() {
	r.mu.Lock()
	links := r.take()
	r.counts.Cut += int64(len(links))
	r.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
}

// Hang stops the flow of bytes without a sign of it, as a dead route does. New
// connections are accepted, and are as silent.
func (r *Relay) Hang() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(r.flowing) {
		r.flowing = make(chan struct{})
	}
}

// Lapse makes the connections that there are look alive until their client next sends
// something, and resets them then. So a client finds its pooled connections after a
// freeze, when the server has closed them meanwhile and its word of that was lost. New ones
// pass.
func (r *Relay) Lapse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.lapsed = true
	}
}

// Strand makes the connections that there are silent for ever, as a NAT or a load balancer
// does that has forgotten them. New ones pass, and Resume does not bring the old ones back.
func (r *Relay) Strand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.stranded = true
	}
}

// Delay makes every chunk, of at most 32 KB, wait for d before it is passed on, in each
// direction. A request that fits a chunk thus takes 2d longer. 0 is no delay.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = max(0, d)
}

// Refuse resets every new connection. Those that there are stay; Cut ends them.
func (r *Relay) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = true
}

// Resume ends Hang, Delay and Refuse. What was held back by Hang is passed on.
func (r *Relay) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse, r.delay = false, 0
	if !isClosed(r.flowing) {
		close(r.flowing)
	}
}

// Counts returns what happened so far.
func (r *Relay) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Open = len(r.links)
	return c
}

// Close ends the relay and every connection, and returns when nothing of it is left.
// It is idempotent.
func (r *Relay) Close() {
	r.unbind()
	r.shut()
	r.tasks.Wait()
}

func (r *Relay) shut() {
	r.mu.Lock()
	r.closed = true
	links := r.take()
	r.mu.Unlock()
	_ = r.ln.Close() // it may be closed already, which is what was wanted
	for _, l := range links {
		l.reset()
	}
}

// take forgets all links and returns them. The caller holds r.mu.
func (r *Relay) take() []*link {
	links := make([]*link, 0, len(r.links))
	for l := range r.links {
		links = append(links, l)
	}
	clear(r.links)
	return links
}

func (r *Relay) accept() {
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			return // closed
		}
		r.mu.Lock()
		l := &link{relay: r, client: conn, over: make(chan struct{})}
		pass := !r.closed && !r.refuse
		if pass {
			r.links[l] = struct{}{}
			r.tasks.Go(l.run) // under the lock: Close waits only after it has set closed
		} else {
			r.counts.Refused++
		}
		r.mu.Unlock()
		if !pass {
			abort(conn)
		}
	}
}

// pace is what a link's next chunk has to wait for: the flow, and a delay. A nil flow never
// comes.
func (r *Relay) pace(l *link) (flowing <-chan struct{}, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.stranded {
		return nil, 0
	}
	return r.flowing, r.delay
}

// link is one connection of a client with its connection to the server.
type link struct {
	relay  *Relay
	client net.Conn
	over   chan struct{} // closed by the first reset
	once   sync.Once

	stranded, lapsed bool // guarded by relay.mu

	mu     sync.Mutex // guards server
	server net.Conn   // nil until it is dialled
}

func (l *link) run() {
	defer l.forget()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // a reset ends the dialling too
		select {
		case <-l.over:
			cancel()
		case <-stop:
		}
	})
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", l.relay.target)
	close(stop)
	watch.Wait()
	r := l.relay
	r.mu.Lock()
	if err != nil {
		r.counts.Refused++
	} else {
		r.counts.Accepted++
	}
	r.mu.Unlock()
	if err != nil {
		abort(l.client)
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	if isClosed(l.over) { // the reset may have come before there was a server to reset
		abort(server)
	}
	var copies sync.WaitGroup
	copies.Go(func() { l.copy(server, l.client, &r.counts.Up, l.lapse) })
	copies.Go(func() { l.copy(l.client, server, &r.counts.Down, func() bool { return false }) })
	copies.Wait()
	_, _ = l.client.Close(), server.Close() // they may be reset already
}

// copy passes on what comes from src until its end, and then that end. An error of
// either side, or a chunk that meets a lapsed connection, resets both: a client must not
// take a broken reply for a short one.
func (l *link) copy(dst, src net.Conn, count *int64, lapsed func() bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !l.hold() {
				return
			}
			if lapsed() {
				l.reset()
				return
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				l.reset()
				return
			}
			l.relay.mu.Lock()
			*count += int64(n)
			l.relay.mu.Unlock()
		}
		switch {
		case errors.Is(err, io.EOF):
			if l.hold() {
				_ = dst.(*net.TCPConn).CloseWrite() // the other side may be gone
			}
			return
		case err != nil:
			l.reset()
			return
		}
	}
}

// hold waits for as long as the relay's faults ask; false when the link is over.
func (l *link) hold() bool {
	flowing, delay := l.relay.pace(l)
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.over:
			return false
		}
		flowing, _ = l.relay.pace(l) // it may hang by now
	}
	select {
	case <-flowing:
		return !isClosed(l.over)
	case <-l.over:
		return false
	}
}

// lapse says whether the client finds its connection lapsed.
func (l *link) lapse() bool {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	if l.lapsed {
		l.relay.counts.Cut++
	}
	return l.lapsed
}

func (l *link) reset() {
	l.once.Do(func() { close(l.over) })
	abort(l.client)
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	if server != nil {
		abort(server)
	}
}

func (l *link) forget() {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	delete(l.relay.links, l)
}

// abort closes with a reset, whatever is still unread or unsent.
func abort(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0) // it may be closed already
	_ = conn.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
