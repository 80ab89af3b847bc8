package egress

import (
	"fmt"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT (RFC 5482), which package syscall names on some
// architectures only.
const tcpUserTimeout = 0x12

// limitSilence has the kernel give a connection up whose data is not acknowledged for d. By
// default that takes a quarter of an hour. It also cuts a peer that takes no more of a
// request for d: such a call was never whole.
func limitSilence(c syscall.RawConn, d time.Duration) error {
	var err error
	if ctrlErr := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
	}); ctrlErr != nil {
		err = ctrlErr
	}
	if err != nil {
		return fmt.Errorf("limit how long a connection may be silent: %w", err)
	}
	return nil
}
