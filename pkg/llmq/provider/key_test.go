package provider_test

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestValidKey_IsVisibleASCII(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"sk-abc_DEF~!": true, "x": true,
		"": false, " ": false, "a b": false, "a\n": false, "a\r\nX: 1": false, "a\x00": false, "a\x7f": false, "\u00e9": false, "a\xff": false,
	} {
		if got := provider.ValidKey(key); got != want {
			t.Errorf("ValidKey(%q) = %v, want %v", key, got, want)
		}
	}
}
