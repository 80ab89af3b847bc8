//go:build unix && !linux

package lambda

import (
	"os"
	"syscall"
)

// groupLeader makes the child the leader of a new group. Only Linux can tie its life to ours.
func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit reports false at once: waiting without reaping is not to be had portably.
func awaitExit(int) bool { return false }

// peakKB and peakKBNow report 0: units differ, and there is no portable way to know.
func peakKB(*os.ProcessState) int { return 0 }
func peakKBNow(int) int           { return 0 }
