package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// What grows beyond its bound is told, each by its name; what stays within it is not.
func TestLevel_TellsWhatGrows(t *testing.T) {
	t.Parallel()
	took := func(goroutines, valkey, memory, files int) footprint {
		return footprint{goroutines, valkey, map[string]taken{cloud.FunctionEnqueue: {2, memory, files}, "idle": {}}}
	}
	base := took(100, 10<<20, 40<<20, 20)
	for _, tt := range []struct {
		after footprint
		want  string // "" holds
	}{
		{base, ""},
		{took(150, 14<<20, 58<<20, 28), ""},
		{took(151, 10<<20, 40<<20, 20), "151 at the end"},
		{took(100, 15<<20, 40<<20, 20), "Valkey takes"},
		{took(100, 10<<20, 59<<20, 20), "the largest process of " + cloud.FunctionEnqueue},
		{took(100, 10<<20, 40<<20, 29), "29 at the end"},
		{footprint{goroutines: 1}, "no function had processes"},
	} {
		tr := &trial{Full: true, progress: &bytes.Buffer{}}
		tr.level(base, tt.after)
		got := strings.Join(tr.broken, "; ")
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) || len(tr.broken) > 1 {
			t.Errorf("%+v: %q, want %q", tt.after, got, tt.want)
		}
	}
}

func TestOfProcess_ReadsThisOne(t *testing.T) {
	t.Parallel()
	memory, files, err := ofProcess("/proc", os.Getpid())
	if err != nil || memory < 1<<20 || files < 3 {
		t.Errorf("%d bytes, %d files, %v", memory, files, err)
	}
	if _, _, err := ofProcess(t.TempDir(), 1); err == nil {
		t.Error("a process that is not there takes something")
	}
}

// A program's call that ends in an error of llmq's own making is no honest end.
func TestTally_TellsHonestErrors(t *testing.T) {
	t.Parallel()
	var y tally
	for _, err := range []error{
		nil, fmt.Errorf("do: %w", llmq.Errorf(llmq.CodeTimeout, "late")), llmq.Errorf(llmq.CodeInternal, "ours"), errors.New("cut"),
	} {
		y.ended(err)
	}
	if y.ok != 1 || y.honest != 1 || len(y.wrong) != 2 {
		t.Errorf("%d ok, %d honest, wrong: %v", y.ok, y.honest, y.wrong)
	}
}
