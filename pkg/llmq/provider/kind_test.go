package provider_test

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestKnownKind_KeepsCodesAndDropsFreeText(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"ThrottlingException": "ThrottlingException", "insufficient_quota": "insufficient_quota", "": "",
		"the_prompt_was_my_secret": "", "ThrottlingException ": "", "throttlingexception": "",
	} {
		if got := provider.KnownKind(kind); got != want {
			t.Errorf("KnownKind(%q) = %q, want %q", kind, got, want)
		}
	}
}
