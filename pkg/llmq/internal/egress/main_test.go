package egress

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// local may call what the tests serve, and no more.
func local() provider.Network {
	n := provider.DefaultNetwork()
	n.Loopback = true
	n.ConnectTimeout, n.ReadTimeout = 5*time.Second, 5*time.Second
	return n
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func open(t *testing.T, base string, n provider.Network, h hooks) *Client {
	t.Helper()
	c, err := newClient(base, n, h)
	if err != nil {
		t.Fatalf("newClient(%q): %v", base, err)
	}
	t.Cleanup(c.Close)
	return c
}

func post(t *testing.T, url, body string) *http.Request {
	t.Helper()
	return postContext(t.Context(), t, url, body)
}

func postContext(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatalf("NewRequest(%q): %v", url, err)
	}
	return req
}

// names is a resolver that answers every question of one record type with the addresses given, the
// first list for the first lookup, the last for all later ones.
func names(t *testing.T, lookups ...[]string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0") // Closed by Cleanup.
	if err != nil {
		t.Fatalf("listen for DNS: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		seen := map[dnsmessage.Type]int{}
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if err := q.Unpack(buf[:n]); err != nil || len(q.Questions) != 1 {
				continue
			}
			kind := q.Questions[0].Type
			reply, err := answer(q, lookups[min(seen[kind], len(lookups)-1)]).Pack()
			seen[kind]++
			if err != nil {
				continue
			}
			if _, err := pc.WriteTo(reply, from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if err := pc.Close(); err != nil {
			t.Errorf("close DNS: %v", err)
		}
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func answer(q dnsmessage.Message, addrs []string) *dnsmessage.Message {
	m := &dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch {
		case a.Is4() && q.Questions[0].Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Questions[0].Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m
}

// quiet swallows what servers log about handshakes that are meant to fail.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
