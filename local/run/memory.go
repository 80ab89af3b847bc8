package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// footprint is what this process and all that it started hold in memory, in bytes. Pages
// that several processes share (the text of one binary) are counted once, in parts.
type footprint struct {
	own, children int64
	processes     int // children and theirs
}

// memory reads the footprint from the kernel. It fails where there is no Linux /proc.
func memory() (footprint, error) {
	var f footprint
	var err error
	if f.own, err = proportionalSize(os.Getpid()); err != nil {
		return footprint{}, err
	}
	parents, err := parents()
	if err != nil {
		return footprint{}, err
	}
	for pid := range parents {
		if !descends(parents, pid, os.Getpid()) {
			continue
		}
		size, err := proportionalSize(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue // it ended meanwhile
		}
		if err != nil {
			return footprint{}, err
		}
		f.children += size
		f.processes++
	}
	return f, nil
}

func (f footprint) String() string {
	return fmt.Sprintf("%.0f MiB here, %.0f MiB in the other processes (%d)", mib(f.own), mib(f.children), f.processes)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// parents maps each process of this machine to its parent.
func parents() (map[int]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	of := make(map[int]int, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		pid, parent, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		of[pid] = parent
	}
	return of, nil
}

// parseStat reads a process's id and its parent's from the line of /proc/PID/stat:
// "PID (NAME) STATE PARENT …". The name may hold blanks and parentheses.
func parseStat(line string) (pid, parent int, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, 0, errors.New("no process name in parentheses")
	}
	after := strings.Fields(line[end+1:])
	if len(after) < 2 {
		return 0, 0, errors.New("nothing after the process name")
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line[:open])); err != nil {
		return 0, 0, fmt.Errorf("process id: %w", err)
	}
	if parent, err = strconv.Atoi(after[1]); err != nil {
		return 0, 0, fmt.Errorf("parent id: %w", err)
	}
	return pid, parent, nil
}

func descends(parents map[int]int, pid, from int) bool {
	for range len(parents) { // a chain is no longer; pids that were used again may make a ring
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == from {
			return true
		}
		pid = parent
	}
	return false
}

// proportionalSize is a process's PSS in bytes, from /proc/PID/smaps_rollup.
func proportionalSize(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "Pss:")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("process %d tells no Pss", pid)
}
