package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

// serveTLS puts a server behind a socket with TLS.
func serveTLS(t *testing.T, s *server.Server) *httptest.Server {
	t.Helper()
	ts := httptest.NewTLSServer(s)
	t.Cleanup(ts.Close)
	t.Cleanup(s.Close) // before ts.Close, which waits for the calls
	return ts
}

// send is a chat over a socket.
func send(ctx context.Context, ts *httptest.Server, body string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, ts.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err := ts.Client().Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestServer_ResetConnectionIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Reset: true, Times: 2})
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	for _, ts := range []*httptest.Server{plain, serveTLS(t, s)} {
		if status, err := send(t.Context(), ts, chatBody("m")); err == nil {
			t.Errorf("status %d, want a dropped connection", status)
		}
	}
	for _, c := range s.Calls() {
		if c.Outcome != server.Reset || c.Status != 0 {
			t.Errorf("log %s %d, want reset", c.Outcome, c.Status)
		}
	}
}

func TestServer_ClientThatLeavesIsLoggedAsAborted(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	ts := serveTLS(t, s)
	program(t, s, server.Match{Model: "m"}, server.Reply{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := send(ctx, ts, chatBody("m"))
		answered <- err
	}()
	if err := s.AwaitInFlight(t.Context(), "m", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-answered; err == nil {
		t.Error("the cancelled call was answered")
	}
	if err := s.AwaitInFlight(t.Context(), "m", 0); err != nil {
		t.Fatal(err)
	}
	calls := s.Calls()
	if len(calls) != 1 || calls[0].Outcome != server.Aborted || calls[0].Status != 0 || calls[0].Duration <= 0 {
		t.Errorf("log %+v, want one aborted call", calls)
	}
}

func TestServer_CloseEndsWhatHangs(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	ts := httptest.NewServer(s)
	program(t, s, server.Match{}, server.Reply{Hang: true}, server.Reply{Delay: time.Hour})
	answered := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := send(t.Context(), ts, chatBody("m"))
			answered <- err
		}()
	}
	if err := s.AwaitInFlight(t.Context(), "", 2); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 {
		if err := <-answered; err == nil {
			t.Error("a call was answered after Close")
		}
	}
	ts.Close() // would wait for ever for a call that hangs
}

// A body that does not come ends its connection, also if nobody had wanted it.
func TestServer_SlowBodiesEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.BodyTimeout = 50 * time.Millisecond })
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	for _, tc := range []struct{ path, key, want string }{
		{"/v1/chat/completions", apiKey, "HTTP/1.1 408 "},
		{"/v1/chat/completions", "wrong", "HTTP/1.1 401 "},
		{"/model/m/converse", apiKey, "HTTP/1.1 408 "},
		{"/_admin/program", adminKey, "HTTP/1.1 405 "},
		{"/_admin/programs", adminKey, "HTTP/1.1 408 "},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ts.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST "+tc.path+" HTTP/1.1\r\nHost: "+ts.Listener.Addr().String()+"\r\nAuthorization: Bearer "+tc.key+
			"\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), tc.want) {
			t.Errorf("%s: %q, %v, want %q and the end", tc.path, got, err, tc.want)
		}
	}
}

func TestServer_BodyTimeoutLeavesLongAnswersAlone(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.BodyTimeout = 50 * time.Millisecond })
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	program(t, s, server.Match{}, server.Reply{Delay: 200 * time.Millisecond, Times: 4})
	for _, ts := range []*httptest.Server{plain, serveTLS(t, s)} {
		for range 2 { // the second on the same connection
			if status, err := send(t.Context(), ts, chatBody("m")); status != http.StatusOK {
				t.Errorf("status %d, %v", status, err)
			}
		}
	}
}

func TestServer_RootTellsWhatThisIs(t *testing.T) {
	t.Parallel()
	r := request(t.Context(), http.MethodGet, "/", "")
	r.Header.Del("Authorization")
	if got := do(newServer(t, nil), r); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "fakellm") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
