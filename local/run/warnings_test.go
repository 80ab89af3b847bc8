package main

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

// What kills a program is shown; that there are warnings is said once, and their lines are
// left to -v.
func TestWarnings_PassesWhatAnOperatorMustSee(t *testing.T) {
	t.Parallel()
	const warn = `[llmq-worker-rt 1a] {"level":"WARN","msg":"exchange not recorded"}` + "\n"
	const fail = `[llmq-worker-rt 1a] {"level":"ERROR","msg":"call"}` + "\n"
	const dies = "[llmq-worker-rt 1a] panic: no memory\n"
	var out bytes.Buffer
	w := warnings{&out, &sync.Once{}}
	for _, line := range []string{`[llmq-enqueue 2b] {"level":"INFO","msg":"call"}` + "\n", warn, "[llmq-enqueue 2b] goroutine 1\n", dies, fail} {
		if n, err := io.WriteString(w, line); n != len(line) || err != nil {
			t.Errorf("write = %d, %v", n, err)
		}
	}
	if out.String() != someWarn+dies {
		t.Errorf("passed on %q", out.String())
	}
}

func TestOneLine_IsOneAndBounded(t *testing.T) {
	t.Parallel()
	if got, want := oneLine([]byte("{\"error\":\n  {\"message\": \"no\"}}\n")), `{"error": {"message": "no"}}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := oneLine(bytes.Repeat([]byte("x"), 5000)); len(got) > 700 {
		t.Errorf("%d bytes", len(got))
	}
}
