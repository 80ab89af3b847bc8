package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

// KT4: each route asks for its own scope, and reading is no call of the minute.
func TestCalls_Scopes(t *testing.T) {
	t.Parallel()
	keys := map[auth.Scope]string{}
	for _, s := range auth.Scopes() {
		wish := authtest.All("team-a", "chat-a")
		wish.Scopes = []auth.Scope{s}
		keys[s] = testKeys.Issue(wish).Key
	}
	for _, tc := range []struct {
		method, path string
		scope        auth.Scope
	}{
		{http.MethodPost, "", auth.ScopeSubmit},
		{http.MethodGet, "/r-1", auth.ScopeRead},
		{http.MethodGet, "/r-1/result", auth.ScopeRead},
		{http.MethodGet, "/r-1/stream", auth.ScopeRead},
		{http.MethodDelete, "/r-1", auth.ScopeCancel},
	} {
		for scope, key := range keys {
			b := setup(t, nil)
			b.calls.follow = func(int64) (llmq.Stream, error) { return &scripted{parts: []part{{0, "", io.EOF}}}, nil }
			b.stands(doneCall(`{}`))
			w := b.send(tc.method, callsPath+tc.path, submitted, "Authorization", "Bearer "+key)
			if refused := w.Code == http.StatusForbidden; refused != (scope != tc.scope) {
				t.Errorf("%s %s with the scope %s: %d", tc.method, tc.path, scope, w.Code)
			}
		}
	}
}

// SEC06, KT6: another tenant's id is an unknown id, on every route.
func TestCalls_OfOthersAre404(t *testing.T) {
	t.Parallel()
	other := testKeys.Issue(authtest.All("team-b", "chat-a")).Key
	b := setup(t, nil)
	b.submit(submitted)
	for _, m := range []string{http.MethodGet + " /r-1", http.MethodGet + " /r-1/result", http.MethodGet + " /r-1/stream", http.MethodDelete + " /r-1", http.MethodGet + " /unknown"} {
		method, path, _ := strings.Cut(m, " ")
		w := b.send(method, callsPath+path, "", "Authorization", "Bearer "+other)
		if e := nativeErrorOf(t, w); w.Code != http.StatusNotFound || e.Code != "call_not_found" {
			t.Errorf("%s: got %d %+v", m, w.Code, e)
		}
	}
	if c := document(t, b.get("/r-1")); c.State != llmq.StateQueued {
		t.Errorf("it is %s after all that", c.State)
	}
}

// A9: each state and what its two routes say.
func TestCalls_EachState(t *testing.T) {
	t.Parallel()
	failed := func(s llmq.State, code llmq.Code) llmq.Call {
		e := llmq.Errorf(code, "so it went")
		e.Final, e.Meta = true, testMeta
		return llmq.Call{ID: "r-1", State: s, Attempts: 2, Err: e}
	}
	for _, tc := range []struct {
		call           llmq.Call
		status, result int
		retryable      bool
	}{
		{llmq.Call{ID: "r-1", State: llmq.StateQueued}, 202, 202, false},
		{llmq.Call{ID: "r-1", State: llmq.StateRunning}, 202, 202, false},
		{doneCall(`{"a":1}`), 200, 200, false},
		{failed(llmq.StateFailed, llmq.CodeRateLimited), 200, 429, true},
		{failed(llmq.StateCancelled, llmq.CodeCancelled), 200, llmq.CodeCancelled.Info().Status, false},
		{failed(llmq.StateExpired, llmq.CodeExpired), 200, llmq.CodeExpired.Info().Status, false},
		{failed(llmq.StateDead, llmq.CodeWorkerCrash), 200, 500, false},
	} {
		b := setup(t, nil)
		b.stands(tc.call)
		w := b.get("/r-1")
		c := document(t, w)
		if w.Code != tc.status || c.State != tc.call.State || (c.Error != nil) != (tc.call.Err != nil) {
			t.Errorf("%s: got %d %s", tc.call.State, w.Code, w.Body)
		}
		if c.Error != nil && (c.Error.Retryable != tc.retryable || c.Meta.Target != testMeta.Target) {
			t.Errorf("%s: error %+v, meta %+v", tc.call.State, c.Error, c.Meta)
		}
		w = b.get("/r-1/result")
		if w.Code != tc.result || tc.call.Err != nil && (w.Header().Get("X-Should-Retry") != "false" || w.Header().Get("X-LLMQ-Attempts") != "2") {
			t.Errorf("%s: the result is %d %v %s", tc.call.State, w.Code, w.Header(), w.Body)
		}
	}
	b := setup(t, nil)
	b.calls.refuses = llmq.Errorf(llmq.CodeResultExpired, "gone")
	for _, path := range []string{"/r-1", "/r-1/result", "/r-1/stream"} {
		if w := b.get(path); w.Code != http.StatusGone || nativeErrorOf(t, w).Code != "result_expired" {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// A9: the provider's bytes and media type, as they are; and within the document, JSON or not.
func TestResult_IsTheProvidersBytes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	body := "{ \"a\": 1.0,\n\"b\":\"<é>\" }"
	b.stands(doneCall(body))
	w := b.get("/r-1/result")
	if w.Code != 200 || w.Body.String() != body || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-LLMQ-Target") != "chat-a@eu" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := b.get("/r-1"); !strings.HasSuffix(w.Body.String(), `"result":{"content_type":"application/json","body":`+body+`}}`) {
		t.Errorf("got %s", w.Body)
	}
	stream := doneCall("data: x\n\n")
	stream.Reply.ContentType, stream.Reply.Stream = "text/event-stream", true
	b.stands(stream)
	if w := b.get("/r-1/result"); w.Body.String() != "data: x\n\n" || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %v %s", w.Header(), w.Body)
	}
	if w := b.get("/r-1"); !strings.Contains(w.Body.String(), `"body_base64":"`+base64.StdEncoding.EncodeToString([]byte("data: x\n\n"))+`"`) {
		t.Errorf("got %s", w.Body)
	}
}

// A9: a wait ends with the call, or with 202 when it is over.
func TestCalls_WaitOfTheQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.submit(submitted)
		begun := time.Now()
		if w := b.get("/r-1?wait=5"); w.Code != 202 || time.Since(begun) != 5*time.Second {
			t.Errorf("after %s: %d", time.Since(begun), w.Code)
		}
		b.calls.ends = make(chan llmq.Call, 1)
		b.calls.ends <- doneCall(`{}`)
		if w := b.get("/r-1/result?wait=280"); w.Code != 200 || w.Body.String() != `{}` {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
	b := setup(t, nil)
	b.submit(submitted)
	for _, query := range []string{"wait=281", "wait=-1", "wait=1s", "wait=", "wait=1&wait=2", "waits=1", "wait=%zz", "wait=99999999999999999999"} {
		if w := b.get("/r-1?" + query); w.Code != 400 || nativeErrorOf(t, w).Field == "" {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
}

// A5: cancelled for all; what has ended stays, and the state says so.
func TestWithdraw_AnswersWithTheState(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.submit(submitted)
	for range 2 {
		w := b.send(http.MethodDelete, callsPath+"/r-1", "")
		if c := document(t, w); w.Code != 200 || c.State != llmq.StateCancelled || c.Error.Code != "cancelled" {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	b.stands(doneCall(`{}`))
	w := b.send(http.MethodDelete, callsPath+"/r-1", "")
	if c := document(t, w); w.Code != 200 || c.State != llmq.StateDone || strings.Contains(w.Body.String(), `"result":{`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestCalls_PathsAndMethods(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{
		"": 405, "/": 404, "/a/b": 404, "/a/result/": 404, "/a%20b": 400, "/a%zz": 400, "/" + strings.Repeat("a", 129): 400, "/r-1": 404,
	} {
		b := setup(t, nil)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: callsPath + path, RawPath: callsPath + path}
		r.Header.Set("Authorization", "Bearer "+testSecret)
		w := httptest.NewRecorder()
		b.door.ServeHTTP(w, r)
		if w.Code != status || nativeErrorOf(t, w).Code == "" {
			t.Errorf("%q: got %d %s", path, w.Code, w.Body)
		}
	}
	b := setup(t, nil)
	if w := b.send(http.MethodPut, callsPath+"/r-1", ""); w.Code != 405 || w.Header().Get("Allow") != "GET, DELETE" {
		t.Errorf("got %d, allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// A submission that can be told from none gets its id, whatever its wait ends in.
func TestSubmit_ErrorOfTheWaitIsNotItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	w := b.submit(submitted, "Prefer", "wait=1")
	if w.Code != 202 {
		t.Errorf("got %d", w.Code)
	}
	b = setup(t, nil)
	b.calls.refuses = llmq.Errorf(llmq.CodeIdempotencyMismatch, "another body")
	if w := b.submit(submitted); w.Code != 422 || nativeErrorOf(t, w).Code != "idempotency_mismatch" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	b.calls.refuses = llmq.Errorf(llmq.CodeQueueUnavailable, "down").After(2 * time.Second)
	if w := b.submit(submitted); w.Code != 503 || !nativeErrorOf(t, w).Retryable || nativeErrorOf(t, w).RetryAfterMS != 2000 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	b.calls.refuses = fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
	if w := b.submit(submitted); w.Code != 500 || strings.Contains(w.Body.String(), "deadline exceeded") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	var none *llmq.Error
	if errors.As(b.calls.refuses, &none) {
		t.Error("a foreign error is one of ours")
	}
}
