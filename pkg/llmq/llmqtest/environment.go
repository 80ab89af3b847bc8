package llmqtest

import (
	"os"
	"strings"
)

// OwnEnvironment drops what a shell may hold for the vendors' clients, the export line
// of make run among it: they read it, and tests give them all they need. It is for a
// TestMain, before any test runs.
func OwnEnvironment() {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "OPENAI_") {
			_ = os.Unsetenv(name) // it fails for no name that is set
		}
	}
}
