package lambda

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// pipeGrace bounds the wait for the end of a dead process's output, should something outside its group hold the pipe.
const pipeGrace = time.Second

// exit is how a process ended: startErr if it never ran.
type exit struct {
	startErr error
	state    *os.ProcessState
}

// process is one child and the group it leads.
type process struct {
	mu     sync.Mutex // guards what follows; held over kill(2), which does not block
	pid    int        // 0 before the start
	over   bool       // the child is about to be reaped, or was: its pid may be somebody else's from now on
	doomed bool       // killed before it started
}

// run starts cmd as the leader of a group of its own and returns when it, and whatever it left in its group, is gone.
//
// It keeps its thread for all that time. The kernel sends Pdeathsig when the *thread* that forked ends, so the thread must
// live at least as long as the child, or the child would be killed for no reason.
func (p *process) run(cmd *exec.Cmd) exit {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = groupLeader()
	cmd.WaitDelay = pipeGrace
	if p.isDoomed() {
		return exit{startErr: errors.New("host is closing")}
	}
	if err := cmd.Start(); err != nil {
		return exit{startErr: err}
	}
	p.mu.Lock()
	p.pid = cmd.Process.Pid
	if p.doomed {
		p.killLocked(syscall.SIGKILL)
	}
	p.mu.Unlock()

	if awaitExit(cmd.Process.Pid) {
		p.mu.Lock()
		p.killLocked(syscall.SIGKILL) // what the child left in its group; it would keep the output pipes open
		p.over = true
		p.mu.Unlock()
	}
	_ = cmd.Wait() // the state tells more than the error
	p.mu.Lock()
	p.killLocked(syscall.SIGKILL) // the same where the exit could not be awaited first
	p.over = true
	p.mu.Unlock()
	return exit{state: cmd.ProcessState}
}

// signal sends sig to the whole group, or nothing when it is gone. A SIGKILL before the start prevents the start.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 && sig == syscall.SIGKILL {
		p.doomed = true
	}
	p.killLocked(sig)
}

func (p *process) killLocked(sig syscall.Signal) {
	if p.pid == 0 || p.over {
		return
	}
	_ = syscall.Kill(-p.pid, sig) // ESRCH: gone already, which is what was wanted
}

func (p *process) isDoomed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doomed
}

// pidNow returns the process id, 0 before the start and after the end.
func (p *process) pidNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return 0
	}
	return p.pid
}
