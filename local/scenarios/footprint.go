package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// footprint is what is taken while nothing is queued and nobody calls.
type footprint struct {
	goroutines int // of this process: the local cloud and the Go program in it
	valkey     int // bytes of data
	functions  map[string]taken
}

// taken is what the processes of a function take: the most that one of them does.
type taken struct {
	processes int
	memory    int // resident, bytes
	files     int // open
}

func (w *world) footprint(ctx context.Context) (footprint, error) {
	w.door.CloseIdleConnections() // they differ by how many callers there were at once
	runtime.GC()
	f := footprint{functions: map[string]taken{}}
	names := []string{cloud.FunctionEnqueue}
	for _, l := range llmq.Lanes() {
		names = append(names, cloud.FunctionWorker(l))
	}
	for _, name := range names {
		var all taken
		for _, p := range w.Lambda.Instances(name) {
			memory, files, err := ofProcess("/proc", p.PID)
			if p.PID == 0 || err != nil {
				continue // it has ended meanwhile
			}
			all = taken{all.processes + 1, max(all.memory, memory), max(all.files, files)}
		}
		f.functions[name] = all
	}
	text, err := w.Store.Info(ctx, "memory").Result()
	if err != nil {
		return f, fmt.Errorf("memory of Valkey: %w", err)
	}
	if f.valkey, err = labelled(text, "used_memory:"); err != nil {
		return f, fmt.Errorf("memory of Valkey: %w", err)
	}
	f.goroutines = runtime.NumGoroutine()
	return f, nil
}

// ofProcess reads what the system says of a process.
func ofProcess(proc string, pid int) (memory, files int, err error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, 0, err
	}
	kib, err := labelled(string(status), "VmRSS:")
	if err != nil {
		return 0, 0, err
	}
	open, err := os.ReadDir(filepath.Join(dir, "fd"))
	return kib << 10, len(open), err
}

// labelled is the number that follows a label at the begin of a line.
func labelled(text, label string) (int, error) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), label); ok {
			number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			return strconv.Atoi(number)
		}
	}
	return 0, fmt.Errorf("no line begins with %s", label)
}
