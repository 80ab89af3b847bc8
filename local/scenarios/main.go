// Scenarios runs what llmq promises as a whole on the real functions, in the local cloud with a real Valkey and the fake
// provider: each scenario puts a load on it, lets things go wrong, and counts. It prints a table for people and then one line
// of JSON each, and fails if one of them does.
//
// SCN_PROVIDER=openai or aws has a real endpoint serve those that are safe there (backend.go).
//
//	scenarios [-scale short|full] [-seed 1] [-parallel 1] [-for 1h] [-out results/scenarios.md] ID… | all
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/llm-queue/llmq/local/cloud"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scenarios: "+err.Error())
		os.Exit(1)
	}
}

// errFailed says that a scenario did not hold; the table says which.
var errFailed = errors.New("not all scenarios pass")

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("scenarios", flag.ContinueOnError)
	flags.SetOutput(progress)
	scale := flags.String("scale", "short", "how much load: short, or full as the definitions say")
	seed := flags.Uint64("seed", 1, "what chance begins from")
	parallel := flags.Int("parallel", 1, "how many run side by side; those that hold milliseconds always run by themselves")
	lasts := flags.Duration("for", 0, "how long soak lasts, 10s to 12h; 0 is an hour, in short form 12 s")
	report := flags.String("out", "", "write the figures to this file too, as Markdown")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *scale != "short" && *scale != "full" {
		return fmt.Errorf("scale %q is neither short nor full", *scale)
	}
	if *parallel < 1 {
		return fmt.Errorf("parallel is %d, must be at least 1", *parallel)
	}
	if *lasts != 0 && (*lasts < 10*time.Second || *lasts > 12*time.Hour) {
		return fmt.Errorf("for is %s, must be from 10s to 12h", *lasts)
	}
	chosen, err := choose(all(), flags.Args())
	if err != nil {
		return err
	}
	real, err := findBackend(os.Environ())
	if err != nil {
		return err
	}
	if chosen, err = real.allowed(chosen, flags.Args()); err != nil {
		return err
	}
	// Programs that run here ask only the local cloud, as its one known producer; the keys of whoever starts it stay out of it.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": cloud.Producer, "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "llmq-scenarios-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(progress, "· building the functions (the first time takes a minute or two)")
	functions, err := cloud.Build(ctx, dir, jobPackages)
	if err != nil {
		return err
	}
	command := fmt.Sprintf("make scenarios S=%q SCALE=%s SEED=%d PARALLEL=%d OUT=%s", strings.Join(flags.Args(), " "), *scale, *seed, *parallel, *report)
	if *lasts > 0 {
		command += " FOR=" + lasts.String()
	}
	if real != nil {
		command = "SCN_PROVIDER=" + string(real.Type) + " " + command
	}
	verdicts, err := judgeAll(ctx, chosen, *parallel,
		func(sc scenario) verdict {
			return (&trial{Full: *scale == "full", Seed: *seed, Lasts: *lasts, Backend: real, functions: functions, progress: progress}).judge(ctx, sc)
		},
		func(done []verdict) error {
			if *report == "" {
				return nil
			}
			// After each, so that a run which is cut short has its page.
			return writeReport(*report, command, time.Now(), done)
		})
	if err != nil {
		return err
	}
	table(out, verdicts)
	if err := lines(out, verdicts); err != nil {
		return err
	}
	if slices.ContainsFunc(verdicts, func(v verdict) bool { return !v.pass() }) {
		return errFailed
	}
	return nil
}

// judgeAll runs scenarios side by side, and then each of those that want quiet by itself; those that share a run have its verdict. After each
// one report gets those that are done, in the order in which they were chosen, as the verdicts are in the end.
func judgeAll(ctx context.Context, chosen []scenario, parallel int, judge func(scenario) verdict, report func([]verdict) error) ([]verdict, error) {
	all := make([]*verdict, len(chosen))
	done := func() (vs []verdict) {
		for _, v := range all {
			if v != nil {
				vs = append(vs, *v)
			}
		}
		return vs
	}
	shared := map[string]func() verdict{}
	for _, sc := range chosen {
		if run := sc.run(); shared[run] == nil {
			shared[run] = sync.OnceValue(func() verdict { return judge(sc) })
		}
	}
	var mu sync.Mutex // guards all, and the report
	for _, quiet := range []bool{false, true} {
		var group errgroup.Group
		group.SetLimit(parallel)
		if quiet {
			group.SetLimit(1)
		}
		// The last ones take longest, so they begin first, or one would run on by itself at the end.
		for i, sc := range slices.Backward(chosen) {
			if sc.Quiet != quiet {
				continue
			}
			group.Go(func() error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				v := shared[sc.run()]()
				v.Scenario = sc
				mu.Lock()
				defer mu.Unlock()
				all[i] = &v
				return report(done())
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	return done(), nil
}

// choose finds scenarios by id, in whatever case; "all" is all of them but those that stand apart.
func choose(known []scenario, ids []string) ([]scenario, error) {
	var chosen []scenario
	var unknown []string
	for _, id := range ids {
		if strings.EqualFold(id, "all") {
			chosen = append(chosen, slices.DeleteFunc(slices.Clone(known), func(sc scenario) bool { return sc.Apart })...)
			continue
		}
		i := slices.IndexFunc(known, func(sc scenario) bool { return strings.EqualFold(sc.ID, id) })
		if i < 0 {
			unknown = append(unknown, id)
			continue
		}
		chosen = append(chosen, known[i])
	}
	if len(unknown) == 0 && len(chosen) > 0 {
		return chosen, nil
	}
	var b strings.Builder
	for _, sc := range known {
		fmt.Fprintf(&b, "\n  %-14s %s", sc.ID, sc.What)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("there is no scenario %s; there are all, and:%s", strings.Join(unknown, ", "), b.String())
	}
	return nil, fmt.Errorf("name the scenarios to run; there are all, and:%s", b.String())
}
