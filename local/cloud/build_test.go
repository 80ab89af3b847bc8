package cloud

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A build that is called off leaves no compiler running and no scratch folder.
func TestBuild_CalledOffEndsWhatItStarted(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	pipe := filepath.Join(bin, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// The go command, with a compiler that holds the pipe open for as long as it runs.
	script := "#!/bin/sh\necho begun > \"$GOTMPDIR/work\"\nsleep 600 > '" + pipe + "' &\nwait\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	built := make(chan error, 1)
	go func() {
		_, err := Build(ctx, dir, nil)
		built <- err
	}()
	compiler, err := os.Open(pipe) // waits for its other end
	if err != nil {
		t.Fatal(err)
	}
	defer compiler.Close()
	cancel()
	if err := <-built; err == nil {
		t.Error("a build that was called off has no error")
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, compiler)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the compiler still runs")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
