package openai

import "testing"

// SEC12: OpenRouter is known by its host, whose members of a body choose vendors.
func TestIsRouted_ByHost(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]bool{
		"https://openrouter.ai/api/v1": true, "https://eu.openrouter.ai/api/v1": true,
		"https://api.openai.com/v1": false, "https://notopenrouter.ai/v1": false, "https://openrouter.ai.x.example/v1": false, "http://vllm:8000/v1": false,
	} {
		if got := isRouted(base); got != want {
			t.Errorf("%s: %t", base, got)
		}
	}
}
