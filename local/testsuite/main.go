// Testsuite runs the Go tests of this module, each package's in a network namespace of its own that has loopback and nothing else, so that
// a run in which all pass has sent nothing out of the machine (FEATURES F7). It writes what was run, and which test proves what.
//
//	testsuite -race -without-race "./local/rig ./local/fakellm" -out results/test-suite.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Verbs by which testsuite calls itself.
const (
	verbAlone  = "alone"  // runs a test binary in a namespace
	verbInside = "inside" // is in it
)

var errNoNamespace = errors.New("no network namespace can be made here")

func main() {
	if len(os.Args) > 2 && os.Args[1] == verbAlone {
		exit(alone(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == verbInside {
		exit(inside(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		err = nil
	}
	exit(err)
}

// exit ends the process as its error says: with a command's own code where that is what failed.
func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	if code := (*exec.ExitError)(nil); errors.As(err, &code) {
		os.Exit(max(1, code.ExitCode()))
	}
	fmt.Fprintln(os.Stderr, "testsuite: "+err.Error())
	os.Exit(1)
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("testsuite", flag.ContinueOnError)
	flags.SetOutput(progress)
	race := flags.Bool("race", false, "with the race detector, which needs a C compiler")
	without := flags.String("without-race", "", "packages, by spaces, that -race leaves as they are")
	timeout := flags.Duration("timeout", 20*time.Minute, "of a package, 1m to 2h")
	report := flags.String("out", "", "write what was run to this file, if all of it passes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *timeout < time.Minute || *timeout > 2*time.Hour {
		return errors.New("a flag is out of its range, or there is a word too many; -help tells them")
	}
	plain, err := list(ctx, strings.Fields(*without)...)
	if err != nil {
		return err
	}
	all, err := list(ctx, "./...")
	if err != nil {
		return err
	}
	s := newSuite()
	if s.alone, err = canBeAlone(ctx); err != nil {
		fmt.Fprintf(progress, "· %v: nothing proves that no test reaches beyond this machine\n", err)
	}
	for _, part := range []struct {
		packages    []string
		race, waits bool
	}{{minus(all, plain), *race, false}, {plain, false, true}} {
		if len(part.packages) == 0 {
			continue
		}
		if err := s.test(ctx, out, part.packages, part.race, part.waits, *timeout); err != nil {
			return err
		}
	}
	fmt.Fprintln(progress, "· "+s.summary())
	if s.failed() {
		return errors.New("tests failed")
	}
	if *report == "" || !s.alone {
		return nil
	}
	proofs, err := proofs(".")
	if err != nil {
		return err
	}
	return os.WriteFile(*report, s.page(proofs, time.Now()), 0o644) // a document
}

// canBeAlone reports whether packages can have a namespace each, and if not, why.
func canBeAlone(ctx context.Context) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	if text, err := exec.CommandContext(ctx, self, verbAlone, "true").CombinedOutput(); err != nil {
		return false, fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(text)), "testsuite: "))
	}
	return true, nil
}

func list(ctx context.Context, patterns ...string) ([]string, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return strings.Fields(string(text)), nil
}

func minus(all, some []string) []string {
	var rest []string
	drop := map[string]bool{}
	for _, p := range some {
		drop[p] = true
	}
	for _, p := range all {
		if !drop[p] {
			rest = append(rest, p)
		}
	}
	return rest
}
