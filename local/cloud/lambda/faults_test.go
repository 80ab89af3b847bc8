package lambda

import (
	"errors"
	"testing"
	"time"
)

func TestFaults_EachIsOneLine(t *testing.T) {
	t.Parallel()
	t.Run("kill", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		invoke(t, h, map[string]any{"op": "echo"})
		pid := pidOf(t, h)
		if err := h.Kill("fn", string(StateIdle)); err != nil || alive(pid) {
			t.Errorf("%v, alive %v", err, alive(pid))
		}
	})
	t.Run("hang and resume", func(t *testing.T) {
		t.Parallel()
		needsProc(t)
		h := setup(t, nil)
		g := newGate(t)
		running := make(chan Result, 1)
		go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
		conn := g.accept()
		if err := h.Hang("fn", "busy"); err != nil {
			t.Fatal(err)
		}
		send(t, conn, "c")
		pid := pidOf(t, h)
		eventually(t, "stopped", func() bool { return isStopped(pid) })
		if s := h.Stats("fn"); s.InFlight != 1 {
			t.Errorf("stats %+v", s)
		}
		if err := h.Resume("fn", ""); err != nil {
			t.Fatal(err)
		}
		if res := <-running; res.FunctionError != "" {
			t.Errorf("got %s", res.Payload)
		}
	})
	t.Run("hang until the timeout", func(t *testing.T) {
		t.Parallel()
		h := setup(t, func(_ *Options, c *FunctionConfig) { c.Timeout = time.Second })
		for invoke(t, h, map[string]any{"op": "echo"}).FunctionError != "" {
			continue // a busy machine takes its second, and the process that is to hang was killed for it
		}
		eventually(t, "waiting for work", func() bool { return h.Instances("fn")[0].State == StateIdle }) // else another process serves the next
		if err := h.Hang("fn", string(StateIdle)); err != nil {
			t.Fatal(err)
		}
		if res := invoke(t, h, map[string]any{"op": "echo"}); res.ErrorType != "Sandbox.Timedout" {
			t.Errorf("got %s", res.Payload)
		}
	})
	t.Run("slow start", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		if err := h.SlowStart("fn", 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		invoke(t, h, map[string]any{"op": "echo"})
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
	t.Run("throttle next", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		if err := h.ThrottleNext("fn", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Invoke(t.Context(), "fn", nil, InvokeOptions{}); !errors.Is(err, CodeThrottled) {
			t.Errorf("got %v", err)
		}
		invoke(t, h, map[string]any{"op": "echo"})
	})
	t.Run("crash next", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		invoke(t, h, map[string]any{"op": "echo"})
		if err := h.CrashNext("fn", 1); err != nil {
			t.Fatal(err)
		}
		if res := invoke(t, h, map[string]any{"op": "echo"}); res.ErrorType != "Runtime.ExitError" {
			t.Errorf("got %s", res.Payload)
		}
		if res := invoke(t, h, map[string]any{"op": "echo"}); res.FunctionError != "" {
			t.Errorf("got %s", res.Payload)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		for _, err := range []error{h.Kill("fn", ""), h.Hang("nobody", ""), h.CrashNext("nobody", 1)} {
			if !errors.Is(err, CodeNotFound) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A process that dies of what a test does to it while it is stopped must not hold up those who look.
func TestHang_InMidWriteHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	s, step := openStream(t, h)
	readChunk(t, s)
	step("c")
	if err := h.Hang("fn", ""); err != nil {
		t.Fatal(err)
	}
	if st, infos := h.Stats("fn"), h.Instances("fn"); st.InFlight != 1 || infos[0].State != StateBusy {
		t.Errorf("%+v, %+v", st, infos)
	}
	if err := h.Kill("fn", ""); err != nil {
		t.Fatal(err)
	}
	var failed *FunctionError
	for {
		_, err := s.Read(make([]byte, 64))
		if err == nil {
			continue
		}
		if !errors.As(err, &failed) || failed.Type != "Runtime.ExitError" {
			t.Errorf("got %v", err)
		}
		return
	}
}
