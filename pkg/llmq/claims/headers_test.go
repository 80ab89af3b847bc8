package claims_test

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
)

// What goes with a body is a part of what is asked for: another guardrail is another call.
func TestBodyHash_HeadersCount(t *testing.T) {
	t.Parallel()
	hash := func(h map[string]string) string {
		return claims.BodyHash(llmq.Request{Op: llmq.OpInvoke, Model: llmq.ModelRef{Alias: "m"}, Body: []byte(`{}`), Headers: h})
	}
	seen := map[string]bool{}
	for _, h := range []map[string]string{nil, {"A": "1"}, {"A": "2"}, {"B": "1"}, {"A": "1", "B": "1"}} {
		seen[hash(h)] = true
	}
	if len(seen) != 5 || hash(nil) != hash(map[string]string{}) || hash(map[string]string{"A": "1", "B": "1"}) != hash(map[string]string{"B": "1", "A": "1"}) {
		t.Errorf("%d hashes", len(seen))
	}
}
