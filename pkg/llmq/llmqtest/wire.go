package llmqtest

import (
	"bufio"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Wire is a link to a state store that understands what passes: it counts round trips as they are
// on the wire, and can hold back or lose replies. It listens on 127.0.0.1.
//
// In cluster mode a client goes where CLUSTER SLOTS sends it, so the server must announce
// the wire's port: [Wire.Port] for CONFIG SET cluster-announce-port.
type Wire struct {
	target string
	ln     net.Listener
	gone   chan struct{} // closed by close
	tasks  sync.WaitGroup

	mu     sync.Mutex // guards all below
	closed bool
	conns  map[*wireConn]struct{}
	made   int
	delay  time.Duration
	lose   string
	held   chan struct{} // closed when what is published may pass; nil when it may
	trips  []Trip
}

// Trip is one round trip: what a client sent on one connection until every reply to it was there.
type Trip struct {
	Conn         int      // number of the connection, from 1
	Commands     []string // lower case
	Begun, Ended time.Time
}

// NewWire is a link to a server at target, host:port. It ends with the test.
func NewWire(t testing.TB, target string) *Wire {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("wire to %s: %v", target, err)
	}
	w := &Wire{target: target, ln: ln, conns: map[*wireConn]struct{}{}, gone: make(chan struct{})}
	w.tasks.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// Addr is where clients dial instead of the server.
func (w *Wire) Addr() string { return w.ln.Addr().String() }

// Port is the port of Addr.
func (w *Wire) Port() int { return w.ln.Addr().(*net.TCPAddr).Port }

// Delay makes every reply come no sooner than d after its round trip began.
func (w *Wire) Delay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// Lose ends the connection of the next round trip that holds the command, once the server
// has run it and before its client hears of that.
func (w *Wire) Lose(command string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = command
}

// HoldMessages keeps back what is published until release is called, and then passes it on at once.
func (w *Wire) HoldMessages() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	w.held = held
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.held == held {
			w.held = nil
		}
		close(held)
	}
}

// Trips lists the round trips that have ended since it was last asked, in the order of their ends.
// What keeps a connection going (HELLO, AUTH, PING, CLUSTER and the like) is left out.
func (w *Wire) Trips() []Trip {
	w.mu.Lock()
	defer w.mu.Unlock()
	trips := slices.DeleteFunc(w.trips, func(t Trip) bool {
		return !slices.ContainsFunc(t.Commands, func(c string) bool {
			return !slices.Contains([]string{"hello", "auth", "client", "ping", "cluster", "command", "readonly", "select"}, c)
		})
	})
	w.trips = nil
	return trips
}

// Conns is how many connections there are now, and how many were made so far.
func (w *Wire) Conns() (now, made int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns), w.made
}

// Chain is the number of trips that can't have been under way at the same time: the longest row of
// them of which each began after the one before had ended.
func Chain(trips []Trip) int {
	n, end := 0, time.Time{}
	for _, t := range slices.SortedFunc(slices.Values(trips), func(a, b Trip) int { return a.Ended.Compare(b.Ended) }) {
		if !t.Begun.Before(end) {
			n, end = n+1, t.Ended
		}
	}
	return n
}

func (w *Wire) close() {
	w.mu.Lock()
	w.closed = true
	for c := range w.conns {
		c.end()
	}
	w.mu.Unlock()
	close(w.gone)
	_ = w.ln.Close() // nothing is left to be told
	w.tasks.Wait()
}

func (w *Wire) accept() {
	for {
		client, err := w.ln.Accept()
		if err != nil {
			return // closed
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.target)
		if err != nil {
			_ = client.Close() // as the server refused it
			continue
		}
		c := &wireConn{wire: w, client: client, server: server}
		w.mu.Lock()
		if w.closed {
			c.end()
		}
		w.made++
		c.number = w.made
		w.conns[c] = struct{}{}
		w.tasks.Go(c.run) // under the lock: close waits only after it has set closed
		w.mu.Unlock()
	}
}

// wireConn is one connection of a client with its connection to the server.
type wireConn struct {
	wire           *Wire
	number         int
	client, server net.Conn

	trip   *Trip // under way, else nil; guarded by wire.mu
	open   int   // replies that it lacks; guarded by wire.mu
	doomed bool  // its client is to hear nothing of it; guarded by wire.mu
}

func (c *wireConn) run() {
	var both sync.WaitGroup
	both.Go(func() { defer c.end(); c.requests() })
	both.Go(func() { defer c.end(); c.replies() })
	both.Wait()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
}

// end closes both sides. It is idempotent.
func (c *wireConn) end() { _, _ = c.client.Close(), c.server.Close() }

// requests passes commands on, all that are there in one write.
func (c *wireConn) requests() {
	in := bufio.NewReaderSize(c.client, 1<<20)
	for {
		var raw []byte
		for first := true; first || in.Buffered() > 0; first = false {
			v, err := readRESP(in, &raw)
			if err != nil || len(v.words) == 0 {
				return
			}
			c.asked(v.words[0])
		}
		if _, err := c.server.Write(raw); err != nil {
			return
		}
	}
}

func (c *wireConn) asked(command string) {
	w := c.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.trip == nil {
		c.trip = &Trip{Conn: c.number, Begun: time.Now()}
	}
	c.trip.Commands = append(c.trip.Commands, command)
	c.open++
	if command == w.lose {
		c.doomed, w.lose = true, ""
	}
}

// replies passes replies on, each when it may.
func (c *wireConn) replies() {
	in := bufio.NewReaderSize(c.server, 1<<20)
	for {
		var raw []byte
		answers := 0
		for first := true; first || in.Buffered() > 0; first = false {
			v, err := readRESP(in, &raw)
			if err != nil {
				return
			}
			if v.isReply() {
				answers++
			}
		}
		if answers > 0 && !c.answered(answers) || answers == 0 && !c.published() {
			return
		}
		if _, err := c.client.Write(raw); err != nil {
			return
		}
	}
}

// published waits until what was published may pass. It returns false when the wire has ended.
func (c *wireConn) published() bool {
	c.wire.mu.Lock()
	held := c.wire.held
	c.wire.mu.Unlock()
	if held == nil {
		return true
	}
	select {
	case <-held:
		return true
	case <-c.wire.gone:
		return false
	}
}

// answered waits until the replies may pass, and notes them. It returns false when they may not.
func (c *wireConn) answered(n int) bool {
	w := c.wire
	w.mu.Lock()
	hold := time.Duration(0)
	if c.trip != nil {
		hold = w.delay - time.Since(c.trip.Begun)
	}
	w.mu.Unlock()
	if hold > 0 {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.gone:
			return false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.open -= n
	if c.open > 0 || c.trip == nil {
		return !c.doomed
	}
	c.trip.Ended = time.Now()
	w.trips = append(w.trips, *c.trip)
	c.trip = nil
	return !c.doomed
}
