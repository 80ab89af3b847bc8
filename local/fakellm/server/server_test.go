package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	apiKey    = "key-of-the-tests"
	accessKey = "AKIDOFTHETESTS"
	adminKey  = "admin-key-of-the-tests"
)

func newServer(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	opts := server.Options{APIKeys: []string{apiKey}, AccessKeys: []string{accessKey}, AdminKey: adminKey}
	if change != nil {
		change(&opts)
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatalf("new server: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// request is a call of the wire that its path belongs to, with that wire's good key.
func request(ctx context.Context, method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+apiKey)
	if strings.HasPrefix(path, "/_admin") {
		r.Header.Set("Authorization", "Bearer "+adminKey)
	}
	return r
}

// do serves a request without a socket. A dropped connection is a nil response.
func do(s http.Handler, r *http.Request) (got *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	defer func() {
		if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
			got = nil
		} else if p != nil {
			panic(p)
		}
	}()
	s.ServeHTTP(w, r)
	return w
}

func post(t *testing.T, s http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	return do(s, request(t.Context(), http.MethodPost, path, body))
}

// chat is a call that needs nothing else said about it.
func chat(t *testing.T, s http.Handler, model string) *httptest.ResponseRecorder {
	t.Helper()
	return post(t, s, "/v1/chat/completions", chatBody(model))
}

func chatBody(model string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"hi"}]}`
}

func program(t *testing.T, s *server.Server, match server.Match, replies ...server.Reply) {
	t.Helper()
	if err := s.Program(match, replies...); err != nil {
		t.Fatalf("program: %v", err)
	}
}

func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("decode %q: %v", body, err)
	}
	return v
}

func TestNew_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]server.Options{
		"empty API key":    {APIKeys: []string{""}},
		"empty access key": {AccessKeys: []string{"a", ""}},
		"negative log":     {LogCalls: -1},
		"negative body":    {MaxBodyBytes: -1},
	} {
		if _, err := server.New(opts); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func TestServer_RefusesWebPagesAndOtherHosts(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.Hosts = []string{"fakellm", "outside:8443"} })
	for _, tc := range []struct {
		name, host, origin string
		want               int
	}{
		{name: "loopback", host: "127.0.0.1:1234", want: http.StatusOK},
		{name: "localhost", host: "localhost", want: http.StatusOK},
		{name: "IPv6", host: "[::1]:1234", want: http.StatusOK},
		{name: "allowed name, any port", host: "fakellm:80", want: http.StatusOK},
		{name: "allowed name and port", host: "outside:8443", want: http.StatusOK},
		{name: "allowed name, other port", host: "outside:8444", want: http.StatusForbidden},
		{name: "rebound name", host: "evil.example", want: http.StatusForbidden},
		{name: "no host", host: "", want: http.StatusForbidden},
		{name: "web page", host: "127.0.0.1", origin: "http://127.0.0.1", want: http.StatusForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/v1/models", "/_admin/stats"} {
				r := request(t.Context(), http.MethodGet, path, "")
				r.Host = tc.host
				if tc.origin != "" {
					r.Header.Set("Origin", tc.origin)
				}
				if got := do(s, r); got.Code != tc.want {
					t.Errorf("%s: status %d, want %d", path, got.Code, tc.want)
				}
			}
		})
	}
}

func TestServer_WantsItsOwnPortInHost(t *testing.T) {
	t.Parallel()
	ts := httptest.NewServer(newServer(t, nil))
	t.Cleanup(ts.Close)
	for host, want := range map[string]int{
		strings.TrimPrefix(ts.URL, "http://"): http.StatusOK,
		"127.0.0.1:1":                         http.StatusForbidden,
		"127.0.0.1":                           http.StatusForbidden,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+apiKey)
		resp, err := ts.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestServer_RefusesHugeBodies(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	r := request(t.Context(), http.MethodPost, "/v1/chat/completions", "")
	r.Body = io.NopCloser(io.LimitReader(zeros{}, 33<<20))
	if got := do(s, r); got.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413", got.Code)
	}
}

func TestServer_BodyLimitIsAnOption(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.MaxBodyBytes = int64(len(chatBody("m"))) })
	if got := chat(t, s, "m").Code; got != http.StatusOK {
		t.Errorf("status %d at the limit, want 200", got)
	}
	if got := chat(t, s, "mm"); got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Body.String(), "larger than") {
		t.Errorf("%d %s above the limit, want 413", got.Code, got.Body)
	}
}

func TestServer_CapturesNothingIfToldSo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newServer(t, func(o *server.Options) {
		o.CaptureBytes = -1
		o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	post(t, s, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a secret prompt"}]}`)
	c := s.Calls()[0]
	if len(c.Body) != 0 || c.RequestSHA256 == "" {
		t.Errorf("kept %q", c.Body)
	}
	if line := out.String(); !strings.Contains(line, "model=m") || strings.Contains(line, "secret") || strings.Contains(line, apiKey) {
		t.Errorf("logged %s", line)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
