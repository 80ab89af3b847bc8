package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStream_StatusAndHeadersComeBeforeTheBody(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-One", "1")
		w.Header()["X-Two"] = []string{"1", "2"}
		w.Header().Set("Content-Length", "8")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK) // too late
		w.Header().Set("X-Late", "1")
		_, _ = io.WriteString(w, "1234")
		<-more
		_, _ = io.WriteString(w, "5678")
	}), func() {})
	res, err := h(t.Context(), json.RawMessage(h01(nil)))
	if err != nil || res.StatusCode != http.StatusTeapot {
		t.Fatalf("got %d, %v", res.StatusCode, err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "1234" {
		t.Fatalf("the first part waits for the second: %q, %v", first, err)
	}
	close(more)
	a := drain(t, res)
	if a.body != "5678" || a.Headers["X-One"] != "1" || len(a.MultiValueHeaders["X-Two"]) != 2 || a.Headers["X-Late"] != "" || a.Headers["Content-Length"] != "" {
		t.Errorf("got %+v", a)
	}
}

func TestStream_HandlerThatWritesNothingIs200(t *testing.T) {
	t.Parallel()
	h := newHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() {})
	if a := invoke(t, h, h01(nil)); a.StatusCode != http.StatusOK || a.body != "" {
		t.Errorf("got %+v", a)
	}
}

func TestStream_PanicBeforeTheStatusIsA500InTheCallersShape(t *testing.T) {
	t.Parallel()
	h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "1")
		panic("canary7f3a")
	}), func() {})
	a := invoke(t, h, h01(nil))
	if a.StatusCode != 500 || !strings.Contains(a.body, `"code":"internal_error"`) || strings.Contains(a.body, "canary") || a.Headers["X-Half"] != "" {
		t.Errorf("got %+v", a)
	}
	a = invoke(t, h, h01(map[string]any{"path": "/model/x/converse"}))
	if a.StatusCode != 500 || a.Headers["X-Amzn-Errortype"] != "InternalServerException" {
		t.Errorf("got %+v", a)
	}
}

// A stream that broke must not look like one that is complete.
func TestStream_PanicAfterTheStatusCutsTheBodyOff(t *testing.T) {
	t.Parallel()
	h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("canary7f3a")
	}), func() {})
	res, err := h(t.Context(), json.RawMessage(h01(nil)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if string(got) != "half" || err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %q, %v", got, err)
	}
}

// Who reads no further ends the handler, and Close waits for that end.
func TestStream_CloseEndsTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		var wrote error
		h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			<-r.Context().Done()
			<-time.After(time.Second) // bubble time: cleaning up takes a while
			_, wrote = io.WriteString(w, "nobody reads this")
			ended = true
		}), func() {})
		res, err := h(t.Context(), json.RawMessage(h01(nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Close(); err != nil {
			t.Fatal(err)
		}
		if !ended || !errors.Is(wrote, io.ErrClosedPipe) {
			t.Errorf("Close did not wait, or the write went through: %t, %v", ended, wrote)
		}
	})
}

func TestStream_ContextIsTheInvocations(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Hour)
	defer cancel()
	h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); !ok || r.Context().Value(key{}) != "v" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}), func() {})
	res, err := h(ctx, json.RawMessage(h01(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if a := drain(t, res); a.StatusCode != http.StatusOK {
		t.Errorf("got %d", a.StatusCode)
	}
}

// What was counted is told when the handler has ended, and before the body does: the process may be frozen then.
func TestStream_TellsBeforeTheBodyEnds(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"reply": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") },
		"panic": func(http.ResponseWriter, *http.Request) { panic("canary7f3a") },
	} {
		var ended, told int
		h := newHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { ended++ }()
			serve(w, r)
		}), func() { told += ended })
		invoke(t, h, h01(nil))
		if told != 1 {
			t.Errorf("%s: told %d times after the handler's end, want once", name, told)
		}
	}
}
