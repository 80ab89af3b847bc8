package cloud

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build compiles the functions for this machine into a folder, with the flags that a
// deployment uses. It needs the go command and the module's source. tags are added to a
// deployment's: llmq_cassette links cassettes, which nothing that is deployed may.
func Build(ctx context.Context, dir string, tags ...string) (Functions, error) {
	var f Functions
	for name, path := range map[string]*string{"enqueue": &f.Enqueue, "worker": &f.Worker, "admin": &f.Admin} {
		*path = filepath.Join(dir, name, "bootstrap")
	}
	for _, name := range []string{"enqueue", "worker", "admin"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", strings.Join(append([]string{"lambda.norpc"}, tags...), ","), "-ldflags", "-s -w", // fixed arguments
			"-o", filepath.Join(dir, name, "bootstrap"), "github.com/llm-queue/llmq/functions/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return Functions{}, fmt.Errorf("build functions/%s: %w\n%s", name, err, strings.TrimSpace(string(out)))
		}
	}
	return f, nil
}
