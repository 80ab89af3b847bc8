package providertest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func (s suite) largeReply(t *testing.T) {
	filler := bytes.Repeat([]byte(" "), 1<<20)
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for { // until the provider hangs up
			if _, err := w.Write(filler); err != nil {
				return
			}
		}
	})
	s.fails(t.Context(), t, u, s.open(t, u.URL), 1, provider.TargetFatal, llmq.CodeProviderError)
}

func (s suite) compressedReply(t *testing.T) {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	if _, err := io.WriteString(zw, s.Reply); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	s.fails(t.Context(), t, u, s.open(t, u.URL), 1, provider.TargetFatal, llmq.CodeProviderError)
}

// A 2xx alone is no success (case H19).
func (s suite) noReply(t *testing.T) {
	for _, tt := range []struct {
		name, media, body string
		status, length    int
		class             provider.Class
	}{
		{"page", "text/html", "<html><body>Welcome</body></html>", 200, 0, provider.Retryable},
		{"page that says JSON", "application/json", "<html></html>", 200, 0, provider.Retryable},
		{"blank lines", "application/json", "\n\n", 200, 0, provider.Retryable},
		{"nothing", "application/json", "", 200, 0, provider.Retryable},
		{"no content", "", "", 204, 0, provider.Retryable},
		{"half", "application/json", s.Reply[:len(s.Reply)/2], 200, 0, provider.Retryable},
		{"cut off", "application/json", s.Reply, 200, len(s.Reply) + 10, provider.Retryable},
		{"infinity", "application/json", `{"logprob":-Infinity,"x":1}`, 200, 0, provider.TargetFatal},
		{"null", "application/json", "null", 200, 0, provider.Retryable},
		{"a string", "application/json", `"OK"`, 200, 0, provider.Retryable},
		{"no UTF-8", "application/json", strings.Replace(s.Reply, "{", "{\"\xff\":1,", 1), 200, 0, provider.TargetFatal},
		{"a stream that nobody asked for", "text/event-stream", "data: " + s.Reply + "\n\n", 200, 0, provider.TargetFatal},
	} {
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.media)
			if tt.length > 0 {
				w.Header().Set("Content-Length", strconv.Itoa(tt.length))
			}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		e := s.fails(t.Context(), t, u, s.open(t, u.URL), 1, tt.class, llmq.CodeProviderError)
		if strings.Contains(e.Message, "html") {
			t.Errorf("%s: message = %q", tt.name, e.Message)
		}
	}
}

func (s suite) redirects(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL+"/stolen")
			w.WriteHeader(status)
		})
		s.fails(t.Context(), t, u, s.open(t, u.URL), 1, provider.TargetFatal, llmq.CodeProviderError)
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another host saw %d requests", n)
	}
}

// hostileHeaders answers with what must go no further: a cookie, an organization, an endless id.
func (s suite) hostileHeaders(t *testing.T) {
	u := s.serveRaw(t, "Set-Cookie: session=stolen; Path=/\r\nOpenai-Organization: org-secret\r\n"+
		s.RequestID+": id\xff \xc3\xa9-1"+strings.Repeat("x", 1000)+"\r\n")
	p := s.open(t, u.URL)
	for range 2 {
		resp, err := s.call(t.Context(), t, p)
		if err != nil {
			t.Fatalf("Call: %v", err)
		}
		if want := "id-1" + strings.Repeat("x", 124); resp.RequestID != want {
			t.Errorf("request id = %q, want %q", resp.RequestID, want)
		}
	}
	for _, a := range u.seen() {
		if c := a.header.Get("Cookie"); c != "" {
			t.Errorf("the cookie came back: %q", c)
		}
	}
}

// malformedHeaders may be refused or mended; what they hold goes nowhere, not even into the log.
func (s suite) malformedHeaders(t *testing.T) {
	for _, header := range []string{
		s.RequestID + ": id\x00\x1b[31mred\r\n",
		s.RequestID + ": id\rSet-Cookie: a=b\r\n",
		s.RequestID + ": id\nX-Second: 1\r\n",
		"no colon in this line" + strings.Repeat("!", 10_000) + "\r\n",
		"Bad Name: 1\r\n",
		": 1\r\n",
	} {
		u := s.serveRaw(t, header)
		resp, err := s.call(t.Context(), t, s.open(t, u.URL))
		got := ""
		switch e, ok := errors.AsType[*provider.Error](err); {
		case ok && e.Class == provider.Retryable:
			got = err.Error()
		case err != nil:
			t.Errorf("header %.40q: %v", header, err)
		default:
			got = resp.RequestID
		}
		if strings.ContainsFunc(got, unicode.IsControl) || len(got) > 2000 {
			t.Errorf("header %.40q comes through: %.200q", header, got)
		}
		if n := len(u.seen()); n != 1 {
			t.Errorf("header %.40q: the upstream saw %d requests, want 1", header, n)
		}
	}
}

// serveRaw answers with the good reply and header lines that net/http's server would not write.
func (s suite) serveRaw(t *testing.T, lines string) *upstream {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close() // The reply is written and flushed; nothing depends on the close.
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n" + lines + "\r\n" + s.Reply)
		if err := rw.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

func (s suite) largeHeader(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		s.reply(w, r)
	})
	s.fails(t.Context(), t, u, s.open(t, u.URL), 1, provider.TargetFatal, llmq.CodeProviderError)
}

// credentialIsInNoError has the upstream repeat what it got in every place of a refusal.
func (s suite) credentialIsInNoError(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 429, 500} {
		u := serve(t, func(w http.ResponseWriter, r *http.Request) {
			echo := strings.ReplaceAll(r.Header.Get("Authorization"), `"`, "'") + " " + s.Secret
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"`+echo+`","error":{"message":"`+echo+`","code":"`+echo+`","type":"`+echo+`"}}`)
		})
		_, err := s.call(t.Context(), t, s.open(t, u.URL))
		if err == nil {
			t.Fatalf("status %d is a success", status)
		}
		if strings.Contains(err.Error(), s.Secret) {
			t.Errorf("status %d: the credential is in the error: %v", status, err)
		}
		if e, ok := err.(*provider.Error); ok && (status == 401 || status == 403) && e.Message != "" { //nolint:errorlint // Call returns it unwrapped.
			t.Errorf("status %d: the caller is told %q", status, e.Message)
		}
	}
}
