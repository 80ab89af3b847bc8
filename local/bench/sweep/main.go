// Sweep shows where a call's time goes: it offers tasks all at once to one worker under one concurrency limit after another, and
// tells the wait for a slot from the service. The ratios of the two are held against their bands (FEATURES F4); absolute times are
// told on the way, and not written down. It needs valkey-server.
//
//	go run ./local/bench/sweep -out results/sweep.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sweep: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("sweep", flag.ContinueOnError)
	flags.SetOutput(progress)
	rounds := flags.Int("rounds", 5, "rounds of every limit, in turns, 1 to 50; the table has medians")
	report := flags.String("out", "", "write the table to this file too, if all of it holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *rounds > 50 || flags.NArg() > 0 {
		return errors.New("a flag is out of its range, or there is a word too many; -help tells them")
	}
	var limits []int
	for _, b := range bands() {
		limits = append(limits, b.limit)
	}
	all, err := measure(ctx, limits, *rounds, func(format string, args ...any) { fmt.Fprintf(progress, "· "+format+"\n", args...) })
	if err != nil {
		return err
	}
	rows, broken := judge(all)
	var text strings.Builder
	page(&text, fmt.Sprintf("go run ./local/bench/sweep -rounds %d -out results/sweep.md", *rounds), *rounds, rows, time.Now())
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("does not hold (nothing is written): %s", strings.Join(broken, "; "))
	}
	if *report == "" {
		return nil
	}
	return os.WriteFile(*report, []byte(text.String()), 0o644) // a document
}
