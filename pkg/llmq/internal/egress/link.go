package egress

import (
	"cmp"
	"context"
	"net"
	"syscall"
	"time"
)

// silence is how long a peer's machine may leave our packets unanswered. Its kernel answers
// keep-alives however long its model thinks, so this cuts dead links and no slow call.
const silence = 15 * time.Second

// Keep-alives find a link whose packets vanish while nothing is on its way: the first after 5 s,
// then every 2 s, so that several in a row must be lost before a call is given up for it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5} //nolint:gochecknoglobals // a constant that Go can't write as one

// dialer returns what a transport dials with: connections to addresses that g permits, whose dead
// links are found.
func dialer(connect time.Duration, g guard, h hooks) *net.Dialer {
	return &net.Dialer{
		Timeout: connect, Resolver: h.resolver, KeepAliveConfig: keepAlive,
		ControlContext: func(ctx context.Context, network, address string, c syscall.RawConn) error {
			if err := g.control(ctx, network, address, c); err != nil {
				return err
			}
			return limitSilence(c, cmp.Or(h.silence, silence))
		},
	}
}
