package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// want fails t unless err is a *provider.Error of this class and code.
func want(t *testing.T, err error, class provider.Class, code llmq.Code) *provider.Error {
	t.Helper()
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Fatalf("error is %v, want a *provider.Error", err)
	}
	if e.Class != class || e.Code != code {
		t.Fatalf("error is %v, want %v %v", err, class, code)
	}
	return e
}

func TestDo_ReturnsTheWholeReply(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var sent []byte
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		sent, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Request-Id", "req_1")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "short and stout")
	})
	c := open(t, srv.URL, local(), hooks{})
	reply, err := c.Do(post(t, srv.URL+"/a", `{"a":1}`))
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	if reply.Status != 418 || string(reply.Body) != "short and stout" || reply.RequestID("X-Request-Id") != "req_1" || reply.OK() {
		t.Errorf("reply = %d %q, id %q", reply.Status, reply.Body, reply.RequestID("X-Request-Id"))
	}
	if string(sent) != `{"a":1}` {
		t.Errorf("sent %q", sent)
	}
	if ae := got.Header.Get("Accept-Encoding"); ae != "identity" {
		t.Errorf("Accept-Encoding = %q, want identity", ae)
	}
	if ua := got.Header.Get("User-Agent"); !strings.HasPrefix(ua, "llmq/") || len(ua) < 6 {
		t.Errorf("User-Agent = %q", ua)
	}
}

// SEC21: a redirect is a reply like another.
func TestDo_SEC21FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/stolen", status)
		})
		c := open(t, srv.URL, local(), hooks{})
		reply, err := c.Do(post(t, srv.URL, "{}"))
		if err != nil || reply.Status != status {
			t.Errorf("Do = %d, %v; want %d", reply.Status, err, status)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other host was called %d times", n)
	}
}

// SEC21: the proxy of the environment is not asked. Not parallel, since it sets variables. The
// name matters: net/http never sends loopback addresses and "localhost" to a proxy.
func TestDo_SEC21IgnoresProxyOfEnvironment(t *testing.T) { //nolint:paralleltest // it sets the environment
	var proxied atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := "http://provider.test:" + u.Port()
	c := open(t, base, local(), hooks{resolver: names(t, []string{"127.0.0.1"})})
	reply, err := c.Do(post(t, base, "{}"))
	if err != nil || reply.Status != http.StatusNoContent {
		t.Errorf("Do = %d, %v; want 204", reply.Status, err)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

// SEC20: an answer that changes between two lookups gains nothing, and where the first address of
// an answer can't be reached, the second is checked like the first.
func TestDo_SEC20RebindingIsRefused(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Connection", "close")
	})
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := "http://provider.test:" + u.Port()
	c := open(t, base, local(), hooks{resolver: names(t, []string{"127.0.0.1"}, []string{"169.254.169.254"})})
	if _, err := c.Do(post(t, base, "{}")); err != nil {
		t.Fatalf("first call: %v", err)
	}
	if _, err := c.Do(post(t, base, "{}")); !errors.Is(err, errAddress) {
		t.Errorf("second call = %v, want the address refused", err)
	}

	srv.Close()
	c = open(t, base, local(), hooks{resolver: names(t, []string{"127.0.0.1", "10.0.0.1"})})
	if _, err := c.Do(post(t, base, "{}")); err == nil {
		t.Error("a call to a closed port and a forbidden address succeeded")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the server saw %d calls, want 1", n)
	}
}

func TestDo_SilentProviderTimesOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	n := local()
	n.ReadTimeout = 20 * time.Millisecond
	c := open(t, srv.URL, n, hooks{})
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.Retryable, llmq.CodeTimeout)
}

func TestDo_ConnectionFaultsAreRetryable(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"closed without a reply": "",
		"not HTTP":               "SSH-2.0-OpenSSH_9.6\r\n",
		"cut in the header":      "HTTP/1.1 200 OK\r\nContent-Ty",
		"cut in the body":        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
		"cut between chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	}
	for name, reply := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, calls := raw(t, func(string) string { return reply })
			c := open(t, base, local(), hooks{})
			_, err := c.Do(post(t, base, "{}"))
			want(t, err, provider.Retryable, llmq.CodeProviderError)
			if n := calls.Load(); n != 1 {
				t.Errorf("%d requests arrived, want 1", n)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		srv.Close()
		c := open(t, srv.URL, local(), hooks{})
		_, err := c.Do(post(t, srv.URL, "{}"))
		want(t, err, provider.Retryable, llmq.CodeProviderError)
	})
	t.Run("name not found", func(t *testing.T) {
		t.Parallel()
		c := open(t, "https://nobody.test", provider.DefaultNetwork(), hooks{resolver: names(t, nil)})
		_, err := c.Do(post(t, "https://nobody.test", "{}"))
		want(t, err, provider.Retryable, llmq.CodeProviderError)
	})
}

// raw serves connections by hand: for each request of one short body it writes what reply returns,
// and closes the connection.
func raw(t *testing.T, reply func(request string) string) (base string, requests *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // Closed by Cleanup.
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	requests = new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			var got []byte
			for !bytes.HasSuffix(got, []byte("{}")) {
				n, err := conn.Read(buf)
				got = append(got, buf[:n]...)
				if err != nil {
					break
				}
			}
			requests.Add(1)
			_, _ = io.WriteString(conn, reply(string(got)))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return "http://" + ln.Addr().String(), requests
}

func TestDo_ChecksCertificates(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", fmt.Sprint(r.ProtoMajor, r.TLS.Version >= tls.VersionTLS12))
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())

	reply, err := open(t, srv.URL, local(), hooks{roots: roots}).Do(post(t, srv.URL, "{}"))
	if err != nil || reply.Header.Get("X-Proto") != "1 true" {
		t.Errorf("Do with the right authority = %v, protocol %q; want HTTP/1 over TLS 1.2 or later", err, reply.Header.Get("X-Proto"))
	}
	_, err = open(t, srv.URL, local(), hooks{}).Do(post(t, srv.URL, "{}"))
	want(t, err, provider.TargetFatal, llmq.CodeProviderError)
}

func TestDo_RefusesOldTLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} // The old version is what is refused.
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	_, err := open(t, srv.URL, local(), hooks{roots: roots}).Do(post(t, srv.URL, "{}"))
	want(t, err, provider.Retryable, llmq.CodeProviderError)
}

func TestDo_EndOfContextComesFirst(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	c := open(t, srv.URL, local(), hooks{})

	why := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := c.Do(postContext(ctx, t, srv.URL, "{}"))
	want(t, err, provider.CallFatal, llmq.CodeCancelled)
	if !errors.Is(err, why) {
		t.Errorf("Do = %v, which does not say %q", err, why)
	}

	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = c.Do(postContext(ctx, t, srv.URL, "{}"))
	want(t, err, provider.Retryable, llmq.CodeTimeout)
}

func TestReply_JSON(t *testing.T) {
	t.Parallel()
	const good = `{"id":"c1","choices":[]}`
	tests := []struct {
		name, media, body, want string
		class                   provider.Class
	}{
		{"plain", "application/json", good, good, 0},
		{"with a charset", "application/json; charset=utf-8", good, good, 0},
		{"of a vendor", "application/vnd.x+json", good, good, 0},
		{"H19b blank lines first", "application/json", "\n\n\n\n" + good, "\n\n\n\n" + good, 0},
		{"H19e byte order mark", "application/json", "\xef\xbb\xbf" + good, good, 0},
		{"bytes kept", "application/json", "{ \"a\" : 1.0e+2 , \"\\u0061b\":\"\\u00e9\" }\n", "{ \"a\" : 1.0e+2 , \"\\u0061b\":\"\\u00e9\" }\n", 0},
		{"H19c blank lines only", "application/json", "\n\n", "", provider.Retryable},
		{"empty", "application/json", "", "", provider.Retryable},
		{"page", "text/html", "<html></html>", "", provider.Retryable},
		{"page that says JSON", "application/json", "<html></html>", "", provider.Retryable},
		{"JSON that says page", "text/html", good, "", provider.Retryable},
		{"no type", "", good, "", provider.Retryable},
		{"ends early", "application/json", good[:len(good)-1], "", provider.Retryable},
		{"H19d infinity", "application/json", `{"logprob":-Infinity,"top":[]}`, "", provider.TargetFatal},
		{"two values", "application/json", good + good, "", provider.TargetFatal},
		{"1,000 levels, brackets in strings", "application/json", `{"a":"[\"[{","b":` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + "}", `{"a":"[\"[{","b":` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + "}", 0},
		{"1,001 levels", "application/json", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "", provider.TargetFatal},
		{"stream", "text/event-stream", "data: {}\n\n", "", provider.TargetFatal},
		{"null", "application/json", " null\n", "", provider.Retryable},
		{"a string", "application/json", `"ok"`, "", provider.Retryable},
		{"a number", "application/json", "1", "", provider.Retryable},
		{"a list", "application/json", "[1]", "[1]", 0},
		{"no UTF-8", "application/json", "{\"a\":\"\xff\"}", "", provider.TargetFatal},
		{"no UTF-8 in a name", "application/json", "{\"\xc3\x28\":1}", "", provider.TargetFatal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Reply{Status: 200, Header: http.Header{"Content-Type": {tt.media}}, Body: []byte(tt.body)}
			got, err := r.JSON()
			if tt.class == 0 {
				if err != nil || string(got) != tt.want {
					t.Errorf("JSON() = %q, %v; want %q", got, err, tt.want)
				}
				return
			}
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Class != tt.class || e.Status != 200 {
				t.Errorf("JSON() = %v, want class %v", err, tt.class)
			}
		})
	}
}
