package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// silence is how long a peer's machine may leave our packets unanswered. Its kernel answers
// keep-alives however long its model thinks, so this cuts dead links and no slow call.
const silence = 15 * time.Second

// Keep-alives find a link whose packets vanish while nothing is on its way: the first after 5 s,
// then every 2 s, so that several in a row must be lost before a call is given up for it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5} //nolint:gochecknoglobals // a constant that Go can't write as one

// How a connection is tried that nothing passed over for some time. Servers close theirs
// after 5 s at times, and who routes packets may have forgotten one; the answer to a first
// write is then a reset, one round trip later.
const (
	restTrusted = time.Second
	leastWait   = 2 * time.Millisecond // for connections so near that other delays are larger
	mostWait    = 250 * time.Millisecond
)

// link is a connection to a provider that, after a rest, writes half of what it was given,
// waits for a round trip, and then writes the other half. A peer that has no such
// connection any more resets it in between, and half of a TLS record or of the head of a
// request is nothing that anybody could act on: so that call may be made again.
type link struct {
	net.Conn
	trusted time.Duration // after so long a rest a write is tried
	wait    time.Duration // a round trip and a margin
	touched atomic.Int64  // wall clock at the last read or write that moved bytes, ns since 1970
	passed  atomic.Int64  // writes that went out whole, or are about to
	closing sync.Once
	closed  chan struct{}
}

func newLink(c net.Conn, roundTrip, trusted time.Duration) *link {
	l := &link{Conn: c, trusted: trusted, wait: min(max(2*roundTrip, leastWait), mostWait), closed: make(chan struct{})}
	l.touched.Store(time.Now().UnixNano())
	return l
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.touched.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write implements net.Conn. Bytes of a failed write are reported as written where they
// went out, so net/http by itself repeats nothing more than it would have.
func (l *link) Write(p []byte) (int, error) {
	first := 0
	if l.rested() && len(p) > 1 {
		n, err := l.Conn.Write(p[:len(p)/2])
		if err != nil {
			return n, err
		}
		first = n
		l.listen()
	}
	l.passed.Add(1)
	n, err := l.Conn.Write(p[first:])
	if err != nil {
		l.passed.Add(-1) // short of its end
	}
	l.touched.Store(time.Now().UnixNano())
	return first + n, err
}

// listen waits for what the other side may have to say against this connection. net/http
// reads all the while, and closes what was reset.
func (l *link) listen() {
	t := time.NewTimer(l.wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.closed:
	}
}

// rested goes by the wall clock, as the monotonic one may stand still while a machine is
// frozen; a clock that was set back says nothing, so that is a rest too.
func (l *link) rested() bool {
	gap := time.Duration(time.Now().UnixNano() - l.touched.Load())
	return gap > l.trusted || gap < 0
}

// Close implements net.Conn.
func (l *link) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// dial returns what a transport dials with: links to addresses that g permits.
func dial(d net.Dialer, g guard, h hooks) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := d
		var began atomic.Int64 // the last address tried; two families may be tried at once
		d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
			began.Store(time.Now().UnixNano())
			if err := g.control(ctx, network, address, c); err != nil {
				return err
			}
			return limitSilence(c, cmp.Or(h.silence, silence))
		}
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newLink(c, time.Duration(time.Now().UnixNano()-began.Load()), cmp.Or(h.trusted, restTrusted)), nil
	}
}

// again makes an exchange once more when its connection was a kept one, proved dead, and
// had not taken a whole write of the request: then nobody can have acted on it, and
// nothing is paid twice. What failed later is an error, since the call may have been taken.
type again struct{ rested *Rested }

// RoundTrip implements http.RoundTripper.
func (a again) RoundTrip(req *http.Request) (*http.Response, error) {
	w := watch{siblings: a.rested.CloseIdleConnections}
	resp, err := a.rested.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: w.got})))
	if err == nil || req.Context().Err() != nil || !w.untaken() {
		return resp, err
	}
	next := req.WithContext(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil, err
		}
		body, bodyErr := req.GetBody()
		if bodyErr != nil {
			return nil, err
		}
		next.Body = body
	}
	return a.rested.RoundTrip(next)
}

// watch notes which connection an exchange uses. net/http calls it in the goroutine of the
// exchange.
type watch struct {
	siblings func() // closes the connections that lie idle
	link     *link  // nil before there is a connection, and when it is a fresh one
	passed   int64
	times    int
}

func (w *watch) got(info httptrace.GotConnInfo) {
	if w.times++; w.times > 1 {
		w.siblings() // net/http goes from one dead one to the next
	}
	w.link = nil
	if !info.Reused && !info.WasIdle {
		return
	}
	c := info.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if l, ok := c.(*link); ok {
		w.link, w.passed = l, l.passed.Load()
	}
}

// untaken reports that the connection was a kept one and took nothing whole of this
// exchange. It is for after a failure, when net/http has closed the connection: no write
// can follow.
func (w *watch) untaken() bool { return w.link != nil && w.link.passed.Load() == w.passed }
