package rig

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSettings_ReachTheFunctions(t *testing.T) {
	t.Parallel()
	got, err := settings([]string{
		"PATH=/bin", "LLMQ_LOCAL_PORT=8080", "LLMQ_ADMIN_URL=http://x", "LLMQ_ADMIN_KEY=k", "LLMQ_DOOR_WAIT_SECS=20", "LLMQ_FOO=1", "LLMQ_REDIS_HOST=",
	}, tape{})
	if want := []string{"LLMQ_DOOR_WAIT_SECS=20", "LLMQ_FOO=1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("settings = %q, %v; want %q", got, err, want)
	}
}

// What the rig makes itself is refused, not ignored.
func TestSettings_OwnPartsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"LLMQ_CONFIG", "LLMQ_REDIS_HOST", "LLMQ_REDIS_URL", "LLMQ_SQS_ENDPOINT_URL", "LLMQ_SQS_URL_BASE", "LLMQ_SQS_SENDER_IDS", "LLMQ_SQS_WORKER_IDS", "LLMQ_S3_OFFLOAD_BUCKET", "LLMQ_AWS_REGION"} {
		if _, err := settings([]string{name + "=x"}, tape{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who brings a file is told what to do instead.
func TestSettings_AFileIsRefusedWithAWayOut(t *testing.T) {
	t.Parallel()
	if _, err := settings([]string{"LLMQ_CONFIG=x"}, tape{}); err == nil || !strings.Contains(err.Error(), "LLMQ_SETTINGS") {
		t.Errorf("got %v", err)
	}
}

func TestFirstModel_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a list", `{"data":[{"id":"m-1"},{"id":"m-2"}]}`, 200, ""},
		{"an empty list", `{"data":[]}`, 200, "lists no models"},
		{"a page", `<html>`, 200, "/v1"},
		{"no such path", ``, 404, "/v1"},
		{"a refused key", ``, 401, "OPENAI_API_KEY"},
		{"a redirect", ``, 307, "/v1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer k" {
					t.Errorf("asked for %s as %q", r.URL, r.Header.Get("Authorization"))
				}
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body)) // a test server
			}))
			t.Cleanup(srv.Close)
			got, err := firstModel(t.Context(), srv.URL+"/v1/", "k")
			if tt.want == "" {
				if err != nil || got != "m-1" {
					t.Errorf("first model = %q, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
		})
	}
}

func TestFirstModel_NobodyThere(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	if _, err := firstModel(t.Context(), url, ""); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("error = %v", err)
	}
}

// CS2: what is wrong with cassettes is told before anything is built, and what can't be
// recorded is not paid for.
func TestFindTape_TellsFaultsBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ env, want string }{
		{"LLMQ_CASSETTE=banana", "use record, replay or auto"},
		{"LLMQ_CASSETTE=replay", "set LLMQ_CASSETTE_DIR"},
		{"LLMQ_CASSETTE=replay LLMQ_CASSETTE_DIR=" + dir + "/nope", "no such file"},
		{"LLMQ_CASSETTE=auto LLMQ_CASSETTE_DIR=" + dir + "/nope", "holds no recordings"},
		{"LLMQ_CASSETTE=record LLMQ_CASSETTE_DIR=" + file, "not a directory"},
		{"LLMQ_CASSETTE=record LLMQ_CASSETTE_DIR=" + dir + " CI=1", "CI"},
	} {
		_, err := findTape(strings.Fields(tt.env))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.env, err, tt.want)
		}
	}
	empty := filepath.Join(dir, "empty")
	got, err := findTape([]string{"LLMQ_CASSETTE=record", "LLMQ_CASSETTE_DIR=" + empty})
	if err != nil || got.plays() || got.dir != empty {
		t.Errorf("record = %+v, %v", got, err)
	}
	if _, err := findTape([]string{"LLMQ_CASSETTE=replay", "LLMQ_CASSETTE_DIR=" + empty}); err == nil || !strings.Contains(err.Error(), "holds no recordings") {
		t.Errorf("an empty folder: %v", err)
	}
	if got, err := findTape(nil); err != nil || got != (tape{}) {
		t.Errorf("no cassette = %+v, %v", got, err)
	}
}
