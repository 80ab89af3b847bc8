package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

func TestParseStat_TakesAnyProcessName(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]int{
		"12 (valkey-server) S 7 12 12 0":   {12, 7},
		"12 (a (b) c) R 8 1":               {12, 8},
		"3 () Z 1":                         {3, 1},
		"4194303 (x) y) T 4194302 1 1 0 1": {4194303, 4194302},
	} {
		pid, parent, err := parseStat(line)
		if err != nil || pid != want[0] || parent != want[1] {
			t.Errorf("parseStat(%q) = %d, %d, %v; want %v", line, pid, parent, err, want)
		}
	}
	for _, line := range []string{"", "12", "12 (x", "12 (x)", "12 (x) S", "a (x) S 1", "1 (x) S b"} {
		if _, _, err := parseStat(line); err == nil {
			t.Errorf("parseStat(%q) is no error", line)
		}
	}
}

func TestDescends_EndsInARing(t *testing.T) {
	t.Parallel()
	of := map[int]int{5: 4, 4: 3, 3: 1, 8: 9, 9: 8}
	for pid, want := range map[int]bool{5: true, 4: true, 3: false, 8: false, 77: false} {
		if got := descends(of, pid, 3); got != want {
			t.Errorf("descends(%d) = %v, want %v", pid, got, want)
		}
	}
}

// The test's own process and a child of its are counted, each with at least a page.
func TestMemory_CountsThisProcessAndItsChildren(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from Linux's /proc")
	}
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close() // that ends it
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}()
	f, err := memory()
	if err != nil {
		t.Fatal(err)
	}
	if f.own < int64(os.Getpagesize()) || f.children < int64(os.Getpagesize()) || f.processes < 1 {
		t.Errorf("memory() = %+v", f)
	}
}
