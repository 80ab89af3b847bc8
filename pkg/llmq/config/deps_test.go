package config

import (
	"os/exec"
	"strings"
	"testing"
)

// The CDK module reads the same files and must not inherit an SDK (DESIGN,
// Packages).
func TestDeps_OnlyVocabularyQueueAndYAML(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const llmq = "github.com/llm-queue/llmq/pkg/llmq"
	allowed := map[string]bool{llmq: true, llmq + "/config": true, llmq + "/queue": true, "go.yaml.in/yaml/v3": true}
	deps := strings.Fields(string(out))
	for _, dep := range deps {
		if !allowed[dep] {
			t.Errorf("config depends on %s", dep)
		}
	}
	if len(deps) != len(allowed) {
		t.Errorf("%d dependencies, want %d: %q", len(deps), len(allowed), deps)
	}
}
