package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const printed = `goos: linux
goarch: amd64
pkg: github.com/llm-queue/llmq/pkg/llmq/claims
BenchmarkTake/valkey-2         	       1	 123456 ns/op	 211.0 allocs/call	 1.900 x-bare-scripts	 0 B/op	 0 allocs/op
BenchmarkTake/valkey-2         	       1	 123456 ns/op	 212.0 allocs/call	 1.700 x-bare-scripts	 0 B/op	 0 allocs/op
BenchmarkTake/valkey-2         	       1	 123456 ns/op	 260.0 allocs/call	 9.000 x-bare-scripts	 0 B/op	 0 allocs/op
BenchmarkSize-16 1 9.5 MiB 99.70 %-goodput
BenchmarkTimeOnly-2 100 55 ns/op
PASS
ok  	github.com/llm-queue/llmq/pkg/llmq/claims	1.234s
`

// Of a count the least of the runs counts, of a ratio the middle one; times of this machine are left out.
func TestParse_LeastCountAndMedianRatio(t *testing.T) {
	t.Parallel()
	got, err := parse("./pkg/llmq/claims", printed)
	want := Figures{
		"pkg/llmq/claims Take/valkey": {"allocs/call": 211, "x-bare-scripts": 1.9},
		"pkg/llmq/claims Size":        {"MiB": 9.5, "%-goodput": 99.7},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := parse("./p", "BenchmarkX-2 1 many ns/op\n"); err == nil {
		t.Error("a figure that is no number is taken")
	}
}

// Counts are exact, ratios are within 40 % and sizes within 5 %, both ways.
func TestClose_ByKind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		unit    string
		was, is float64
		want    bool
	}{
		{"allocs/call", 200, 200, true},
		{"allocs/call", 200, 201, false},
		{"allocs/call", 200, 199, false},
		{"%-goodput", 99.7, 99.7, true},
		{"%-goodput", 99.7, 99.6, false},
		{"x-reverse-proxy", 2, 2.8, true},
		{"x-reverse-proxy", 2, 2.81, false},
		{"x-reverse-proxy", 2, 1.2, true},
		{"x-reverse-proxy", 2, 1.19, false},
		{"MiB", 10, 10.5, true},
		{"MiB", 10, 10.6, false},
	} {
		if got := close(tt.unit, tt.was, tt.is); got != tt.want {
			t.Errorf("%s from %v to %v: %v, want %v", tt.unit, tt.was, tt.is, got, tt.want)
		}
	}
}

// A figure that is on one side only is a difference: a benchmark that was dropped must not pass.
func TestCompare_TellsWhatIsOnOneSideOnly(t *testing.T) {
	t.Parallel()
	rows := compare(Figures{"a B": {"x-y": 2, "n/call": 3}, "gone C": {"n/call": 1}}, Figures{"a B": {"x-y": 2.1, "n/call": 4}, "new D": {"n/call": 1}})
	var got []string
	for _, r := range rows {
		got = append(got, r.name+" "+r.unit+" "+string(r.verdict))
	}
	if diff := cmp.Diff([]string{"a B n/call DIFFERS", "a B x-y ok", "gone C n/call NOT MEASURED", "new D n/call NOT COMMITTED"}, got); diff != "" {
		t.Error(diff)
	}
	var b bytes.Buffer
	table(&b, rows)
	for _, want := range []string{"a B\n", "n/call                                3          4  DIFFERS", "–          1  NOT COMMITTED"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if number(math.NaN()) != "–" {
		t.Error("what is not there is told as a number")
	}
}

// Packages that were not asked for are neither missed nor forgotten.
func TestFigures_OfSomePackages(t *testing.T) {
	t.Parallel()
	all, now := Figures{"a B": {"n/call": 1}, "a C": {"n/call": 1}, "d E": {"n/call": 1}}, Figures{"a B": {"n/call": 2}}
	if diff := cmp.Diff(Figures{"a B": {"n/call": 1}, "a C": {"n/call": 1}}, all.of(now)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Figures{"d E": {"n/call": 1}}, all.without(now)); diff != "" {
		t.Error(diff)
	}
}

// What is written is read again; a file that is not there says how it is made.
func TestReport_WrittenAndRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	if _, err := read(path); err == nil || !strings.Contains(err.Error(), "make bench-update") {
		t.Errorf("no file: %v", err)
	}
	r := Report{Command: "c", Machine: "m", Go: "go1", Date: "2026-11-30", Figures: Figures{"a B": {"n/call": 1, "x-y": 2.5}}}
	if err := write(path, r); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if diff := cmp.Diff(r, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path); err == nil {
		t.Error("a broken file is read")
	}
}
