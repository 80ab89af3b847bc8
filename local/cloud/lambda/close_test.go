package lambda

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestClose_LeavesNoProcess(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Concurrency = 2 })
	var grandchild int
	if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "child"}).Payload, &grandchild); err != nil {
		t.Fatal(err)
	}
	g := newGate(t)
	running := make(chan Result, 2)
	for range 2 {
		go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	}
	g.accept()
	g.accept()
	infos := h.Instances("fn")
	h.Close(t.Context())
	for _, pid := range []int{infos[0].PID, infos[1].PID} {
		if alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	// The grandchild is reaped by init, not by us: killed it is at once, gone a moment later.
	eventually(t, "grandchild gone", func() bool { return !isRunning(grandchild) })
	for range 2 {
		if res := <-running; res.ErrorType != "Runtime.ExitError" {
			t.Errorf("running invocation got %q", res.ErrorType)
		}
	}
	if _, err := h.Invoke(t.Context(), "fn", []byte(`{}`), InvokeOptions{}); !errors.Is(err, CodeClosed) {
		t.Errorf("got %v, want %v", err, CodeClosed)
	}
	h.Close(t.Context())
}

func TestClose_SIGTERMHandlerRuns(t *testing.T) {
	t.Parallel()
	out := &syncBuffer{}
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.Output, o.StopGrace = out, testDeadline
		c.Env = []string{"INIT=sigterm"}
	})
	invoke(t, h, map[string]any{"op": "echo"})
	h.Close(t.Context())
	if !slices.ContainsFunc(out.lines, func(l string) bool { return strings.HasSuffix(l, "] bye\n") }) {
		t.Errorf("the function did not say bye: %q", out.lines)
	}
}

// Both the function's process and its child are frozen when the host is killed: Pdeathsig ends the one, and the kernel hangs
// up and continues a stopped group that has lost its parent, which ends the other.
func TestHost_KilledParentLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	needsProc(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LAMBDA_TEST_HOST=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid, child int
	if _, err := fmt.Sscan(line, &pid, &child); err != nil || !alive(pid) || !alive(child) {
		t.Fatalf("pids %q: %v", line, err)
	}
	eventually(t, "both are frozen", func() bool { return isStopped(pid) && isStopped(child) })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the function's process is gone", func() bool { return !isRunning(pid) })
	eventually(t, "its child is gone", func() bool { return !isRunning(child) })
}

// isRunning says whether a process that isn't our child runs; a zombie that waits for its reaper does not.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return alive(pid) // no /proc here
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
