package cassette_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordEnv allows recording, whatever this process's own environment says.
func recordEnv() []string { return []string{"LLMQ_CASSETTE=record"} }

// rig is a server and a folder of recordings.
type rig struct {
	srv   *httptest.Server
	calls *atomic.Int64
	dir   string
}

func newRig(t *testing.T, h http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{calls: &atomic.Int64{}, dir: filepath.Join(t.TempDir(), "cassettes")}
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		h(w, req)
	}))
	t.Cleanup(r.srv.Close)
	return r
}

// tape opens the rig's folder. Unless recording is asked for, there is no transport behind it that
// could open a socket.
func (r *rig) tape(t *testing.T, o cassette.Options) (*cassette.Tape, *http.Client) {
	t.Helper()
	o.Dir = r.dir
	if o.Env == nil {
		o.Env = []string{}
	}
	tape, err := cassette.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var next http.RoundTripper = noSocket{t}
	if len(o.Env) > 0 {
		next = r.srv.Client().Transport
	}
	return tape, &http.Client{Transport: tape.Wrap(next)}
}

// record is a tape that records, and what its Close must say.
func (r *rig) record(t *testing.T, o cassette.Options, do func(c *http.Client)) error {
	t.Helper()
	o.Mode, o.Env = cassette.Record, recordEnv()
	tape, c := r.tape(t, o)
	do(c)
	return tape.Close()
}

type noSocket struct{ t *testing.T }

func (n noSocket) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("%s %s went out", r.Method, r.URL)
	return nil, errors.New("no socket here")
}

// send posts a body and reads the reply to its end.
func send(c *http.Client, url, body string, edit ...func(*http.Request)) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return string(got), err
}

func mustSend(t *testing.T, c *http.Client, url, body string, edit ...func(*http.Request)) string {
	t.Helper()
	got, err := send(c, url, body, edit...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// files are the raw bytes of all that lies in the folder, under any name.
func (r *rig) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}
