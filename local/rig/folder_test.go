package rig

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A run that was killed can't clear up; the next one does, and touches nothing else.
func TestClearFolders_OfDeadProcessesAlone(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	own, err := makeFolder(tmp)
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := pidNamespace()
	if err != nil {
		t.Skip("no Linux /proc: folders are not cleared there")
	}
	if !folderName.MatchString(filepath.Base(own)) {
		t.Fatalf("own folder is %s", own)
	}
	ended := exec.CommandContext(t.Context(), "sleep", "60")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	who, err := owner(ended.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if dead(who) {
		t.Errorf("%s lives", who)
	}
	ended.Process.Kill() //nolint:errcheck // a test
	ended.Wait()         //nolint:errcheck // it was killed
	if !dead(who) {
		t.Errorf("%s has ended", who)
	}
	mine := strings.Split(filepath.Base(own), "-")
	mine[4] += "0" // this process's id, but started at another time
	gone := []string{"llmq-run-" + who + "-7", strings.Join(mine, "-")}
	stay := []string{
		filepath.Base(own), "llmq-run-123", "llmq-run-1-2-3", "llmq-run-" + who + "-7x", "x-llmq-run-" + who + "-7", "llmq-valkey-1",
		"llmq-run-1" + strings.TrimPrefix(who, namespace) + "-7", // another namespace's
		"llmq-run-" + namespace + "-1-x-7",
	}
	for _, name := range slices.Concat(gone, stay[1:]) {
		if err := os.MkdirAll(filepath.Join(tmp, name, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := "llmq-run-" + who + "-8"
	if err := os.Symlink(own, filepath.Join(tmp, link)); err != nil {
		t.Fatal(err)
	}
	file := "llmq-run-" + who + "-9"
	if err := os.WriteFile(filepath.Join(tmp, file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cleared, err := clearFolders(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(cleared) != len(gone) {
		t.Errorf("cleared %q, want %q", cleared, gone)
	}
	for _, name := range gone {
		if _, err := os.Lstat(filepath.Join(tmp, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	for _, name := range append(stay, link, file) {
		if _, err := os.Lstat(filepath.Join(tmp, name)); err != nil {
			t.Errorf("%s was touched: %v", name, err)
		}
	}
}

// Where nobody waits for it, as in a container without an init, a killed run stays a zombie.
func TestDead_ZombiesAre(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it was killed
	who, err := owner(cmd.Process.Pid)
	if err != nil {
		t.Skip("no Linux /proc: folders are not cleared there")
	}
	stdin.Close()               // a test: cat ends
	io.Copy(io.Discard, stdout) //nolint:errcheck // to its end, which is cat's
	for deadline := time.Now().Add(10 * time.Second); !dead(who); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s is a zombie and not dead", who)
		}
	}
}
