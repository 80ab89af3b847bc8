package lambda

import (
	"context"
	"syscall"
	"time"
)

// freeze stops the process group until the next invocation. The caller holds i.mu.
//
// The kernel orders signals as they are sent: a SIGCONT takes back a SIGSTOP that is still pending, so a thaw that follows
// at once can't be overtaken. A stopped process is killed by SIGKILL, and Pdeathsig, all the same; a SIGTERM would wait.
func (i *instance) freeze() {
	if i.fn.host.opts.Freeze && !i.quitting {
		i.frozen = true
		i.proc.signal(syscall.SIGSTOP)
	}
}

// thaw undoes freeze. The caller holds i.mu.
func (i *instance) thaw() {
	if i.frozen {
		i.frozen = false
		if !i.hung {
			i.proc.signal(syscall.SIGCONT)
		}
	}
}

func (i *instance) hang() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hung = true
	i.proc.signal(syscall.SIGSTOP)
}

func (i *instance) resume() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hung = false
	if !i.frozen {
		i.proc.signal(syscall.SIGCONT)
	}
}

// spinDown ends the instance for good. It does not wait; what is left is the supervisor's.
func (i *instance) spinDown() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.quitting {
		i.quitting = true
		close(i.quit)
	}
	i.terminate()
}

// terminate ends the process as AWS does: by SIGKILL, and, if it has registered an extension, by SIGTERM some time before
// that. The caller holds i.mu.
func (i *instance) terminate() {
	if i.dying {
		return // under way
	}
	i.dying = true
	p, grace := i.proc, i.fn.host.opts.StopGrace
	if !i.extension || grace == 0 {
		p.signal(syscall.SIGKILL)
		return
	}
	p.signal(syscall.SIGTERM)
	i.thaw() // a stopped process would not see it
	i.killEnd = time.AfterFunc(grace, func() { p.signal(syscall.SIGKILL) })
}

// stop spins down and returns when nothing of the instance is left.
func (i *instance) stop(ctx context.Context) {
	i.spinDown()
	select {
	case <-i.dead:
		return
	case <-ctx.Done():
	}
	i.process().signal(syscall.SIGKILL)
	<-i.dead
}

// initExpired ends a process that never asked for work. The second time, that is the function's timeout.
func (i *instance) initExpired() {
	i.mu.Lock()
	expired := i.state == StateStarting
	if expired {
		if i.restarted && i.initErr == nil && i.current != nil {
			i.initErr = timedOut(i.fn.cfg.Name, i.current.id, i.fn.cfg.Timeout)
		}
		i.terminate()
	}
	i.mu.Unlock()
	if expired {
		i.log().Warn("init timed out")
	}
}

// expired ends a process whose invocation ran over the function's timeout. A response that is already complete stands.
func (i *instance) expired(inv *invocation) {
	i.mu.Lock()
	current := i.current == inv
	if current {
		if inv.failure == nil && !inv.complete {
			inv.failure = timedOut(i.fn.cfg.Name, inv.id, i.fn.cfg.Timeout)
		}
		i.terminate()
	}
	i.mu.Unlock()
	if current {
		i.log().Warn("task timed out", "request_id", inv.id)
	}
}
