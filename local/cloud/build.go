package cloud

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
// ends, the compilers end with it; what they wrote is in dir. jobs are the packages of workers that run jobs, by artifact; a
// package is an import path, or a folder of this module that begins with ./.
func Build(ctx context.Context, dir string, jobs map[string]string, tags ...string) (Functions, error) {
	var f Functions
	packages := map[string]string{}
	for name, path := range map[string]*string{"enqueue": &f.Enqueue, "worker": &f.Worker, "admin": &f.Admin} {
		*path = filepath.Join(dir, name, "bootstrap")
		packages[name] = "github.com/llm-queue/llmq/functions/" + name
	}
	f.Jobs = map[string]string{}
	for artifact, of := range jobs {
		f.Jobs[artifact] = filepath.Join(dir, artifact, "bootstrap")
		packages[artifact] = of
	}
	scratch, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return Functions{}, fmt.Errorf("build functions: %w", err)
	}
	defer os.RemoveAll(scratch) // dir goes in the end
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", strings.Join(append([]string{"lambda.norpc"}, tags...), ","), "-ldflags", "-s -w", // fixed arguments
			"-o", filepath.Join(dir, name, "bootstrap"), packages[name])
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTMPDIR="+scratch)
		// The go command does not end its compilers when it is killed, so they are a group of
		// their own. It has not been waited for when Cancel runs, so its id is still the group's.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = buildEndsWithin
		if out, err := cmd.CombinedOutput(); err != nil {
			return Functions{}, fmt.Errorf("build %s: %w\n%s", packages[name], err, strings.TrimSpace(string(out)))
		}
	}
	return f, nil
}
