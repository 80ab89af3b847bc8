// Check runs the benchmarks that have something to compare, and holds what they give against figures that are committed: counts must be the
// same, ratios of times, each to a baseline in the same run, within 40 % at the median of five, sizes within 5 %. It prints a table and fails
// where one differs. With -update it writes the figures instead. It needs valkey-server.
//
//	go run ./local/bench/check -against results/bench.json
//	go run ./local/bench/check -update -against results/bench.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-check: "+err.Error())
		os.Exit(1)
	}
}

// measure is what one go test runs.
type measure struct {
	pkg   string
	bench string // a pattern of benchmarks' names
	runs  int    // of which the middle counts
}

// measures are the benchmarks that are compared.
func measures() []measure {
	return []measure{
		{"./pkg/llmq/capacity", "^BenchmarkPairsAgainstOneCommand$", runs},
		{"./pkg/llmq/claims", "^BenchmarkTakeAndFinish_AgainstBareScripts$", runs},
		{"./pkg/llmq/results", "^BenchmarkHub_AgainstBarePubSub$", runs},
		{"./local/bench/limiter", "^BenchmarkLaw$", 1}, // simulated time: another run is the same
		{"./local/bench/core", ".", runs},
	}
}

// runs of whatever takes real time.
const runs = 5

// longest bounds the run of one package.
const longest = 5 * time.Minute

// Report is what is committed.
type Report struct {
	Command string  `json:"command"`
	Machine string  `json:"machine"`
	Go      string  `json:"go"` // allocations are this release's
	Date    string  `json:"date"`
	Figures Figures `json:"figures"`
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench-check", flag.ContinueOnError)
	flags.SetOutput(progress)
	against := flags.String("against", "results/bench.json", "the file with the figures that are committed")
	update := flags.Bool("update", false, "write what is measured to that file, and compare nothing")
	only := flags.String("only", "", "packages whose path holds this; the figures of others are left alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is a word too many; -help tells the flags", flags.Arg(0))
	}
	committed, err := read(*against)
	if err != nil && (!*update || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	now := Figures{}
	for _, m := range measures() {
		if !strings.Contains(m.pkg, *only) {
			continue
		}
		fmt.Fprintf(progress, "· %s\n", m.pkg)
		got, err := m.run(ctx)
		if err != nil {
			return err
		}
		now.add(got)
	}
	if *update {
		if *only != "" {
			now.add(committed.Figures.without(now))
		}
		return write(*against, Report{
			Command: "make bench-update", Machine: fmt.Sprintf("%d processors (%s/%s)", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
			Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly), Figures: now,
		})
	}
	if *only != "" {
		committed.Figures = committed.Figures.of(now)
	}
	rows := compare(committed.Figures, now)
	table(out, rows)
	differ := 0
	for _, r := range rows {
		if r.verdict != same {
			differ++
		}
	}
	switch {
	case differ == 0:
		return nil
	case committed.Go != runtime.Version():
		return fmt.Errorf("%d of %d figures differ; the committed ones are of %s, and this is %s: allocations may differ by that alone", differ, len(rows), committed.Go, runtime.Version())
	default:
		return fmt.Errorf("%d of %d figures differ from %s; where that is meant, make bench-update writes it anew", differ, len(rows), *against)
	}
}

// run runs the benchmarks of a package and sums up what they report.
func (m measure) run(ctx context.Context) (Figures, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-tags=lambda.norpc", "-run", "^$", "-bench", m.bench, "-benchtime", "1x", "-count", strconv.Itoa(m.runs), "-timeout", longest.String(), m.pkg)
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0", "CI=1"), os.Stderr // in CI what can't run fails, instead of being left out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", m.pkg, err, text)
	}
	got, err := parse(m.pkg, string(text))
	if err == nil && len(got) == 0 {
		err = errors.New("no benchmark of it reports anything that can be compared")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.pkg, err)
	}
	return got, nil
}

func read(path string) (r Report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("the committed figures (make bench-update makes them): %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func write(path string, r Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) // a document
}
