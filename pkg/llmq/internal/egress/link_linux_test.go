package egress

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// A peer whose kernel takes no more packets is given up long before ReadTimeout.
func TestDo_DeadLinkIsFoundBeforeTheCallsEnd(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	n := local()
	n.ReadTimeout = time.Minute
	url := "http://" + ln.Addr().String()
	c := open(t, url, n, hooks{silence: 500 * time.Millisecond})
	began := time.Now()
	// More than the buffers hold of a connection that nobody reads.
	_, err = c.Do(post(t, url, strings.Repeat("x", 32<<20)))
	want(t, err, provider.Retryable, llmq.CodeProviderError)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("found after %v", took)
	}
}

// The kernel is asked to find dead links: by data that is not acknowledged, and by
// keep-alives where none is on its way.
func TestDial_KernelWatchesTheLink(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	conn, err := dialer(time.Second, guard{loopback: true}, hooks{}).DialContext(t.Context(), "tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ level, option, want int }{
		"keep-alive":                           {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"first, seconds":                       {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 5},
		"then every, seconds":                  {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 2},
		"count":                                {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 5},
		"unacknowledged data, in milliseconds": {syscall.IPPROTO_TCP, tcpUserTimeout, 15_000},
	} {
		var got int
		var optErr error
		if err := raw.Control(func(fd uintptr) { got, optErr = syscall.GetsockoptInt(int(fd), tt.level, tt.option) }); err != nil || optErr != nil {
			t.Fatal(err, optErr)
		}
		if got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
