package capacity

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// run adds one call to a batch, runs it, and returns its answer.
func run[T any](t testing.TB, c redis.UniversalClient, add func(b *luascript.Batch) luascript.Pending[T]) T {
	t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	got, err := pending()
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	return got
}

func target(most int) llmq.Target {
	return llmq.Target{Model: "m", Name: "t", Provider: "p", MaxConcurrency: most}
}
