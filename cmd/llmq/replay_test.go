package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// recorded is an exchange with the real admin API of a local cloud; secrets of keys are replaced.
type recorded struct {
	Method     string
	Path       string
	Sent       json.RawMessage
	Status     int
	RetryAfter string            `json:"retry_after"`
	Headers    map[string]string // of the door's answers
	Answer     json.RawMessage   // an object, or text as a JSON string
}

// script replays exchanges in their order, and fails what differs from what was sent then.
type script struct {
	t    *testing.T
	mu   sync.Mutex // guards left
	left []recorded
}

const testKey = "llmq_test"

// replay serves recorded exchanges, testdata/answers/NAME.json.
func replay(t *testing.T, names ...string) string {
	t.Helper()
	s := &script{t: t}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", "answers", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r recorded
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.left = append(s.left, r)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		if len(s.left) > 0 {
			t.Errorf("%d of %d requests were not made", len(s.left), len(names))
		}
	})
	return server.URL
}

func (s *script) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		s.t.Errorf("one request too many: %s %s", req.Method, req.URL)
		return
	}
	r := s.left[0]
	s.left = s.left[1:]
	if req.Method != r.Method || req.URL.RequestURI() != r.Path {
		s.t.Errorf("asked %s %s, want %s %s", req.Method, req.URL.RequestURI(), r.Method, r.Path)
	}
	if got := req.Header.Get("Authorization"); got != "Bearer "+testKey && (r.Path != "/health" || got != "") {
		s.t.Errorf("authorization = %q", got)
	}
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		s.t.Error(err)
	}
	if r.Sent != nil {
		var want, got any
		if json.Unmarshal(r.Sent, &want) != nil || json.Unmarshal(sent, &got) != nil || !cmp.Equal(want, got) {
			s.t.Errorf("sent %s\nwant %s", sent, r.Sent)
		}
	}
	for name, value := range r.Headers {
		w.Header().Set(name, value)
	}
	if r.RetryAfter != "" {
		w.Header().Set("Retry-After", r.RetryAfter)
	}
	w.WriteHeader(r.Status)
	body := []byte(r.Answer)
	var text string
	if json.Unmarshal(r.Answer, &text) == nil {
		body = []byte(text)
	}
	w.Write(body) //nolint:errcheck // the test's own client
}

// told is what a run left behind.
type told struct {
	code     int
	out, err string
}

// at says where the program runs: width 0 is not on a terminal.
type at struct {
	width int
	env   []string
	in    string
}

func invoke(t *testing.T, a at, args ...string) told {
	t.Helper()
	var out, errOut bytes.Buffer
	env := append([]string{"XDG_RUNTIME_DIR=" + t.TempDir()}, a.env...)
	code := run(t.Context(), args, env, streams{
		in: strings.NewReader(a.in), out: &out, err: &errOut, outTerminal: a.width > 0, size: func() (int, int) { return a.width, 40 },
	})
	return told{code, out.String(), errOut.String()}
}

// local hides what differs from run to run: the test server's address.
var local = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// golden compares a text with testdata/golden/NAME.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = local.ReplaceAllString(got, "127.0.0.1:8082")
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// transcript is a run as a golden file has it.
func (r told) transcript(title string) string {
	text := fmt.Sprintf("--- %s: exit code %d\n%s", title, r.code, r.out)
	if r.err != "" {
		text += "--- stderr\n" + r.err
	}
	return text
}
