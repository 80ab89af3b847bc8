package egress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// SEC15: a few KB that inflate to a lot are never inflated.
func TestDo_SEC15CompressedReplyIsRefused(t *testing.T) {
	t.Parallel()
	bomb := tenGigabytes(t)
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	c := open(t, srv.URL, local(), hooks{})
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.TargetFatal, llmq.CodeProviderError)
	if !errors.Is(err, errEncoded) {
		t.Errorf("Do = %v, want %v", err, errEncoded)
	}
}

// tenGigabytes is gzip within gzip: some KB that inflate to 10 MB, and those to 10 GB.
func tenGigabytes(t *testing.T) []byte {
	t.Helper()
	shrink := func(chunk []byte, times int) []byte {
		var buf bytes.Buffer
		zw, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			if _, err := zw.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if err := zw.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	// One member holds 10 MB; a thousand members in a row are a gzip stream again.
	inner := shrink(make([]byte, 1<<20), 10)
	return shrink(inner, 1000)
}

func TestDo_StopsAtTheLargestBody(t *testing.T) {
	t.Parallel()
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	tests := []struct {
		name  string
		write func(w http.ResponseWriter)
		fatal bool
	}{
		{"announced", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", fmt.Sprint(MaxBodyBytes+1))
			w.WriteHeader(http.StatusOK)
		}, true},
		{"in chunks", func(w http.ResponseWriter) {
			for range 21 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, true},
		{"without end", func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, true},
		{"exactly as large as allowed", func(w http.ResponseWriter) {
			for range 20 {
				_, _ = w.Write(chunk)
			}
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { tt.write(w) })
			c := open(t, srv.URL, local(), hooks{})
			reply, err := c.Do(post(t, srv.URL, "{}"))
			if !tt.fatal {
				if err != nil || len(reply.Body) != MaxBodyBytes {
					t.Errorf("Do = %d bytes, %v; want %d", len(reply.Body), err, MaxBodyBytes)
				}
				return
			}
			want(t, err, provider.TargetFatal, llmq.CodeProviderError)
			if !errors.Is(err, errTooLarge) {
				t.Errorf("Do = %v, want %v", err, errTooLarge)
			}
		})
	}
}

// The connection is closed at once, not when the call's context ends.
func TestDo_HangsUpOnALargeBody(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	c := open(t, srv.URL, local(), hooks{})
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.TargetFatal, llmq.CodeProviderError)
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the server can still write")
	}
}

func TestDo_KeepsTheStatusOfABadRefusal(t *testing.T) {
	t.Parallel()
	tests := map[string]http.HandlerFunc{
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(make([]byte, maxErrorBodyBytes+1))
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, "??")
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":`)
		},
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, h)
			c := open(t, srv.URL, local(), hooks{})
			reply, err := c.Do(post(t, srv.URL, "{}"))
			if err != nil || reply.Status != http.StatusTooManyRequests || len(reply.Body) != 0 {
				t.Errorf("Do = %d %q, %v; want 429 without a body", reply.Status, reply.Body, err)
			}
		})
	}
}

// SEC14. It also pins the words of net/http that headerTooLarge looks for.
func TestDo_SEC14LargeHeaderIsATargetError(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Large", strings.Repeat("x", 1<<20)) })
	c := open(t, srv.URL, local(), hooks{})
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.TargetFatal, llmq.CodeProviderError)
}
