package wiring

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
)

// A6: what is wrong with the jobs of a worker is told at its start, all of it.
func TestWithJob_Faults(t *testing.T) {
	t.Parallel()
	do := func(context.Context, job.Run) ([]byte, error) { return nil, nil }
	_, err := New(t.Context(), nil, slog.New(slog.DiscardHandler), WithJob("ok", do), WithJob("ok", do), WithJob("a@b", do), WithJob("none", nil))
	for _, want := range []string{"ok is registered already", `"a@b" that is registered must match`, "none is registered without its function"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
