package egress

import (
	"net/http"
	"sync/atomic"
	"time"
)

// trustIdle is how long a transport may lie unused before its kept connections are given
// up. A frozen function's timers stand still, so [idleTimeout] closes nothing while it is
// frozen, and what the other side, or a NAT between, has dropped meanwhile looks alive
// until it is written to: then the call fails, and whether it was taken can't be known.
const trustIdle = 20 * time.Second

// Rested is a transport that does not write to connections it has kept over a long rest,
// nor to those beside one that failed: what made one dead has often made them all so.
// Make it with [Rest]. It is safe for concurrent use.
type Rested struct {
	transport *http.Transport
	// last is the wall clock at the last exchange, in nanoseconds since 1970; 0 is never. The
	// monotonic clock would not do: it may stand still while a machine is frozen.
	last atomic.Int64
}

// Rest puts a Rested before a transport.
func Rest(t *http.Transport) *Rested { return &Rested{transport: t} }

// RoundTrip implements http.RoundTripper.
func (r *Rested) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.stale() {
		r.transport.CloseIdleConnections()
	}
	resp, err := r.transport.RoundTrip(req)
	r.last.Store(time.Now().UnixNano())
	if err != nil {
		r.transport.CloseIdleConnections()
	}
	return resp, err
}

// CloseIdleConnections closes the connections that are not in use.
func (r *Rested) CloseIdleConnections() { r.transport.CloseIdleConnections() }

// stale reports whether connections that were kept can't be trusted any more. A clock
// that was set back says nothing about them, so that is stale too.
func (r *Rested) stale() bool {
	last := r.last.Load()
	if last == 0 {
		return false
	}
	gap := time.Duration(time.Now().UnixNano() - last)
	return gap > trustIdle || gap < 0
}
