package lambda

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestInvoke_RepliesAndReusesTheProcess(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	for range 3 {
		res := invoke(t, h, map[string]any{"op": "echo", "text": "<a> & ☕"})
		var got struct{ Text string }
		if err := json.Unmarshal(res.Payload, &got); err != nil || got.Text != "<a> & ☕" || res.FunctionError != "" {
			t.Fatalf("got %s, %v", res.Payload, err)
		}
	}
	infos := h.Instances("fn")
	if len(infos) != 1 || infos[0].State != StateIdle || infos[0].Invocations != 3 {
		t.Errorf("instances %+v, want one idle one with 3 invocations", infos)
	}
	stats := h.Stats("fn")
	if stats.BilledMS < 3 {
		t.Errorf("billed %d ms, want at least 1 per invocation", stats.BilledMS)
	}
	stats.BilledMS = 0
	if diff := cmp.Diff(Stats{Invocations: 3, ColdStarts: 1, Peak: 1}, stats); diff != "" {
		t.Error(diff)
	}
}

func TestInvoke_FailuresOfTheFunction(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		order    map[string]any
		wantType string
		wantText string // with ID for the request id
		survives bool   // the process goes on
	}{
		{"handler error", map[string]any{"op": "error", "text": "no"}, "errorString", "no", true},
		{"panic", map[string]any{"op": "panic", "text": "oops"}, "string", "oops", false},
		{"exit", map[string]any{"op": "exit", "n": 7}, "Runtime.ExitError", "RequestId: ID Error: Runtime exited with error: exit status 7", false},
		{"exit 0", map[string]any{"op": "exit"}, "Runtime.ExitError", "RequestId: ID Error: Runtime exited without providing a reason", false},
		{"reply too large", map[string]any{"op": "big", "n": MaxResponse + 1}, "Function.ResponseSizeTooLarge",
			"Response payload size exceeded maximum allowed payload size (6291556 bytes).", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, nil)
			res := invoke(t, h, tt.order)
			var got struct{ ErrorType, ErrorMessage string }
			if err := json.Unmarshal(res.Payload, &got); err != nil {
				t.Fatalf("payload %s: %v", res.Payload, err)
			}
			want := strings.ReplaceAll(tt.wantText, "ID", res.RequestID)
			if res.FunctionError != "Unhandled" || res.ErrorType != tt.wantType || got.ErrorType != tt.wantType || got.ErrorMessage != want {
				t.Errorf("got %q %q %s", res.FunctionError, res.ErrorType, res.Payload)
			}
			if alive := len(h.Instances("fn")) == 1; alive != tt.survives {
				t.Errorf("process alive %v, want %v", alive, tt.survives)
			}
			if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
				t.Errorf("next invocation: %s", res.Payload)
			}
			if s := h.Stats("fn"); s.Errors != 1 || s.Invocations != 2 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestInvoke_LargestReplyPasses(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	if res := invoke(t, h, map[string]any{"op": "big", "n": MaxResponse}); len(res.Payload) != MaxResponse || res.FunctionError != "" {
		t.Errorf("got %d bytes, %s", len(res.Payload), res.ErrorType)
	}
}

func TestInvoke_TimeoutKillsTheProcess(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Timeout = time.Second })
	g := newGate(t)
	pid := make(chan int, 1)
	go func() {
		g.accept()
		pid <- h.Instances("fn")[0].PID
	}()
	res := invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()})
	want := fmt.Sprintf(`{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: %s Error: Task timed out after 1.00 seconds"}`, res.RequestID)
	if string(res.Payload) != want || res.FunctionError != "Unhandled" {
		t.Errorf("got %s, want %s", res.Payload, want)
	}
	if p := <-pid; alive(p) {
		t.Errorf("process %d is still there", p)
	}
	if s := h.Stats("fn"); s.BilledMS < 1000 {
		t.Errorf("billed %d ms, want at least the timeout", s.BilledMS)
	}
}

func TestInvoke_KilledWorkerIsAnExitErrorAndReplaced(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	g := newGate(t)
	results := make(chan Result, 1)
	go func() { results <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	g.accept()
	info := h.Instances("fn")[0]
	if info.State != StateBusy {
		t.Errorf("state %s, want busy", info.State)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	res := <-results
	if want := "RequestId: " + res.RequestID + " Error: Runtime exited with error: signal: killed"; !strings.Contains(string(res.Payload), want) {
		t.Errorf("got %s, want %s", res.Payload, want)
	}
	if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
		t.Errorf("next invocation: %s", res.Payload)
	}
}

// An idle process may die unseen; whoever comes next must not pay for it.
func TestInvoke_KilledIdleWorkerFailsNobody(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	for range 10 {
		invoke(t, h, map[string]any{"op": "echo"})
		if err := syscall.Kill(h.Instances("fn")[0].PID, syscall.SIGSTOP); err != nil { // it can't ask for work any more
			t.Fatal(err)
		}
		pid := h.Instances("fn")[0].PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the death is noticed", func() bool { return len(h.Instances("fn")) == 0 })
		if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
			t.Fatalf("got %s", res.Payload)
		}
	}
}

func TestInvoke_ThrottlesAboveConcurrency(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Concurrency = 2 })
	g := newGate(t)
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() { invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) })
	}
	first, second := g.accept(), g.accept()
	_, err := h.Invoke(t.Context(), "fn", []byte(`{}`), InvokeOptions{})
	if !errors.Is(err, CodeThrottled) {
		t.Errorf("got %v, want %v", err, CodeThrottled)
	}
	send(t, first, "c")
	send(t, second, "c")
	running.Wait()
	if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
		t.Errorf("after they ended: %s", res.Payload)
	}
	if s := h.Stats("fn"); s.Throttles != 1 || s.ColdStarts != 2 || s.Peak != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestInvoke_LastIdleIsFirstUsed(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Concurrency = 3 })
	g := newGate(t)
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() { invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) })
	}
	for _, conn := range []io.Writer{g.accept(), g.accept(), g.accept()} {
		if _, err := conn.Write([]byte("c")); err != nil {
			t.Fatal(err)
		}
	}
	running.Wait()
	for range 5 {
		invoke(t, h, map[string]any{"op": "echo"})
	}
	counts := map[int]int{}
	for _, info := range h.Instances("fn") {
		counts[info.Invocations]++
	}
	if diff := cmp.Diff(map[int]int{1: 2, 6: 1}, counts); diff != "" {
		t.Errorf("invocations per instance: %s", diff)
	}
}

func TestInvoke_CallerGivesUpFunctionGoesOn(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	g := newGate(t)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := h.Invoke(ctx, "fn", order(t, map[string]any{"op": "wait", "gate": g.addr()}), InvokeOptions{})
		failed <- err
	}()
	conn := g.accept()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s := h.Instances("fn")[0].State; s != StateBusy {
		t.Errorf("state %s, want busy", s)
	}
	send(t, conn, "c")
	eventually(t, "idle again", func() bool { return h.Instances("fn")[0].State == StateIdle })
	if s := h.Stats("fn"); s.Errors != 0 {
		t.Errorf("stats %+v, want no error: the function ended well", s)
	}
}

func TestInvoke_RefusesWhatLambdaRefuses(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	tests := []struct {
		name, function, payload string
		want                    Code
	}{
		{"unknown function", "nobody", `{}`, CodeNotFound},
		{"not JSON", "fn", `{"a"`, CodeInvalidContent},
		{"too large", "fn", `"` + strings.Repeat("a", MaxPayload) + `"`, CodeTooLarge},
	}
	for _, tt := range tests {
		_, err := h.Invoke(t.Context(), tt.function, []byte(tt.payload), InvokeOptions{})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	if n := len(h.Instances("fn")); n != 0 {
		t.Errorf("%d processes were started", n)
	}
}

func TestInit_Failures(t *testing.T) {
	t.Parallel()
	tests := []struct{ init, wantType, wantText string }{
		{"exit", "Runtime.ExitError", "RequestId: ID Error: Runtime exited with error: exit status 3"},
		{"error", "Init.Broken", "no settings"},
		{"hang", "Sandbox.Timedout", "RequestId: ID Error: Task timed out after 0.50 seconds"},
	}
	for _, tt := range tests {
		t.Run(tt.init, func(t *testing.T) {
			t.Parallel()
			h := setup(t, func(o *Options, c *FunctionConfig) {
				c.Env = []string{"INIT=" + tt.init}
				if tt.init == "hang" {
					o.InitTimeout = 500 * time.Millisecond
				}
			})
			res := invoke(t, h, map[string]any{"op": "echo"})
			var got struct{ ErrorType, ErrorMessage string }
			if err := json.Unmarshal(res.Payload, &got); err != nil {
				t.Fatalf("payload %s: %v", res.Payload, err)
			}
			if want := strings.ReplaceAll(tt.wantText, "ID", res.RequestID); got.ErrorType != tt.wantType || got.ErrorMessage != want {
				t.Errorf("got %s", res.Payload)
			}
			if n := len(h.Instances("fn")); n != 0 {
				t.Errorf("%d processes left", n)
			}
		})
	}
}

func TestEnvironment_OnlyWhatLambdaAndTheFunctionSet(t *testing.T) {
	t.Setenv("LAMBDA_TEST_SECRET", "must not leak")
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Env = []string{"LLMQ_CONFIG=x=y", "AWS_ACCESS_KEY_ID=local"} })
	var env []string
	if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "env"}).Payload, &env); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		keys = append(keys, key)
		if key == "LLMQ_CONFIG" && value != "x=y" {
			t.Errorf("LLMQ_CONFIG is %q", value)
		}
	}
	slices.Sort(keys)
	want := []string{"AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_NAME",
		"AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME",
		"AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API", "AWS_REGION", "LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT",
		"LANG", "LLMQ_CONFIG", "PATH", "TMPDIR", "TZ", "_HANDLER", "_X_AMZN_TRACE_ID"} // the last is set by aws-lambda-go
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

func TestCreate_RefusesBadConfigurations(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	tests := []struct {
		name string
		edit func(*FunctionConfig)
		want Code
	}{
		{"name taken", func(*FunctionConfig) {}, CodeConflict},
		{"bad name", func(c *FunctionConfig) { c.Name = "a b" }, CodeInvalidConfig},
		{"no timeout", func(c *FunctionConfig) { c.Name, c.Timeout = "f2", 0 }, CodeInvalidConfig},
		{"long timeout", func(c *FunctionConfig) { c.Name, c.Timeout = "f2", 901*time.Second }, CodeInvalidConfig},
		{"no memory", func(c *FunctionConfig) { c.Name, c.MemoryMB = "f2", 0 }, CodeInvalidConfig},
		{"no concurrency", func(c *FunctionConfig) { c.Name, c.Concurrency = "f2", 0 }, CodeInvalidConfig},
		{"no binary", func(c *FunctionConfig) { c.Name, c.Bootstrap = "f2", "nowhere/bootstrap" }, CodeInvalidConfig},
		{"not executable", func(c *FunctionConfig) { c.Name, c.Bootstrap = "f2", "host_test.go" }, CodeInvalidConfig},
		{"reserved key", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"AWS_REGION=x"} }, CodeInvalidConfig},
		{"no value", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"A"} }, CodeInvalidConfig},
		{"environment over 4 KB", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"A=" + strings.Repeat("x", 4096)} }, CodeInvalidConfig},
	}
	for _, tt := range tests {
		cfg := testConfig()
		tt.edit(&cfg)
		if err := h.Create(cfg); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestOutput_LinesCarryFunctionAndInstance(t *testing.T) {
	t.Parallel()
	out := &syncBuffer{}
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.Output = out })
	invoke(t, h, map[string]any{"op": "print", "text": "one\ntwo"})
	prefix := "[fn " + h.Instances("fn")[0].ID + "] "
	h.Close(t.Context())
	for _, want := range []string{"one\n", "two\n", "two to stderr\n"} {
		if !slices.Contains(out.lines, prefix+want) {
			t.Errorf("no line %q in %q", prefix+want, out.lines)
		}
	}
}

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

func TestHost_KilledParentLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LAMBDA_TEST_HOST=1")
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
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("pid %q: %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the function's process is gone", func() bool { return !isRunning(pid) })
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
