package rig_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// upstream is a provider of a test's own, which keeps the bytes that it is sent.
type upstream struct {
	*httptest.Server
	hold chan struct{} // an answer waits until it is closed; nil is not

	mu     sync.Mutex // guards bodies
	bodies [][]byte
}

const upstreamKey = "0123456789-upstream"

func newUpstream(t *testing.T, hold chan struct{}) *upstream {
	t.Helper()
	u := &upstream{hold: hold}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off
		}
		u.mu.Lock()
		u.bodies = append(u.bodies, body)
		u.mu.Unlock()
		if u.hold != nil {
			<-u.hold
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_0123456789abcdef0123456789abcdef")
		_, _ = io.WriteString(w, upstreamAnswer) // a test server
	}))
	t.Cleanup(u.Close)
	return u
}

const upstreamAnswer = `{"id":"u1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"one answer"}}]}`

func (u *upstream) seen() [][]byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([][]byte(nil), u.bodies...)
}

func (u *upstream) env(more ...string) []string {
	return append([]string{"OPENAI_BASE_URL=" + u.URL + "/v1", "OPENAI_API_KEY=" + upstreamKey}, more...)
}

// invokeDoor gives the door's function an event as some gateway would, and returns its answer.
func invokeDoor(t *testing.T, r *rig.Rig, event map[string]any) (status int, body []byte) {
	t.Helper()
	raw, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Lambda.InvokeStream(within(t, time.Minute), cloud.FunctionEnqueue, raw)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // it was read to its end
	all, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := bytes.Cut(all, make([]byte, 8))
	var prelude struct{ StatusCode int }
	if err := json.Unmarshal(head, &prelude); err != nil {
		t.Fatalf("%q: %v", all, err)
	}
	return prelude.StatusCode, body
}

// H01: the event of our gateway in all its forms reaches the provider byte for byte, and
// those of other gateways are refused before a queue.
func TestGateway_H01EventsOfGateways(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	r := ownRig(t, rig.Options{Env: u.env()})
	const text = `{"model":"chat-a","messages":[{"role":"user","content":"café ☕"}]}`
	event := func(set map[string]any) map[string]any {
		e := map[string]any{
			"httpMethod": "POST", "path": "/v1/chat/completions",
			"headers":           map[string]string{"AUTHORIZATION": "Bearer " + r.Key, "Content-Type": "application/json; charset=utf-8"},
			"multiValueHeaders": nil, "queryStringParameters": nil,
			"requestContext": map[string]any{"stage": "prod", "path": "/prod/v1/chat/completions"},
			"body":           text, "isBase64Encoded": false,
		}
		for name, value := range set {
			e[name] = value
		}
		return e
	}
	taken := 0
	for _, tt := range []struct {
		name   string
		event  map[string]any
		status int
	}{
		{"b", event(nil), 200},
		{"b in base64", event(map[string]any{"body": base64.StdEncoding.EncodeToString([]byte(text)), "isBase64Encoded": true}), 200},
		{"d", event(map[string]any{"path": "/prod/v1/chat/completions"}), 200},
		{"e", event(map[string]any{"requestContext": map[string]any{"stage": "v1"}}), 200},
		{"e with the stage in the path", event(map[string]any{"path": "/v1/v1/chat/completions", "requestContext": map[string]any{"stage": "v1"}}), 200},
		{"f", event(map[string]any{"body": nil}), 400},
		{"a", map[string]any{
			"version": "2.0", "rawPath": "/v1/chat/completions", "headers": map[string]string{"authorization": "Bearer " + r.Key}, "body": text,
			"requestContext": map[string]any{"stage": "$default", "http": map[string]any{"method": "POST", "path": "/v1/chat/completions"}},
		}, 400},
		{"c", map[string]any{
			"httpMethod": "POST", "path": "/v1/chat/completions", "multiValueHeaders": map[string]any{"authorization": []string{"Bearer " + r.Key}}, "body": text,
			"requestContext": map[string]any{"elb": map[string]any{}},
		}, 400},
		{"empty", map[string]any{}, 400},
	} {
		status, body := invokeDoor(t, r, tt.event)
		if status != tt.status {
			t.Fatalf("%s: got %d %s", tt.name, status, body)
		}
		if status == 200 {
			taken++
			continue
		}
		var e struct{ Error struct{ Type string } }
		if err := json.Unmarshal(body, &e); err != nil || e.Error.Type != "invalid_request_error" {
			t.Errorf("%s: got %s", tt.name, body)
		}
	}
	seen := u.seen()
	if len(seen) != taken {
		t.Errorf("the provider was called %d times, want %d", len(seen), taken)
	}
	for _, body := range seen {
		if !bytes.Contains(body, []byte("\x63\x61\x66\xc3\xa9\x20\xe2\x98\x95")) {
			t.Errorf("the provider got %q", body)
		}
	}
}

// H02: who waits longer than the door does is told in the door's own words, pays once, and
// gets that one answer under the same key. (25 s and 40 s of the case are 1 s and as long
// as it takes here.)
func TestGateway_H02SlowerThanTheDoor(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	u := newUpstream(t, hold)
	t.Cleanup(release) // before the server's Close, which waits for its calls
	r := ownRig(t, rig.Options{Env: u.env(), Change: func(c *config.Config) { c.Door.Wait = time.Second }})
	slow := call{
		body:   `{"model":"chat-a","messages":[{"role":"user","content":"slow"}]}`,
		header: map[string]string{"Idempotency-Key": "slow-1", "X-LLMQ-Lane": "rt"},
	}
	began := time.Now()
	resp, body := send(t, r, slow)
	var e struct {
		Error struct{ Code, Message string }
	}
	id := resp.Header.Get("X-LLMQ-Request-Id")
	if err := json.Unmarshal(body, &e); err != nil || resp.StatusCode != http.StatusGatewayTimeout || e.Error.Code != "timeout" || resp.Header.Get("X-Should-Retry") != "false" || id == "" {
		t.Fatalf("got %d %s %v", resp.StatusCode, body, resp.Header)
	}
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("the door waited %v", waited)
	}
	if strings.Contains(string(body), "Endpoint request timed out") || !strings.Contains(e.Error.Message, "Idempotency-Key") {
		t.Errorf("message %q", e.Error.Message)
	}
	if resp, _ := send(t, r, slow); resp.StatusCode != http.StatusGatewayTimeout || resp.Header.Get("X-LLMQ-Request-Id") != id {
		t.Errorf("a repeat while it runs got %d, id %q and not %q", resp.StatusCode, resp.Header.Get("X-LLMQ-Request-Id"), id)
	}
	release()
	eventually(t, "the answer of the one call", func() bool {
		resp, body = send(t, r, slow)
		return resp.StatusCode != http.StatusGatewayTimeout
	})
	if resp.StatusCode != 200 || string(body) != upstreamAnswer || resp.Header.Get("X-LLMQ-Request-Id") != id {
		t.Errorf("got %d %s, id %q and not %q", resp.StatusCode, body, resp.Header.Get("X-LLMQ-Request-Id"), id)
	}
	if n := len(u.seen()); n != 1 {
		t.Errorf("the provider was called %d times", n)
	}
}

// A door that dies is told as the deployed API tells it, and the next call is served.
func TestGateway_FailedFunctionIsToldAsDeployed(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if err := r.Lambda.CrashNext(cloud.FunctionEnqueue, 1); err != nil {
		t.Fatal(err)
	}
	resp, body := send(t, r, call{body: fine})
	if resp.StatusCode != 500 || resp.Header.Get("X-LLMQ-Error-Code") != "internal_error" || resp.Header.Get("X-Should-Retry") != "false" || !json.Valid(body) {
		t.Errorf("got %d %s %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := send(t, r, call{body: fine}); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", resp.StatusCode, body)
	}
}

// F3, CS1, CS2: what one local cloud records another plays, with the provider gone. A call
// that was not recorded ends at once, is told why, and reaches nobody.
func TestGateway_CassettesThroughTheWholeCloud(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles a worker with cassettes")
	}
	worker := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc,llmq_cassette", "-o", worker, "github.com/llm-queue/llmq/functions/worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "cassettes")
	u := newUpstream(t, nil)
	inMode := func(mode string) *rig.Rig {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f := functions
		f.Worker = worker
		r, err := rig.Start(ctx, rig.Options{Functions: f, Output: os.Stderr, Env: u.env("LLMQ_CASSETTE="+mode, "LLMQ_CASSETTE_DIR="+dir)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := stop(r); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	for _, mode := range []string{"record", "replay"} {
		r := inMode(mode)
		for _, lane := range []string{"rt", "bg"} { // by two functions, each of them for itself
			body := `{"model":"chat-a","messages":[{"role":"user","content":"in ` + lane + `"}]}`
			resp, got := send(t, r, call{body: body, header: map[string]string{"X-LLMQ-Lane": lane}})
			if resp.StatusCode != 200 || string(got) != upstreamAnswer {
				t.Fatalf("%s in %s: got %d %s", mode, lane, resp.StatusCode, got)
			}
		}
		u.Close() // nobody is there any more
		if mode == "record" {
			continue
		}
		resp, got := send(t, r, call{body: `{"model":"chat-a","messages":[{"role":"user","content":"never heard"}]}`})
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(got, &e); err != nil || resp.StatusCode != 500 || e.Error.Code != string(llmq.CodeConfiguration) || resp.Header.Get("X-Should-Retry") != "false" ||
			resp.Header.Get("X-LLMQ-Attempts") != "1" || !strings.Contains(e.Error.Message, "body at /messages/0/content") || strings.Contains(e.Error.Message, "never heard") {
			t.Errorf("a miss got %d %s %v", resp.StatusCode, got, resp.Header)
		}
	}
	if n := len(u.seen()); n != 2 {
		t.Errorf("the provider was called %d times", n)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{upstreamKey, "Bearer", "req_0123456789abcdef"} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds %s:\n%s", f.Name(), secret, text)
			}
		}
	}
}
