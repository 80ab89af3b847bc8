package valkey

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it gets, until it is told to hang up.
func echo(t *testing.T) (address string, hangUp func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	conns := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
			go func() { _, _ = io.Copy(c, c) }() // ends with its connection
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		close(conns)
		for c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String(), func() { _ = (<-conns).Close() }
}

func say(t *testing.T, c net.Conn) error {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

func trusted(t *testing.T, c net.Conn) bool {
	t.Helper()
	_, err := c.(syscall.Conn).SyscallConn()
	if err != nil && !errors.Is(err, errStale) {
		t.Errorf("syscall conn: %v", err)
	}
	return err == nil
}

// H30: a connection that was not heard since another was found dead is not used again; one that is heard is.
func TestDialer_OneDeathMakesTheOthersSuspect(t *testing.T) {
	t.Parallel()
	address, hangUp := echo(t)
	dial := dialer(5*time.Second, nil, &Trust{})
	open := func() net.Conn {
		c, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second, third := open(), open(), open()
	for _, c := range []net.Conn{first, second, third} {
		if err := say(t, c); err != nil || !trusted(t, c) {
			t.Fatalf("a good connection: %v, trusted %v", err, trusted(t, c))
		}
	}
	hangUp()
	if err := say(t, first); err == nil {
		t.Fatal("the dead one answers")
	}
	if trusted(t, second) || trusted(t, third) {
		t.Error("an old connection is trusted though another was found dead")
	}
	if !trusted(t, open()) {
		t.Error("a fresh one is not trusted")
	}
	if err := say(t, second); err != nil || !trusted(t, second) {
		t.Errorf("one that was heard since: %v, trusted %v", err, trusted(t, second))
	}
	if err := third.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatalf("deadline: %v", err)
	}
	if err := say(t, third); err == nil || !trusted(t, second) {
		t.Errorf("a time-out (%v) made another suspect", err)
	}
}

// Behind TLS the pool must not look at the socket.
func TestDialer_TLSIsOpaque(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos, config.MinVersion = "example.com", nil, tls.VersionTLS12
	c, err := dialer(5*time.Second, config, &Trust{})(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatalf("syscall conn: %v", err)
	}
	if err := raw.Read(func(uintptr) bool { t.Error("the socket was looked at"); return true }); err != nil {
		t.Errorf("read: %v", err)
	}
}

func TestDialer_IsBounded(t *testing.T) {
	t.Parallel()
	_, err := dialer(time.Nanosecond, nil, &Trust{})(t.Context(), "tcp", "127.0.0.1:1")
	if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() {
		t.Errorf("dial = %v, want a time-out", err)
	}
}
