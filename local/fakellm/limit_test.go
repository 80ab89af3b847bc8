package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

const chatModelM = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// serving runs the command's own serve, with so many connections at a time.
func serving(t *testing.T, conns int) (fake *server.Server, addr string) {
	t.Helper()
	fake, err := server.New(server.Options{APIKeys: []string{"k"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, limit(l, conns), fake) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return fake, l.Addr().String()
}

// call sends a chat by a socket of its own, and reads until the connection ends.
func call(t *testing.T, addr string) (answer string, err error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer k\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		addr, len(chatModelM), chatModelM); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

// G4: a reset is an RST also where the command serves, and gives its slot back.
func TestServe_ResetIsSeenAsReset(t *testing.T) {
	t.Parallel()
	fake, addr := serving(t, 1)
	for name, reply := range map[string]server.Reply{"instead of an answer": {Reset: true}, "in the middle": {Fail: server.FailReset}} {
		if err := fake.Program(server.Match{}, reply); err != nil {
			t.Fatal(err)
		}
		if got, err := call(t, addr); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %q, %v, want ECONNRESET", name, got, err)
		}
	}
	if got, err := call(t, addr); err != nil || !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("after the resets: %q, %v", got, err)
	}
}

func TestLimit_MoreConnectionsWait(t *testing.T) {
	t.Parallel()
	below, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(below, 1)
	for range 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", below.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	select {
	case <-accepted:
		t.Fatal("a second connection was accepted while the first was open")
	case <-time.After(50 * time.Millisecond):
	}
	if first.Close() != nil || first.Close() == nil { // a second close frees no second slot
		t.Error("close: want an error the second time only")
	}
	second := <-accepted
	if len(l.slots) != 1 {
		t.Errorf("%d slots are taken, want 1", len(l.slots))
	}
	// Close ends an Accept that waits for a slot, and may come twice.
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, more := <-accepted; more {
		t.Error("a connection was accepted after Close")
	}
	_ = second.Close()
}
