package cloud

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// buildEndsWithin bounds the wait for a build that was called off; nothing of it should be left
// by then to wait for.
const buildEndsWithin = 5 * time.Second

// Build compiles the functions for this machine into a folder, with the flags that a
// deployment uses. It needs the go command and the module's source. tags are added to a
// deployment's: llmq_cassette links cassettes, which nothing that is deployed may. When ctx
// ends, the compilers end with it; what they wrote is in dir.
func Build(ctx context.Context, dir string, tags ...string) (Functions, error) {
	var f Functions
	for name, path := range map[string]*string{"enqueue": &f.Enqueue, "worker": &f.Worker, "admin": &f.Admin} {
		*path = filepath.Join(dir, name, "bootstrap")
	}
	scratch, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return Functions{}, fmt.Errorf("build functions: %w", err)
	}
	defer os.RemoveAll(scratch) // dir goes in the end
	for _, name := range []string{"enqueue", "worker", "admin"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", strings.Join(append([]string{"lambda.norpc"}, tags...), ","), "-ldflags", "-s -w", // fixed arguments
			"-o", filepath.Join(dir, name, "bootstrap"), "github.com/llm-queue/llmq/functions/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTMPDIR="+scratch)
		// The go command does not end its compilers when it is killed, so they are a group of
		// their own. It has not been waited for when Cancel runs, so its id is still the group's.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = buildEndsWithin
		if out, err := cmd.CombinedOutput(); err != nil {
			return Functions{}, fmt.Errorf("build functions/%s: %w\n%s", name, err, strings.TrimSpace(string(out)))
		}
	}
	return f, nil
}
