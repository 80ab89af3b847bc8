package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// folderName is the name of a rig's temp folder: the namespace of its process's id, that id,
// when the process started, and a random end. The three say whether the process lives still,
// also where its id was given to another since, or where containers share a temp folder.
var folderName = regexp.MustCompile(`^llmq-run-([0-9]+-[0-9]+-[0-9]+)-[0-9]+$`)

// makeFolder makes the temp folder of a rig of this process, below parent.
func makeFolder(parent string) (string, error) {
	who, err := owner(os.Getpid())
	if err != nil { // no Linux: nothing will be cleared by this name
		return os.MkdirTemp(parent, "llmq-run-")
	}
	return os.MkdirTemp(parent, "llmq-run-"+who+"-")
}

// clearFolders removes what rigs left below parent whose processes were killed, and tells
// which. It leaves alone whatever is of a living process, of another namespace or user, or
// named otherwise.
func clearFolders(parent string) ([]string, error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var cleared []string
	var errs []error
	for _, e := range entries {
		m := folderName.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() || !dead(m[1]) { // a link is no directory here
			continue
		}
		path := filepath.Join(parent, e.Name())
		if err := os.RemoveAll(path); errors.Is(err, os.ErrPermission) {
			continue // another user's
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		cleared = append(cleared, path)
	}
	return cleared, errors.Join(errs...)
}

// dead reports whether it is certain that the process that who names has ended.
func dead(who string) bool {
	var namespace uint64
	var pid int
	var started string
	if n, err := fmt.Sscanf(who, "%d-%d-%s", &namespace, &pid, &started); n != 3 || err != nil {
		return false
	}
	here, err := pidNamespace()
	if err != nil || here != fmt.Sprint(namespace) {
		return false
	}
	now, err := owner(pid)
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	return err == nil && now != who
}

// owner names a process for good: the namespace of its id, its id, and when it started, in
// ticks since the machine did. It fails with [os.ErrNotExist] for one that has ended.
func owner(pid int) (string, error) {
	namespace, err := pidNamespace()
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// "PID (NAME) STATE …"; the name may hold anything. The start is the 22nd field.
	const start = 22 - 3
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= start {
		return "", fmt.Errorf("/proc/%d/stat has no start time", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" { // it has ended, and nobody has asked how
		return "", fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	return fmt.Sprintf("%s-%d-%s", namespace, pid, fields[start]), nil
}

// pidNamespace is the number of the namespace that process ids here are of.
func pidNamespace() (string, error) {
	link, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), nil
}
