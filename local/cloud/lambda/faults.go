package lambda

import (
	"fmt"
	"syscall"
	"time"
)

// faults are what shall go wrong with a function.
type faults struct {
	slow     time.Duration // before each start of a process
	throttle int           // invocations still to be throttled
	crash    int           // invocations whose process still is to be killed
}

// Kill ends processes of a function by SIGKILL and returns when they are gone. Which is an instance's ID, a State, or ""
// for all of them: Kill("worker", "busy"). It fails with CodeNotFound when there is no such function or instance.
func (h *Host) Kill(function, which string) error {
	return h.each(function, which, func(i *instance) {
		p := i.process()
		p.signal(syscall.SIGKILL)
		select {
		case <-p.ended:
		case <-i.dead: // it never had a process
		}
	})
}

// Hang stops processes of a function (SIGSTOP), in the midst of what they do, until Resume; the next invocation does not
// wake them. One that has not started yet is not held: that is SlowStart's. Which and errors are as for Kill.
func (h *Host) Hang(function, which string) error {
	return h.each(function, which, (*instance).hang)
}

// Resume ends Hang. Which and errors are as for Kill.
func (h *Host) Resume(function, which string) error {
	return h.each(function, which, (*instance).resume)
}

// SlowStart makes every further cold start of a function take d longer, before the process starts. 0 ends it. It fails
// with CodeNotFound.
func (h *Host) SlowStart(function string, d time.Duration) error {
	return h.fault(function, func(f *faults) { f.slow = d })
}

// ThrottleNext throttles the next n invocations of a function. It fails with CodeNotFound.
func (h *Host) ThrottleNext(function string, n int) error {
	return h.fault(function, func(f *faults) { f.throttle = n })
}

// CrashNext kills the process of each of the next n invocations of a function when it asks for its payload, which counts as
// handed over. It fails with CodeNotFound.
func (h *Host) CrashNext(function string, n int) error {
	return h.fault(function, func(f *faults) { f.crash = n })
}

func (h *Host) fault(name string, set func(*faults)) error {
	f, err := h.function(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.faults)
	return nil
}

func (h *Host) each(name, which string, do func(*instance)) error {
	f, err := h.function(name)
	if err != nil {
		return err
	}
	found := false
	for _, i := range f.all() {
		if info := i.info(); which == "" || which == info.ID || which == string(info.State) {
			found = true
			do(i)
		}
	}
	if !found {
		return &Error{Code: CodeNotFound, Function: name, Reason: fmt.Sprintf("no instance is %q", which)}
	}
	return nil
}

func (f *function) slowStart() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults.slow
}

// takeCrash says whether the invocation at hand shall crash.
func (f *function) takeCrash() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults.crash == 0 {
		return false
	}
	f.faults.crash--
	return true
}
