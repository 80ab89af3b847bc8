package relay_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDeadline = 10 * time.Second

// echo is a server that sends back what it gets, and a relay before it.
func echo(t *testing.T) *relay.Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	r := start(t, ln.Addr().String())
	t.Cleanup(func() {
		r.Close()
		_ = ln.Close()
		serving.Wait()
	})
	return r
}

func start(t *testing.T, target string) *relay.Relay {
	t.Helper()
	r, err := relay.New(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func dial(t *testing.T, r *relay.Relay) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testDeadline))
	return conn.(*net.TCPConn)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func TestRelay_PassesBothWaysAndTheEnd(t *testing.T) {
	t.Parallel()
	r := echo(t)
	conn := dial(t, r)
	text := strings.Repeat("0123456789", 20_000) // more than a chunk
	go func() {
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != text {
		t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(text))
	}
	r.Close()
	if c := r.Counts(); c != (relay.Counts{Accepted: 1, Up: 200_000, Down: 200_000}) {
		t.Errorf("counts %+v", c)
	}
}

func TestCut_ResetsWhatThereIsAndPassesWhatComes(t *testing.T) {
	t.Parallel()
	r := echo(t)
	old := dial(t, r)
	send(t, old, "a")
	expect(t, old, "a")
	r.Cut()
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	fresh := dial(t, r)
	send(t, fresh, "b")
	expect(t, fresh, "b")
	if c := r.Counts(); c.Cut != 1 || c.Accepted != 2 || c.Open != 1 {
		t.Errorf("counts %+v", c)
	}
}

func TestHang_HoldsBytesBackUntilResume(t *testing.T) {
	t.Parallel()
	r := echo(t)
	conn := dial(t, r)
	send(t, conn, "a")
	expect(t, conn, "a")
	r.Hang()
	r.Hang() // no change
	send(t, conn, "b")
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes came through a hung link, %v", n, err)
	}
	fresh := dial(t, r) // accepted, and silent
	send(t, fresh, "c")
	r.Resume()
	_ = conn.SetReadDeadline(time.Now().Add(testDeadline))
	expect(t, conn, "b")
	expect(t, fresh, "c")
}

func TestLapse_ResetsAtTheNextUse(t *testing.T) {
	t.Parallel()
	r := echo(t)
	old := dial(t, r)
	send(t, old, "a")
	expect(t, old, "a")
	r.Lapse()
	if c := r.Counts(); c.Open != 1 || c.Cut != 0 {
		t.Errorf("counts %+v, want a connection that looks alive", c)
	}
	send(t, old, "b")
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	fresh := dial(t, r)
	send(t, fresh, "c")
	expect(t, fresh, "c")
	if c := r.Counts(); c.Cut != 1 {
		t.Errorf("counts %+v", c)
	}
}

func TestStrand_SilencesWhatThereIsOnly(t *testing.T) {
	t.Parallel()
	r := echo(t)
	old := dial(t, r)
	send(t, old, "a")
	expect(t, old, "a")
	r.Strand()
	send(t, old, "b")
	r.Resume()
	fresh := dial(t, r)
	send(t, fresh, "c")
	expect(t, fresh, "c")
	_ = old.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := old.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes came through a stranded connection, %v", n, err)
	}
}

func TestCut_EndsHungConnections(t *testing.T) {
	t.Parallel()
	r := echo(t)
	conn := dial(t, r)
	r.Hang()
	send(t, conn, "a")
	expectOpen(t, r)
	r.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

// expectOpen waits until the relay, in its own time, has accepted a connection.
func expectOpen(t *testing.T, r *relay.Relay) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(testDeadline)
	for r.Counts().Open == 0 {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("no connection was accepted")
		}
	}
}

func TestDelay_MakesARoundTripTakeTwice(t *testing.T) {
	t.Parallel()
	r := echo(t)
	conn := dial(t, r)
	send(t, conn, "a")
	expect(t, conn, "a")
	const d = 30 * time.Millisecond
	r.Delay(d)
	began := time.Now()
	send(t, conn, "b")
	expect(t, conn, "b")
	if took := time.Since(began); took < 2*d {
		t.Errorf("took %s, want %s at least", took, 2*d)
	}
}

func TestRefuse_ResetsNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	r := echo(t)
	old := dial(t, r)
	send(t, old, "a")
	expect(t, old, "a")
	r.Refuse()
	expectReset(t, r)
	send(t, old, "b")
	expect(t, old, "b")
	r.Resume()
	again := dial(t, r)
	send(t, again, "c")
	expect(t, again, "c")
	if c := r.Counts(); c.Refused != 1 || c.Accepted != 2 {
		t.Errorf("counts %+v", c)
	}
}

func TestRelay_ServerThatIsNotThereIsAReset(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := ln.Addr().String()
	_ = ln.Close()
	expectReset(t, start(t, target))
}

// expectReset expects a new connection to be reset: mostly at its first use, since the
// kernel accepts before the relay can refuse.
func expectReset(t *testing.T, r *relay.Relay) {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(testDeadline))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestRelay_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := relay.New(ctx, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	r.Close()
	if conn, err := net.Dial("tcp", r.Addr()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// HTTP over TLS passes, and a client with pooled connections is cut between requests.
func TestRelay_TLSPassesAndAPooledConnectionIsCut(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }))
	defer srv.Close()
	r := start(t, srv.Listener.Addr().String())
	client := srv.Client()
	for i := range 3 {
		resp, err := client.Get("https://" + r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(resp.Body).ReadString('\n')
		_ = resp.Body.Close()
		if line != "yes" {
			t.Errorf("got %q", line)
		}
		if c := r.Counts(); c.Accepted != int64(i+1) {
			t.Errorf("request %d: %d connections", i, c.Accepted)
		}
		r.Cut()
	}
}
