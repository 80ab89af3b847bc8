package egress

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// middle stands between a client and a server as a router does that can forget the
// connections it knows: their next bytes are answered by a reset and reach nobody.
type middle struct {
	ln     net.Listener
	target string
	forgot atomic.Int64 // connections before this number are forgotten
	count  atomic.Int64
	tasks  sync.WaitGroup
}

func between(t *testing.T, target string) *middle {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{ln: ln, target: target}
	m.tasks.Go(m.accept)
	t.Cleanup(func() {
		ln.Close()
		m.tasks.Wait()
	})
	return m
}

func (m *middle) accept() {
	for {
		down, err := m.ln.Accept()
		if err != nil {
			return
		}
		number := m.count.Add(1)
		up, err := net.Dial("tcp4", m.target)
		if err != nil {
			down.Close()
			return
		}
		m.tasks.Go(func() { copyWhile(down, up, func() bool { return true }) })
		m.tasks.Go(func() { copyWhile(up, down, func() bool { return number > m.forgot.Load() }) })
	}
}

// copyWhile passes bytes until one side ends, or resets src when they may not pass.
func copyWhile(dst, src net.Conn, may func() bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if !may() {
			src.(*net.TCPConn).SetLinger(0) //nolint:errcheck,forcetypeassert // a listener of TCP
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A kept connection that is reset at its next use costs no call and no second one, however
// large the request is and whether or not TLS is on top.
func TestDo_ConnectionForgottenWhileItRestedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tls  bool
		body int
	}{
		"http": {false, 10}, "http, large": {false, 1 << 20}, "https": {true, 10}, "https, large": {true, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n, err := io.Copy(io.Discard, r.Body); err != nil || n != int64(tt.body) {
					t.Errorf("the server read %d bytes, %v", n, err)
				}
				calls.Add(1)
				io.WriteString(w, "{}") //nolint:errcheck // the client will tell
			}))
			srv.Config.ErrorLog = quiet()
			h, scheme := hooks{trusted: time.Nanosecond}, "http://" // every write is tried first
			if tt.tls {
				srv.StartTLS()
				h.roots, scheme = x509.NewCertPool(), "https://"
				h.roots.AddCert(srv.Certificate())
			} else {
				srv.Start()
			}
			t.Cleanup(srv.Close)
			m := between(t, srv.Listener.Addr().String())
			url := scheme + m.ln.Addr().String()
			c := open(t, url, local(), h)
			for i := range int32(3) {
				if _, err := c.Do(post(t, url, strings.Repeat("x", tt.body))); err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
				if got := calls.Load(); got != i+1 {
					t.Fatalf("after call %d the server had %d", i, got)
				}
				m.forgot.Store(m.count.Load())
			}
			if got := m.count.Load(); got != 3 {
				t.Errorf("%d connections, want one for each call", got)
			}
		})
	}
}

// A request that was taken whole is not made again, though its connection was a kept one
// and broke without a byte of an answer: the provider may have done its work.
func TestDo_RequestThatWasTakenIsNotRepeated(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // the count tells
		if calls.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "{}") //nolint:errcheck // the client will tell
	})
	c := open(t, srv.URL, local(), hooks{})
	if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.Retryable, llmq.CodeProviderError)
	if got := calls.Load(); got != 2 {
		t.Errorf("the server had %d calls, want 2", got)
	}
}
