package cassette_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// What lies in a folder and is no regular file is named, not read: none of these may make New or
// Rewrite wait, read without end, or copy what is elsewhere.
func TestNew_ReadsRegularFilesOnly(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(folder(t, map[string]string{"victim.json": good}), "victim.json")
	for name, place := range map[string]func(path string) error{
		"pipe":                     pipe,
		"link to a recording":      func(path string) error { return os.Symlink(elsewhere, path) },
		"link to what has no end":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"link to nothing":          func(path string) error { return os.Symlink("/nothing/there", path) },
		"more bytes than are read": func(path string) error { return sparse(path, 128<<20+1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, map[string]string{"a.json": good})
			if err := place(filepath.Join(dir, "b.json")); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(filepath.Join(dir, "b.json"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cassette.New(cassette.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "b.json") {
				t.Errorf("New: %v", err)
			}
			if err := cassette.Rewrite(cassette.Options{Dir: dir, Env: recordEnv()}); err == nil || !strings.Contains(err.Error(), "b.json") {
				t.Errorf("Rewrite: %v", err)
			}
			if after, err := os.Lstat(filepath.Join(dir, "b.json")); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v, %v", after, err)
			}
		})
	}
}

func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

func TestNew_RefusesAFileForAFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(folder(t, map[string]string{"a.json": good}), "a.json")
	for _, mode := range []cassette.Mode{cassette.Replay, cassette.Auto, cassette.Record} {
		if _, err := cassette.New(cassette.Options{Dir: file, Mode: mode, Env: recordEnv()}); err == nil || !strings.Contains(err.Error(), "no folder") {
			t.Errorf("%v: %v", mode, err)
		}
	}
}

// A header that ends its line would be another header, or a body, to whoever writes it out.
func TestNew_RefusesMalformedHeaders(t *testing.T) {
	t.Parallel()
	for _, header := range []string{`{"a\r\nb": ["x"]}`, `{"a": ["x\r\ny: z"]}`, `{"a": ["x\ny"]}`, `{"a": ["\u0000"]}`, `{"": ["x"]}`, `{"a b": ["x"]}`, `{"a:": ["x"]}`, `{"é": ["x"]}`} {
		for _, member := range []string{`"method": "POST",`, `"status": 200,`} {
			text := strings.Replace(good, member, member+` "header": `+header+`,`, 1)
			if _, err := cassette.New(cassette.Options{Dir: folder(t, map[string]string{"a.json": text})}); err == nil || !strings.Contains(err.Error(), "a.json:") || !strings.Contains(err.Error(), "header") {
				t.Errorf("%s after %s: %v", header, member, err)
			}
		}
	}
}

// What a killed process left goes, what another one is writing stays, and who only plays removes
// nothing.
func TestNew_SweepsWhatAKillLeft(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{".new-OLD": "half", ".new-YOUNG": "half", ".other": "x", "a.json": good})
	for _, name := range []string{".new-OLD", ".other", "a.json"} {
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		var out []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return strings.Join(out, " ")
	}
	if _, err := cassette.New(cassette.Options{Dir: dir, Mode: cassette.Auto, Env: []string{}}); err != nil || names() != ".new-OLD .new-YOUNG .other a.json" {
		t.Errorf("played: %v, %s", err, names())
	}
	if _, err := cassette.New(cassette.Options{Dir: dir, Mode: cassette.Auto, Env: recordEnv()}); err != nil || names() != ".new-YOUNG .other a.json" {
		t.Errorf("recording: %v, %s", err, names())
	}
}

// Errors and logs are read by more people than cassettes are: what a request's URL or body holds of
// secrets is in none of them.
func TestErrors_ShowNoSecret(t *testing.T) {
	t.Parallel()
	const key, shaped = "tok0123456789abcdefXYZ", "sk-abcdefghijklmnopqrstuvwx"
	for name, u := range map[string]string{
		"known, in the path": "http://h.example/bot" + key + "/x", "known, in the host": "http://" + key + ".example/x", "known, in small letters": "http://" + strings.ToLower(key) + ".example/x",
		"shape": "http://h.example/" + shaped + "/x", "known, in the query": "http://h.example/x?api-version=" + key, "known, over two parts": "http://h.example/half/0123456789/x",
		"in a name of the body": "http://h.example/x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs bytes.Buffer
			dir := filepath.Join(t.TempDir(), "c")
			secrets := []string{key, "half/0123456789"}
			body := `{"a":1,"` + key + `":1}`
			tape, err := cassette.New(cassette.Options{Dir: dir, Mode: cassette.Record, Env: recordEnv(), Secrets: secrets, Logger: textLogger(&logs)})
			if err != nil {
				t.Fatal(err)
			}
			mustSend(t, &http.Client{Transport: tape.Wrap(says("{}", nil))}, u, body)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "a.json"), []byte(strings.Replace(good, "https://api.example.com/v1/x", "http://h.example/x", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			player, err := cassette.New(cassette.Options{Dir: dir, Secrets: secrets})
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, missed := player.Wrap(nil).RoundTrip(req)
			if resp != nil {
				_ = resp.Body.Close() // it is not asked for
			}
			refused := tape.Close()
			if refused == nil || missed == nil || logs.Len() == 0 {
				t.Fatalf("refused %v, missed %v, logged %q", refused, missed, logs.String())
			}
			for _, text := range []string{refused.Error(), missed.Error(), logs.String()} {
				for _, s := range []string{key, shaped, "half/0123456789"} {
					if strings.Contains(strings.ToLower(text), strings.ToLower(s)) {
						t.Errorf("shown: %s", text)
					}
				}
			}
		})
	}
}
