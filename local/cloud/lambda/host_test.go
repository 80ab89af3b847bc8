package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	if diff := cmp.Diff(Stats{Invocations: 3, ColdStarts: 1, Peak: 1, PeakInFlight: 1}, stats); diff != "" {
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
		{
			"reply too large",
			map[string]any{"op": "big", "n": MaxResponse + 1},
			"Function.ResponseSizeTooLarge",
			"Response payload size exceeded maximum allowed payload size (6291556 bytes).", false,
		},
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
		{"hang", "Sandbox.Timedout", "RequestId: ID Error: Task timed out after 1.00 seconds"},
	}
	for _, tt := range tests {
		t.Run(tt.init, func(t *testing.T) {
			t.Parallel()
			h := setup(t, func(o *Options, c *FunctionConfig) {
				c.Env = []string{"INIT=" + tt.init}
				if tt.init == "hang" {
					o.InitTimeout, c.Timeout = 100*time.Millisecond, time.Second
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

func TestInit_ProgramThatCantRunIsAnInvalidEntrypoint(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(bad, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Bootstrap = bad })
	res := invoke(t, h, map[string]any{"op": "echo"})
	if res.ErrorType != "Runtime.InvalidEntrypoint" || !strings.Contains(string(res.Payload), "exec format error") {
		t.Errorf("got %s", res.Payload)
	}
	if s := h.Stats("fn"); s.InFlight != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestInvoke_TellsDeadlineAndTrace(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Timeout = 300 * time.Second })
	const trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
	before := time.Now()
	res, err := h.Invoke(t.Context(), "fn", []byte(`{"op":"context"}`), InvokeOptions{TraceHeader: trace})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Deadline        int64
		Trace, ID, Name string
		ARN             string
	}
	if err := json.Unmarshal(res.Payload, &got); err != nil {
		t.Fatal(err)
	}
	deadline := time.UnixMilli(got.Deadline)
	if deadline.Before(before.Add(300*time.Second-time.Millisecond)) || deadline.After(time.Now().Add(300*time.Second)) {
		t.Errorf("deadline %v, want 300s after the start", deadline)
	}
	if got.Trace != trace || got.ID != res.RequestID || got.Name != "fn" || got.ARN != "arn:aws:lambda:us-east-1:000000000000:function:fn" {
		t.Errorf("got %+v", got)
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
