package bedrock

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ownEnvironment()
	goleak.VerifyTestMain(m)
}

// ownEnvironment drops what a shell may hold for the vendors' clients, the export line of
// make run among it: they read it, and these tests give them all they need.
func ownEnvironment() {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "OPENAI_") {
			_ = os.Unsetenv(name) // it fails for no name that is set
		}
	}
}
