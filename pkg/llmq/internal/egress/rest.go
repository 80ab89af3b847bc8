package egress

import (
	"sync/atomic"
	"time"
)

// trustIdle is how long a client may lie unused before its kept connections are given up.
// A frozen function's timers stand still, so [idleTimeout] closes nothing while it is
// frozen, and what the other side, or a NAT between, has dropped meanwhile looks alive
// until it is written to: then the call fails, and whether it was taken can't be known.
const trustIdle = 20 * time.Second

// lastUse is the wall clock at a client's last exchange, in nanoseconds since 1970; 0 is
// never. The monotonic clock would not do: it may stand still while a machine is frozen.
type lastUse struct{ at atomic.Int64 }

func (l *lastUse) note() { l.at.Store(time.Now().UnixNano()) }

// stale reports whether connections that were kept can't be trusted any more. A clock
// that was set back says nothing about them, so that is stale too.
func (l *lastUse) stale() bool {
	at := l.at.Load()
	if at == 0 {
		return false
	}
	gap := time.Duration(time.Now().UnixNano() - at)
	return gap > trustIdle || gap < 0
}
