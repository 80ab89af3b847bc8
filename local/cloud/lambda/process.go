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

// errStopping is why a process was not started.
var errStopping = errors.New("the instance is to end")

// process is one child and the group it leads.
type process struct {
	born  chan struct{} // closed when the child's pid is known, or there will never be one
	ended chan struct{} // closed when the child is gone, or will never be there

	mu     sync.Mutex // guards what follows; held over kill(2), which does not block
	pid    int        // 0 before the start
	over   bool       // the child is about to be reaped, or was: its pid may be somebody else's from now on
	doomed bool       // killed before it started
	peakKB int        // most memory it had, known when it is over
}

func newProcess() *process { return &process{born: make(chan struct{}), ended: make(chan struct{})} }

// run starts cmd as the leader of a group of its own and returns when it, and whatever it left in its group, is gone. It
// calls started once cmd has been started, or could not be. Called once.
//
// It keeps its thread for all that time. The kernel sends Pdeathsig when the *thread* that forked ends, so the thread must
// live at least as long as the child, or the child would be killed for no reason.
func (p *process) run(cmd *exec.Cmd, started func()) exit {
	defer close(p.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = groupLeader()
	err := p.start(cmd)
	close(p.born)
	started()
	if err != nil {
		return exit{startErr: err}
	}

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
	p.peakKB = peakKB(cmd.ProcessState)
	p.mu.Unlock()
	return exit{state: cmd.ProcessState}
}

func (p *process) start(cmd *exec.Cmd) error {
	if p.isDoomed() {
		return errStopping
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = cmd.Process.Pid
	if p.doomed {
		p.killLocked(syscall.SIGKILL)
	}
	return nil
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

// peakMemoryMB is the most memory that the child had at once, rounded up; 0 where there is no way to know.
func (p *process) peakMemoryMB() int {
	pid := p.pidNow()
	p.mu.Lock()
	kb := p.peakKB
	p.mu.Unlock()
	if pid != 0 {
		kb = peakKBNow(pid)
	}
	return (kb + 1023) / 1024
}
