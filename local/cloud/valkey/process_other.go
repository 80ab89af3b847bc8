//go:build unix && !linux

package valkey

import "syscall"

// childAttributes puts the child into a process group of its own, so that Ctrl-C in a terminal
// reaches it only by way of Close. Only Linux can also kill it when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
