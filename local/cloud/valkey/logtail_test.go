package valkey

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogTail_LogsWholeLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &logTail{logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key != "line" {
				return slog.Attr{}
			}
			return a
		},
	}))}
	for _, part := range []string{"on", "e\ntwo\n\nth", "ree\r\nfour"} {
		if n, err := l.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if diff := cmp.Diff("line=one\nline=two\nline=three\n", out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if got := l.String(); !strings.HasSuffix(got, "four") {
		t.Errorf("tail = %q, want it to end with the unfinished line", got)
	}
}

func TestLogTail_IsBounded(t *testing.T) {
	t.Parallel()
	l := &logTail{logger: slog.New(slog.DiscardHandler)}
	for range 100 {
		if _, err := l.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.tail) > tailBytes || len(l.pending) > tailBytes {
		t.Errorf("keeps %d and %d bytes, want at most %d", len(l.tail), len(l.pending), tailBytes)
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	info := "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\nempty:\r\n"
	for name, want := range map[string]string{"valkey_version": "8.0.1", "empty": ""} {
		if got, found := field(info, name); !found || got != want {
			t.Errorf("field(%s) = %q, %v; want %q", name, got, found, want)
		}
	}
	if _, found := field(info, "version"); found {
		t.Error("found a name that is only the end of another")
	}
}

func TestQuote_KeepsPathsOneWord(t *testing.T) {
	t.Parallel()
	if got, want := quote(`/tmp/a b"c\d`), `"/tmp/a b\"c\\d"`; got != want {
		t.Errorf("quote = %s, want %s", got, want)
	}
}
