package lambda

import (
	"bytes"
	"errors"
	"os"
	"strconv"
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

// peakKB is the most memory that a process had which is over.
func peakKB(state *os.ProcessState) int {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int(usage.Maxrss)
	}
	return 0
}

// peakKBNow is the most memory that a running process had so far; 0 when it has just ended.
func peakKBNow(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		return 0 // a zombie has no such line
	}
	kb, err := strconv.Atoi(string(fields[0]))
	if err != nil {
		return 0
	}
	return kb
}
