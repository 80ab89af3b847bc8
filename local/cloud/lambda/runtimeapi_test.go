package lambda

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// address returns where an instance's Runtime API is.
func address(t *testing.T, h *Host) string {
	t.Helper()
	var env []string
	if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "env"}).Payload, &env); err != nil {
		t.Fatal(err)
	}
	for _, kv := range env {
		if a, ok := strings.CutPrefix(kv, "AWS_LAMBDA_RUNTIME_API="); ok {
			return a
		}
	}
	t.Fatal("no AWS_LAMBDA_RUNTIME_API")
	return ""
}

func TestRuntimeAPI_RefusesWhatBreaksItsOrder(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	addr := address(t, h)
	g := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	conn := g.accept()

	const base = "/2018-06-01/runtime/"
	tests := []struct {
		name, method, path string
		edit               func(*http.Request)
		status             int
		body               string
	}{
		{"next while it owes an answer", "GET", "invocation/next", nil, 403, "InvalidStateTransition"},
		{"response to another id", "POST", "invocation/nobody/response", nil, 400, "InvalidRequestID"},
		{"error to another id", "POST", "invocation/nobody/error", nil, 400, "InvalidRequestID"},
		{"unknown response mode", "POST", "invocation/nobody/response", func(r *http.Request) { r.Header.Set(headerResponseMode, "x") }, 400, "InvalidResponseMode"},
		{"init error after init", "POST", "init/error", nil, 403, "InvalidStateTransition"},
		{"unknown path", "GET", "nothing", nil, 404, ""},
		{"from a web page", "GET", "invocation/next", func(r *http.Request) { r.Header.Set("Origin", "http://evil.test") }, 403, "Forbidden"},
		{"by a rebound name", "GET", "invocation/next", func(r *http.Request) { r.Host = "evil.test" }, 403, "Forbidden"},
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, tt := range tests {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+addr+base+tt.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if tt.edit != nil {
			tt.edit(r)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, resp.StatusCode, body, tt.status, tt.body)
		}
	}

	send(t, conn, "c")
	if res := <-running; res.FunctionError != "" {
		t.Errorf("the invocation in progress suffered: %s", res.Payload)
	}
}

// A process may die between becoming idle and being noticed. What it was given meanwhile, no code has seen: another
// process can have it.
func TestInvoke_GivenToADyingIdleWorkerGoesToAnother(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.Freeze = false // it gives its request up by itself
		c.Env = []string{"INIT=dropper"}
	})
	if res := invoke(t, h, map[string]any{}); string(res.Payload) != `"dropper"` {
		t.Fatalf("got %s", res.Payload)
	}
	f, err := h.function("fn")
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	first := f.instances[0]
	f.mu.Unlock()
	first.handlers.Wait() // its request for work has been given up

	results := make(chan Result, 1)
	go func() { results <- invoke(t, h, map[string]any{}) }()
	eventually(t, "assigned", func() bool { return first.info().State == StateBusy })
	if err := syscall.Kill(first.info().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if res := <-results; string(res.Payload) != `"dropper"` || res.FunctionError != "" {
		t.Errorf("got %s", res.Payload)
	}
	if s := h.Stats("fn"); s.ColdStarts != 2 || s.Invocations != 2 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
}
