package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is what was run so far.
type suite struct {
	alone    bool // each package in a namespace of its own
	packages map[string]*counts
	skipped  map[string]string // test: what it said
}

// counts are of tests, examples and seeds of fuzz targets; what they run inside is not counted apart.
type counts struct{ passed, failed, skipped int }

func newSuite() *suite { return &suite{packages: map[string]*counts{}, skipped: map[string]string{}} }

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	FailedBuild                   string
}

// test runs packages, passes on what people want to read of it, and counts.
func (s *suite) test(ctx context.Context, out io.Writer, packages []string, race, waits bool, timeout time.Duration) error {
	args := []string{"test", "-json", "-trimpath", "-tags=lambda.norpc", "-timeout", timeout.String()}
	env := os.Environ()
	if race {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	} else if waits {
		// Its tests wait for time to pass in other processes, and not for a processor.
		args, env = append(args, "-parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)), append(env, "CGO_ENABLED=0")
	} else {
		env = append(env, "CGO_ENABLED=0") // as everything else is built, so that nothing is compiled twice
	}
	if s.alone {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		args = append(args, "-exec", fmt.Sprintf("%q %s", self, verbAlone))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	read := s.read(events, out)
	err = cmd.Wait()
	if code := (*exec.ExitError)(nil); errors.As(err, &code) && s.failed() {
		err = nil // the counts tell
	}
	return errors.Join(read, err)
}

// read follows the events of a run. A line that is none is passed on: it is the go command's own.
func (s *suite) read(events io.Reader, out io.Writer) error {
	said := map[string]*bytes.Buffer{} // package and test: what it printed
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				if _, err := out.Write(line); err != nil {
					return err
				}
			} else if err := s.event(e, said, out); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("go test: %w", err)
		}
	}
}

func (s *suite) event(e event, said map[string]*bytes.Buffer, out io.Writer) error {
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "output" || e.Action == "build-output":
		if e.Test == "" {
			if e.Output == "PASS\n" { // the line that follows says it too
				return nil
			}
			_, err := io.WriteString(out, e.Output)
			return err
		}
		if said[key] == nil {
			said[key] = &bytes.Buffer{}
		}
		said[key].WriteString(e.Output)
		return nil
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		return nil
	}
	text := said[key]
	delete(said, key)
	c := s.packages[e.Package]
	if c == nil {
		c = &counts{}
		s.packages[e.Package] = c
	}
	switch top := e.Test != "" && !strings.Contains(e.Test, "/"); {
	case e.Action == "fail" && text != nil:
		if top {
			c.failed++
		}
		_, err := text.WriteTo(out)
		return err
	case e.Action == "fail": // of a package, its build among the causes
		c.failed = max(1, c.failed)
	case e.Action == "pass" && top:
		c.passed++
	case e.Action == "skip" && top:
		c.skipped++
		s.skipped[e.Package+"."+e.Test] = reason(text)
	}
	return nil
}

// reason is what a test said when it skipped itself.
func reason(text *bytes.Buffer) string {
	if text == nil {
		return ""
	}
	for line := range strings.Lines(text.String()) {
		if _, said, ok := strings.Cut(strings.TrimSpace(line), ".go:"); ok {
			_, said, _ = strings.Cut(said, ": ")
			return said
		}
	}
	return ""
}

func (s *suite) failed() bool {
	for _, c := range s.packages {
		if c.failed > 0 {
			return true
		}
	}
	return false
}

func (s *suite) total() (t counts, packages int) {
	for _, c := range s.packages {
		t.passed, t.failed, t.skipped = t.passed+c.passed, t.failed+c.failed, t.skipped+c.skipped
		if *c != (counts{}) {
			packages++
		}
	}
	return t, packages
}

func (s *suite) summary() string {
	t, packages := s.total()
	text := fmt.Sprintf("%d tests in %d packages passed, %d failed, %d skipped", t.passed, packages, t.failed, t.skipped)
	if s.alone {
		text += "; none could reach beyond loopback"
	}
	for _, name := range slices.Sorted(maps.Keys(s.skipped)) {
		text += fmt.Sprintf("\n  skipped: %s: %s", name, s.skipped[name])
	}
	return text
}

// page is what was run, for results/. But for the day it holds no times, so that it changes with the tests only.
func (s *suite) page(proofs map[string][]string, now time.Time) []byte {
	t, packages := s.total()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The test suite\n\nMade by `make test` on %d processors (%s/%s), %s, where everything passed. %d tests, examples and fuzz targets (by their seeds) in %d packages passed; %d skipped themselves.\n\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, now.UTC().Format(time.DateOnly), t.passed, packages, t.skipped)
	b.WriteString("Each package ran in a network namespace of its own whose only interface is loopback, with all processes that it started: no socket of the run could\n" +
		"leave the machine, so no test makes a live call (F7). The CDK module's tests, which start no network client, ran outside.\n\n")
	for _, name := range slices.Sorted(maps.Keys(s.skipped)) {
		fmt.Fprintf(&b, "- skipped: `%s`: %s\n", short(name), s.skipped[name])
	}
	b.WriteString("\n## What proves what\n\nBy the ids that tests name in their comments: features (A to G), scenarios (S, R), cases (H), security rules (SEC), delivery rules (DS).\n\n| id | tests |\n|---|---|\n")
	for _, id := range slices.SortedFunc(maps.Keys(proofs), byID) {
		fmt.Fprintf(&b, "| %s | %s |\n", id, strings.Join(proofs[id], ", "))
	}
	b.WriteString("\n## Packages\n\n| package | tests |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		if c := s.packages[name]; *c != (counts{}) {
			fmt.Fprintf(&b, "| `%s` | %d |\n", short(name), c.passed)
		}
	}
	return b.Bytes()
}

func short(name string) string { return strings.TrimPrefix(name, "github.com/llm-queue/llmq/") }
