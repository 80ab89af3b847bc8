package lambda

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupLeader makes the child the leader of a new group, and has the kernel kill it should this program be killed.
func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns true when the child has ended, without reaping it: until that is done its group id can't be given to
// anyone else, so the group can be killed safely.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) { // EINTR: a signal came to this thread
			return err == nil
		}
	}
}
