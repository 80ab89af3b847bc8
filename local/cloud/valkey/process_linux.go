package valkey

import "syscall"

// childAttributes puts the child into a process group of its own, so that Ctrl-C in a terminal
// reaches it only by way of Close, and has the kernel kill it if this process dies without Close.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
