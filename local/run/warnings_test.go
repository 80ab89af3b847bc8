package main

import (
	"bytes"
	"io"
	"testing"
)

func TestWarnings_PassesWhatAnOperatorMustSee(t *testing.T) {
	t.Parallel()
	const warn = `[llmq-worker-rt 1a] {"level":"WARN","msg":"exchange not recorded"}` + "\n"
	const dies = "[llmq-worker-rt 1a] panic: no memory\n"
	var out bytes.Buffer
	for _, line := range []string{`[llmq-enqueue 2b] {"level":"INFO","msg":"call"}` + "\n", warn, "[llmq-enqueue 2b] goroutine 1\n", dies} {
		if n, err := io.WriteString(warnings{&out}, line); n != len(line) || err != nil {
			t.Errorf("write = %d, %v", n, err)
		}
	}
	if out.String() != warn+dies {
		t.Errorf("passed on %q", out.String())
	}
}
