package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func TestFront_RefusesWhatIsNotMeantForIt(t *testing.T) {
	t.Parallel()
	srv := serve(t, replies(ok), func(o *Options) { o.Hosts = []string{"gateway.test", "named.test:99"} })
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, host, extra string
		want              int
	}{
		{"our address", "127.0.0.1:" + port, "", 200},
		{"localhost", "localhost:" + port, "", 200},
		{"localhost in capitals", "LOCALHOST:" + port, "", 200},
		{"a name of ours", "gateway.test:" + port, "", 200},
		{"a name of ours at a mapped port", "gateway.test:1", "", 200},
		{"a name of ours with its port", "named.test:99", "", 200},
		{"a name of ours with another port", "named.test:98", "", 403},
		{"empty", "", "", 403},
		{"another site", "evil.test:" + port, "", 403},
		{"another port", "127.0.0.1:1", "", 403},
		{"no port", "127.0.0.1", "", 403},
		{"other loopback address", "127.0.0.2:" + port, "", 403},
		{"any address", "0.0.0.0:" + port, "", 403},
		{"IPv6 loopback", "[::1]:" + port, "", 403},
		{"suffix", "localhost.evil.test:" + port, "", 403},
		{"trailing dot", "localhost.:" + port, "", 403},
		{"origin", "127.0.0.1:" + port, "Origin: http://evil.test\r\n", 403},
		{"own origin", "127.0.0.1:" + port, "Origin: http://127.0.0.1:" + port + "\r\n", 403},
		{"null origin", "127.0.0.1:" + port, "Origin: null\r\n", 403},
		{"empty origin", "127.0.0.1:" + port, "Origin:\r\n", 403},
	}
	for _, tt := range tests {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testDeadline))
		fmt.Fprintf(conn, "POST /v1/x HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", tt.host, tt.extra)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		_ = conn.Close()
		if resp.StatusCode != tt.want || tt.want == 403 && string(body) != `{"message":"Forbidden"}` {
			t.Errorf("%s: got %d %s, want %d", tt.name, resp.StatusCode, body, tt.want)
		}
	}
}

func TestFront_LargestBodyPassesOneMoreByteDoesNot(t *testing.T) {
	t.Parallel()
	got := make(chan int, 1)
	srv := serve(t, fakeStreamer(func(ctx context.Context, payload []byte) (*lambda.Stream, error) {
		got <- len(payload)
		return replies(ok)(ctx, payload)
	}), nil)
	body := bytes.Repeat([]byte("a"), maxBody)
	if resp, text := do(t, srv, "POST", "/x", bytes.NewReader(body), nil); resp.StatusCode != 200 {
		t.Errorf("got %d %s", resp.StatusCode, text)
	}
	if n := <-got; n < maxBody {
		t.Errorf("event of %d bytes", n)
	}
	want := `{"message":"HTTP content length exceeded 10485760 bytes."}`
	for _, body := range []io.Reader{
		bytes.NewReader(append(body, 'a')),                    // with a length
		io.MultiReader(bytes.NewReader(append(body, 'a'))),    // chunked
		io.MultiReader(bytes.NewReader(make([]byte, 11<<20))), // chunked, well over
	} {
		resp, text := do(t, srv, "POST", "/x", body, nil)
		if resp.StatusCode != http.StatusRequestEntityTooLarge || text != want {
			t.Errorf("got %d %s", resp.StatusCode, text)
		}
	}
	select {
	case n := <-got:
		t.Errorf("the function got %d bytes", n)
	default:
	}
}

func TestFront_GatewayResponses(t *testing.T) {
	t.Parallel()
	fails := func(err error) fakeStreamer {
		return func(context.Context, []byte) (*lambda.Stream, error) { return nil, err }
	}
	tests := []struct {
		name      string
		functions fakeStreamer
		status    int
		message   string
	}{
		{"no room for the function", fails(&lambda.Error{Code: lambda.CodeThrottled}), 500, "Internal server error"},
		{"event over 6 MB", fails(&lambda.Error{Code: lambda.CodeTooLarge}), 413, "Request Too Long"},
		{"no such function", fails(&lambda.Error{Code: lambda.CodeNotFound}), 500, "Internal server error"},
		{"function failed", fails(&lambda.FunctionError{Type: "Runtime.ExitError", Payload: []byte(`"secret"`)}), 502, "Internal server error"},
		{"function timed out", fails(&lambda.FunctionError{Type: "Sandbox.Timedout"}), 502, "Internal server error"},
		{"integration timed out", fails(fmt.Errorf("wait: %w", context.DeadlineExceeded)), 504, "Endpoint request timed out"},
		{"function failed within the prelude", func(context.Context, []byte) (*lambda.Stream, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, `{"statusCode"`)
				_ = w.CloseWithError(&lambda.FunctionError{Type: "E"})
			}()
			return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
		}, 502, "Internal server error"},
		{"no prelude", replies(`{"statusCode":200}`), 502, "Internal server error"},
		{"prelude is no JSON", replies(`hello` + nuls), 502, "Internal server error"},
		{"prelude without status", replies(`{}` + nuls), 502, "Internal server error"},
		{"status out of range", replies(`{"statusCode":101}` + nuls), 502, "Internal server error"},
		{"prelude too long", replies(`{"statusCode":200,"headers":{"a":"` + strings.Repeat("x", maxPrelude) + `"}}` + nuls), 502, "Internal server error"},
		{"empty reply", replies(""), 502, "Internal server error"},
		{"buffered reply", func(ctx context.Context, p []byte) (*lambda.Stream, error) {
			s, err := replies(`{"statusCode":200,"body":"x"}`)(ctx, p)
			s.ContentType = "application/json"
			return s, err
		}, 502, "Internal server error"},
	}
	for _, tt := range tests {
		srv := serve(t, tt.functions, nil)
		resp, text := do(t, srv, "POST", "/x", nil, nil)
		if resp.StatusCode != tt.status || text != `{"message":"`+tt.message+`"}` || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %s", tt.name, resp.StatusCode, text)
		}
		if resp.Header.Get("X-Amzn-Requestid") == "" {
			t.Errorf("%s: no request id", tt.name)
		}
	}
}

func TestFront_HeadersAreMerged(t *testing.T) {
	t.Parallel()
	srv := serve(t, replies(`{"statusCode":201,"headers":{"Content-Type":"text/plain","x-a":"1","Www-Authenticate":"Bearer","Connection":"close, x-gone","x-gone":"1"},`+
		`"multiValueHeaders":{"X-A":["1","2"]},"cookies":["c=1","d=2"]}`+nuls+"body"), nil)
	resp, text := do(t, srv, "GET", "/x", nil, nil)
	h := resp.Header
	if resp.StatusCode != 201 || text != "body" || h.Get("Content-Type") != "text/plain" || fmt.Sprint(h.Values("X-A")) != "[1 2]" ||
		fmt.Sprint(h.Values("Set-Cookie")) != "[c=1 d=2]" || h.Get("X-Amzn-Remapped-Www-Authenticate") != "Bearer" ||
		h.Get("Www-Authenticate") != "" || h.Get("X-Gone") != "" {
		t.Errorf("got %d %q %v", resp.StatusCode, text, h)
	}
}

// The client asks for each chunk only after it has the one before: one that is held back hangs the test.
func TestFront_ChunksAreFlushed(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	srv := serve(t, fakeStreamer(func(context.Context, []byte) (*lambda.Stream, error) {
		return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
	}), nil)
	written := make(chan error, 1)
	write := func(s string) { go func() { _, err := io.WriteString(w, s); written <- err }() }

	write(`{"statusCode":200}` + nuls[:3]) // the delimiter may be cut
	responses := make(chan *http.Response, 1)
	go func() {
		resp, err := srv.Client().Post(srv.URL+"/x", "application/json", nil)
		if err != nil {
			t.Error(err)
		}
		responses <- resp
	}()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	write(nuls[3:])
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	resp := <-responses // the headers are there before any of the body
	if resp == nil {
		t.Fatal("no response")
	}
	defer func() { _ = resp.Body.Close() }()
	for i := range 3 {
		want := fmt.Sprintf("data: %d\n\n", i)
		write(want)
		buf := make([]byte, 100)
		n, err := resp.Body.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("got %q, %v, want %q", buf[:n], err, want)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestFront_BrokenStreamDoesNotEndWell(t *testing.T) {
	t.Parallel()
	cut := func(err error) fakeStreamer {
		return func(context.Context, []byte) (*lambda.Stream, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, ok+"data: 1\n\n")
				if err != nil {
					_ = w.CloseWithError(err)
				} // else it is silent for ever
			}()
			return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
		}
	}
	tests := []struct {
		name      string
		functions fakeStreamer
		edit      func(*Options)
	}{
		{"function failed", cut(&lambda.FunctionError{Type: "E"}), nil},
		{"idle too long", cut(nil), func(o *Options) { o.IdleTimeout = 50 * time.Millisecond }},
		{"runs too long", cut(nil), func(o *Options) { o.Timeout = 50 * time.Millisecond }},
	}
	for _, tt := range tests {
		srv := serve(t, tt.functions, tt.edit)
		resp, err := srv.Client().Post(srv.URL+"/x", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(text) != "data: 1\n\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got %q, %v", tt.name, text, err)
		}
	}
}

func TestFront_SilentFunctionIsA504(t *testing.T) {
	t.Parallel()
	silent := fakeStreamer(func(context.Context, []byte) (*lambda.Stream, error) {
		r, _ := io.Pipe()
		return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
	})
	unbegun := fakeStreamer(func(ctx context.Context, _ []byte) (*lambda.Stream, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("wait: %w", ctx.Err())
	})
	const short = 50 * time.Millisecond
	for name, srv := range map[string]*httptest.Server{
		"no prelude in time":       serve(t, silent, func(o *Options) { o.Timeout = short }),
		"no prelude before idle":   serve(t, silent, func(o *Options) { o.IdleTimeout = short }),
		"no beginning in time":     serve(t, unbegun, func(o *Options) { o.Timeout = short }),
		"no beginning before idle": serve(t, unbegun, func(o *Options) { o.IdleTimeout = short }),
	} {
		if resp, text := do(t, srv, "POST", "/x", nil, nil); resp.StatusCode != 504 || text != `{"message":"Endpoint request timed out"}` {
			t.Errorf("%s: got %d %s", name, resp.StatusCode, text)
		}
	}
}

func TestFront_ClientThatLeavesDoesNotCancelTheFunction(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	srv := serve(t, fakeStreamer(func(ctx context.Context, p []byte) (*lambda.Stream, error) {
		close(entered)
		<-left
		ended <- ctx.Err()
		return replies(ok)(ctx, p)
	}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(r)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("the client got an answer")
	}
	close(left)
	if err := <-ended; err != nil {
		t.Errorf("the function's context ended: %v", err)
	}
}

func TestNew_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Options){
		"no function":  func(o *Options) { o.Function = "" },
		"no stage":     func(o *Options) { o.Stage = "" },
		"no timeout":   func(o *Options) { o.Timeout = 0 },
		"long timeout": func(o *Options) { o.Timeout = 16 * time.Minute },
		"no idle":      func(o *Options) { o.IdleTimeout = 0 },
		"no body":      func(o *Options) { o.MaxBody = 0 },
		"large body":   func(o *Options) { o.MaxBody = maxBody + 1 },
		"no header":    func(o *Options) { o.MaxHeader = 0 },
		"large header": func(o *Options) { o.MaxHeader = maxHeader + 1 },
	} {
		o := options()
		edit(&o)
		if _, err := New(o, replies(ok)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := NewBuffered(o, fakeInvoker(nil)); err == nil {
			t.Errorf("%s: accepted, buffered", name)
		}
	}
}
