package front

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

var update = flag.Bool("update", false, "rewrite golden files")

// testDeadline bounds every wait of these tests; only a failure takes this long.
const testDeadline = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares with a file of testdata; -update writes it. A missing file fails.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

type fakeStreamer func(ctx context.Context, payload []byte) (*lambda.Stream, error)

func (f fakeStreamer) InvokeStream(ctx context.Context, _ string, payload []byte) (*lambda.Stream, error) {
	return f(ctx, payload)
}

type fakeInvoker func(ctx context.Context, payload []byte) (lambda.Result, error)

func (f fakeInvoker) Invoke(ctx context.Context, _ string, payload []byte, _ lambda.InvokeOptions) (lambda.Result, error) {
	return f(ctx, payload)
}

func options() Options {
	o := DefaultOptions()
	o.Function = "door"
	o.Responses = nil // AWS's own
	return o
}

// replies is a streamer whose function replies with text.
func replies(text string) fakeStreamer {
	return func(context.Context, []byte) (*lambda.Stream, error) {
		r, w := io.Pipe()
		go func() {
			_, err := io.WriteString(w, text)
			_ = w.CloseWithError(err)
		}()
		return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
	}
}

const (
	nuls = "\x00\x00\x00\x00\x00\x00\x00\x00"
	ok   = `{"statusCode":200}` + nuls
)

// serve starts a STREAM front on loopback.
func serve(t *testing.T, functions streamer, edit func(*Options)) *httptest.Server {
	t.Helper()
	o := options()
	if edit != nil {
		edit(&o)
	}
	h, err := New(o, functions)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, h)
}

func serveBuffered(t *testing.T, functions invoker) *httptest.Server {
	t.Helper()
	h, err := NewBuffered(options(), functions)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, h)
}

// serveFront is serve with the front, so that faults can be injected.
func serveFront(t *testing.T, functions streamer) (*Front, *httptest.Server) {
	t.Helper()
	f, err := New(options(), functions)
	if err != nil {
		t.Fatal(err)
	}
	return f, start(t, f)
}

func start(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// do sends a request and returns the whole answer.
func do(t *testing.T, srv *httptest.Server, method, path string, body io.Reader, edit func(*http.Request)) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, srv.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// eventOf returns the event that a request becomes on its way through a server.
func eventOf(t *testing.T, method, path string, body io.Reader, edit func(*http.Request)) proxyEvent {
	t.Helper()
	payloads := make(chan []byte, 1)
	srv := serve(t, fakeStreamer(func(ctx context.Context, payload []byte) (*lambda.Stream, error) {
		payloads <- payload
		return replies(ok)(ctx, payload)
	}), nil)
	if resp, text := do(t, srv, method, path, body, edit); resp.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", resp.StatusCode, text)
	}
	var e proxyEvent
	if err := json.Unmarshal(<-payloads, &e); err != nil {
		t.Fatal(err)
	}
	return e
}
