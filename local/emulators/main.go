// Command emulators runs the SQS conformance suite of local/cloud/sqs on other people's emulators and compares the outcome with what
// expected.json says of each: which checks fail, and why. It is a second opinion on the suite itself, for a check that fails
// everywhere, or a server that nobody else resembles, would prove little. docs/EMULATORS.md shows the table.
//
// The emulators are npm packages. They are installed under -dir, at the versions below, without their install scripts; nothing of
// them is in go.mod or in a package.json. They listen on 127.0.0.1 only. With -update it writes which checks failed into
// expected.json, where somebody must then say why.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

func main() {
	dir := flag.String("dir", ".build/emulators", "where the emulators are installed")
	update := flag.Bool("update", false, "write the outcome into "+expectedFile)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	ok, err := run(ctx, *dir, *update)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulators:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run installs and tests every emulator, prints the table and tells whether all is as expected.
func run(ctx context.Context, dir string, update bool) (ok bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return false, fmt.Errorf("directory of the emulators: %w", err)
	}
	expected, err := readExpected()
	if err != nil {
		return false, err
	}
	fmt.Println("· compiling the suite, installing the emulators")
	suite, err := prepare(ctx, dir)
	if err != nil {
		return false, err
	}
	rows := sqstest.Rows() //nolint:contextcheck // names alone: no check runs here
	got := map[string]outcome{}
	for _, e := range emulators() {
		fmt.Println("· running the suite on", e.name, e.version)
		if got[e.name], err = e.test(ctx, dir, suite); err != nil {
			return false, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	fmt.Print("\n", table(rows, got), "\n")
	if update {
		return true, expected.record(rows, got)
	}
	differences := expected.compare(rows, got)
	for _, d := range differences {
		fmt.Println("NOT AS EXPECTED:", d)
	}
	if len(differences) == 0 {
		fmt.Println("every outcome is as " + expectedFile + " says")
	}
	return len(differences) == 0, nil
}
