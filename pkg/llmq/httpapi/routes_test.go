package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// KT5: the routes, and which of them are open, change only by a visible change here.
func TestRoutes_AreTheGoldenTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, rt := range table() {
		key, op := map[access]string{open: "open", anyKey: "any key"}[rt.access], string(rt.op)
		if key == "" {
			key = string(rt.access.scope())
		}
		if op == "" {
			op = "-"
		}
		fmt.Fprintf(&b, "%-6s %-7s %-10s %s\n", rt.Method, key, op, rt.Path)
	}
	golden(t, "testdata/routes.golden", b.String())
}

// pathOf is a path of a route.
func pathOf(rt route) string {
	return strings.NewReplacer(modelID, "conv-a", callID, "r-1").Replace(rt.Path)
}

// SEC08, without its admin half.
func TestServeHTTP_EveryRouteAndMethodNeedsAKeyButHealth(t *testing.T) {
	t.Parallel()
	for _, rt := range table() {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "BREW"} {
			b := setup(t, ok)
			w := b.send(method, pathOf(rt), chatBody, "Authorization", "")
			want := http.StatusUnauthorized
			if rt.access == open {
				want = http.StatusMethodNotAllowed
				if method == rt.Method {
					want = http.StatusOK
				}
			}
			if w.Code != want || len(b.calls.requests()) != 0 {
				t.Errorf("%s %s without a key: got %d, want %d", method, rt.Path, w.Code, want)
			}
		}
	}
}

// KT5: a handler that nobody put a check before refuses by itself.
func TestHandlers_RefuseTheZeroCaller(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	for _, rt := range table() {
		if rt.access == open {
			continue
		}
		x := &exchange{w: httptest.NewRecorder(), r: httptest.NewRequest(rt.Method, "/", strings.NewReader(chatBody)), matched: matched{route: rt, param: "conv-a"}}
		if err := llmq.AsError(rt.serve(b.door, x, auth.Caller{})); err == nil || err.Code != llmq.CodeForbidden {
			t.Errorf("%s: got %v, want forbidden", rt.Path, err)
		}
	}
	if len(b.calls.requests()) != 0 {
		t.Error("a call was handed over")
	}
}

func TestServeHTTP_KnownPathWrongMethodIs405(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	w := b.send(http.MethodGet, "/v1/chat/completions", "")
	b.refused(t, w, http.StatusMethodNotAllowed, llmq.CodeMethodNotAllowed)
	if got := w.Header().Get("Allow"); got != "POST" {
		t.Errorf("Allow is %q", got)
	}
}

func TestServeHTTP_UnknownPathIs404AndListsThePaths(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/", "/v1", "/v1/chat/completions/", "//v1/chat/completions", "/v1/Chat/completions", "/v1/chat%2Fcompletions", "/v1/x/../models", "/v1/models/chat-a",
		"/v1/files", "/converse", "/prod/v1/models", "/v1/chat/completions;x",
	} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, path, chatBody)
		b.refused(t, w, http.StatusNotFound, llmq.CodeUnknownRoute)
		if _, message := openAI(t, w); !strings.Contains(message, "POST /v1/chat/completions") || !strings.Contains(message, "GET /health") {
			t.Errorf("%s: the paths are not listed: %s", path, message)
		}
	}
	for _, path := range []string{"/model/converse", "/model/", "/model/a/b", "/model/" + strings.Repeat("a", maxPathBytes) + "/converse"} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, path, chatBody)
		if w.Code != http.StatusNotFound || w.Header().Get("X-Amzn-Errortype") != "UnknownOperationException" {
			t.Errorf("%.40s: got %d %v", path, w.Code, w.Header())
		}
	}
}

func TestHasRoute_LooksAtThePathOnly(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/v1/chat/completions": true, "/health": true, "/model/a/invoke": true, "/model/a%2Fb/converse": true,
		"/prod/v1/chat/completions": false, "/v1/v1/models": false, "": false, "/model/a": false,
	} {
		if got := HasRoute(path); got != want {
			t.Errorf("%s: got %t", path, got)
		}
	}
}

func TestRoutes_AreAllListed(t *testing.T) {
	t.Parallel()
	if got, want := len(Routes()), len(table()); got != want || Routes()[0] != (Route{"POST", "/v1/chat/completions"}) {
		t.Errorf("got %v", Routes())
	}
}
