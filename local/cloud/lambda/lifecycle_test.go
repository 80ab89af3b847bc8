package lambda

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func needsProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
}

func pidOf(t *testing.T, h *Host) int {
	t.Helper()
	infos := h.Instances("fn")
	if len(infos) != 1 || infos[0].PID == 0 {
		t.Fatalf("instances %+v, want one", infos)
	}
	return infos[0].PID
}

func TestFreeze_StopsProcessAndChildrenBetweenInvocations(t *testing.T) {
	t.Parallel()
	needsProc(t)
	h := setup(t, nil)
	var child int
	for range 3 {
		if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "child"}).Payload, &child); err != nil {
			t.Fatal(err)
		}
		pid := pidOf(t, h)
		eventually(t, "process and child stopped", func() bool { return isStopped(pid) && isStopped(child) })
		if !h.Instances("fn")[0].Frozen {
			t.Error("the instance does not say that it is frozen")
		}
	}
	if s := h.Stats("fn"); s.ColdStarts != 1 {
		t.Errorf("%d cold starts, want 1: a frozen process is used again", s.ColdStarts)
	}
	g := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	conn := g.accept()
	if isStopped(pidOf(t, h)) || isStopped(child) || h.Instances("fn")[0].Frozen {
		t.Error("frozen in an invocation")
	}
	send(t, conn, "c")
	<-running
}

func TestFreeze_OffLeavesTheProcessRunning(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.Freeze = false })
	g := newGate(t)
	invoke(t, h, map[string]any{"op": "tick", "gate": g.addr()})
	conn := g.accept()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("the goroutine does not run: %v", err)
	}
	if h.Instances("fn")[0].Frozen {
		t.Error("it says that it is frozen")
	}
}

// A goroutine that outlives its invocation stands still, and goes on within the next one.
func TestFreeze_GoroutinesStandStillAndGoOn(t *testing.T) {
	t.Parallel()
	needsProc(t)
	h := setup(t, nil)
	g := newGate(t)
	invoke(t, h, map[string]any{"op": "tick", "gate": g.addr()})
	conn := g.accept()
	pid := pidOf(t, h)
	eventually(t, "stopped", func() bool { return isStopped(pid) })
	ticks := func(within time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(within))
		_, err := conn.Read(make([]byte, 1<<10))
		return err
	}
	for ticks(time.Millisecond) == nil { // what was sent before
		continue
	}
	if err := ticks(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a tick from a frozen process: %v", err)
	}
	next := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": next.addr()}) }()
	release := next.accept()
	if err := ticks(testDeadline); err != nil {
		t.Errorf("no tick after the thaw: %v", err)
	}
	send(t, release, "c")
	<-running
}

// The stream's process is stopped after its end only, not when the reply's head is there.
func TestFreeze_StreamsRunToTheirEnd(t *testing.T) {
	t.Parallel()
	needsProc(t)
	h := setup(t, nil)
	s, step := openStream(t, h)
	readChunk(t, s)
	pid := pidOf(t, h)
	for range 3 {
		step("c")
		readChunk(t, s)
		if isStopped(pid) {
			t.Fatal("stopped in mid-stream")
		}
	}
	step(".")
	_, _ = s.Read(make([]byte, 1))
	eventually(t, "stopped", func() bool { return isStopped(pid) })
}

func TestFreeze_SocketsCutMeanwhileAreNoticedAfterTheThaw(t *testing.T) {
	t.Parallel()
	needsProc(t)
	h := setup(t, nil)
	g := newGate(t)
	invoke(t, h, map[string]any{"op": "tick", "gate": g.addr()})
	conn := g.accept()
	pid := pidOf(t, h)
	eventually(t, "stopped", func() bool { return isStopped(pid) })
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
	if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
		t.Errorf("after the thaw: %s", res.Payload)
	}
	if pidOf(t, h) != pid {
		t.Error("another process")
	}
}

func TestClose_EndsFrozenProcesses(t *testing.T) {
	t.Parallel()
	needsProc(t)
	for _, init := range []string{"", "sigterm"} {
		h := setup(t, func(o *Options, c *FunctionConfig) {
			o.StopGrace = testDeadline
			c.Env = []string{"INIT=" + init}
		})
		invoke(t, h, map[string]any{"op": "echo"})
		pid := pidOf(t, h)
		eventually(t, "stopped", func() bool { return isStopped(pid) })
		began := time.Now()
		h.Close(t.Context())
		if alive(pid) || time.Since(began) > testDeadline/2 {
			t.Errorf("INIT=%s: process alive %v after %s", init, alive(pid), time.Since(began))
		}
	}
}

// Without an extension there is no SIGTERM: AWS sends it only where one is registered.
func TestClose_SIGTERMOnlyWithAnExtension(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.StopGrace = testDeadline })
	g := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	g.accept()
	h.Close(t.Context())
	if res := <-running; !strings.Contains(string(res.Payload), "signal: killed") {
		t.Errorf("got %s", res.Payload)
	}
}

func TestClose_SIGKILLAfterTheGrace(t *testing.T) {
	t.Parallel()
	out := &syncBuffer{}
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.Output, o.StopGrace = out, 100*time.Millisecond
		c.Env = []string{"INIT=deaf"}
	})
	invoke(t, h, map[string]any{"op": "echo"})
	pid := pidOf(t, h)
	h.Close(t.Context())
	if out.count("bye") != 1 || alive(pid) {
		t.Errorf("bye said %d times, alive %v", out.count("bye"), alive(pid))
	}
}

func TestTimeout_SIGTERMFirstWithAnExtension(t *testing.T) {
	t.Parallel()
	out := &syncBuffer{}
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.Output, o.StopGrace, c.Timeout = out, testDeadline, time.Second
		c.Env = []string{"INIT=sigterm"}
	})
	g := newGate(t)
	res := invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()})
	if res.ErrorType != "Sandbox.Timedout" || out.count("bye") != 1 {
		t.Errorf("got %s; bye said %d times", res.Payload, out.count("bye"))
	}
}

func TestIdle_InstancesAreSpunDown(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.IdleTimeout = 20 * time.Millisecond })
	invoke(t, h, map[string]any{"op": "echo"})
	eventually(t, "spun down", func() bool { return len(h.Instances("fn")) == 0 })
	if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
		t.Errorf("next invocation: %s", res.Payload)
	}
	if s := h.Stats("fn"); s.SpunDown < 1 || s.ColdStarts != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestIdle_ABusyInstanceIsNotSpunDown(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.IdleTimeout = 100 * time.Millisecond })
	invoke(t, h, map[string]any{"op": "echo"})
	pid := pidOf(t, h)
	g := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	conn := g.accept()
	after := time.NewTimer(200 * time.Millisecond) // twice the timeout, in an invocation
	defer after.Stop()
	<-after.C
	send(t, conn, "c")
	if res := <-running; string(res.Payload) != fmt.Sprint(pid) {
		t.Errorf("got %s, want the answer of process %d", res.Payload, pid)
	}
}

func TestLifetime_AnOldInstanceIsReplacedBetweenInvocations(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.MaxLifetime = time.Nanosecond })
	for range 3 {
		if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
			t.Fatalf("got %s", res.Payload)
		}
	}
	if s := h.Stats("fn"); s.ColdStarts != 3 || s.SpunDown != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestInit_FailedOnceIsTriedAgainWithinTheInvocation(t *testing.T) {
	t.Parallel()
	for _, init := range []string{"second", "secondhang"} {
		t.Run(init, func(t *testing.T) {
			t.Parallel()
			h := setup(t, func(o *Options, c *FunctionConfig) {
				o.InitTimeout = 300 * time.Millisecond
				c.Env = []string{"INIT=" + init}
			})
			if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
				t.Fatalf("got %s", res.Payload)
			}
			pid := pidOf(t, h)
			if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" || pidOf(t, h) != pid {
				t.Errorf("the second process does not stay: %s", res.Payload)
			}
			if s := h.Stats("fn"); s.ColdStarts != 1 || s.Errors != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// The second init is part of the invocation: its time comes out of the function's timeout, and out of the deadline.
func TestInit_SecondOneSharesTheFunctionsTimeout(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.InitTimeout, c.Timeout = 50*time.Millisecond, 2*time.Second
		c.Env = []string{"INIT=bothslow"} // the second takes 0.7s
	})
	began := time.Now()
	var got struct{ Deadline int64 }
	if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "context"}).Payload, &got); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.UnixMilli(got.Deadline)); left > 1300*time.Millisecond {
		t.Errorf("%s were left after %s, want 1.3s at most", left, time.Since(began))
	}
}

// A frozen worker that is killed by someone else is noticed.
func TestFreeze_KilledWhileFrozenIsReplaced(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	invoke(t, h, map[string]any{"op": "echo"})
	if err := syscall.Kill(pidOf(t, h), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "noticed", func() bool { return len(h.Instances("fn")) == 0 })
	invoke(t, h, map[string]any{"op": "echo"})
}

func TestRenew_NextInvocationRunsInANewProcess(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	invoke(t, h, map[string]any{"op": "echo"})
	first := h.Instances("fn")[0].ID
	if err := h.Renew("fn"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the idle instance is gone", func() bool { return len(h.Instances("fn")) == 0 })
	g := newGate(t)
	running := make(chan Result, 1)
	go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	conn := g.accept()
	second := h.Instances("fn")[0].ID
	if second == first {
		t.Error("the old instance runs")
	}
	if err := h.Renew("fn"); err != nil {
		t.Fatal(err)
	}
	send(t, conn, "c")
	if r := <-running; r.FunctionError != "" {
		t.Errorf("a busy instance was not left to end its work: %s", r.Payload)
	}
	eventually(t, "the busy instance is gone after its work", func() bool { return len(h.Instances("fn")) == 0 })
	if s := h.Stats("fn"); s.SpunDown != 2 {
		t.Errorf("%d spun down, want 2", s.SpunDown)
	}
}
