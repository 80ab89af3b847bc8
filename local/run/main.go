// Run is llmq on this machine in one command: it builds the functions, starts a small
// AWS around them, sends one call through the queue, and serves until it is stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/llm-queue/llmq/local/beacon"
	"github.com/llm-queue/llmq/local/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "llmq: "+err.Error())
		os.Exit(1)
	}
}

// run does it all, and leaves no process and no file behind when it returns.
func run(ctx context.Context, args, env []string, out, errOut io.Writer) (err error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(errOut)
	once := flags.Bool("once", false, "send the one call, then stop instead of serving")
	verbose := flags.Bool("v", false, "show what the functions log")
	var jobs workers
	flags.Var(&jobs, "jobs", "QUEUE=PACKAGE: a queue of jobs, and the package of the worker that runs them; may be given many times")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := addresses(env)
	if err != nil {
		return err
	}
	if err := at.free(); err != nil {
		return err
	}
	began := time.Now()
	step := func(what string) { fmt.Fprintln(errOut, "· "+what) }
	o := rig.Options{HTTP: at.http, HTTPS: at.https, Admin: at.admin, Env: env, Output: warnings{errOut, &sync.Once{}}, Step: step}
	o.Jobs, o.Change = jobs.packages(), jobs.configure
	level := slog.LevelWarn
	if *verbose {
		o.Output, level = errOut, slog.LevelInfo
	}
	o.Logger = slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	r, err := rig.Start(ctx, o)
	if err != nil && ctx.Err() != nil {
		step("stopped before it was ready")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = errors.Join(err, r.Close(closing))
	}()
	step("state store: " + r.Valkey.Kind())
	step("provider: " + r.Provider)
	if r.Cassette != "" {
		step("cassette: " + r.Cassette)
	}
	if r.Fake != nil && lookup(env, "OPENAI_API_KEY") != "" {
		step("OPENAI_API_KEY is set without OPENAI_BASE_URL, so no real provider is called")
	}
	if err := firstCall(ctx, r, out); err != nil && ctx.Err() == nil {
		if *once {
			return err
		}
		fmt.Fprintln(errOut, "llmq: "+err.Error()) // it may be a limit that is tried out, or a model that the endpoint doesn't serve
	}
	step(fmt.Sprintf("ready after %.1f s%s", time.Since(began).Seconds(), inMemory()))
	if !*once {
		putOut, err := beacon.Light(lookup(env, "XDG_RUNTIME_DIR"), beacon.Cloud{URL: r.URL, Key: r.Key, AdminURL: r.AdminURL, AdminKey: r.AdminKey, CountsURL: r.CountsURL})
		if err != nil {
			step("llmq will not find this cloud by itself: " + err.Error())
		} else {
			defer func() { err = errors.Join(err, putOut()) }()
			step("llmq (go install ./cmd/llmq) finds it by itself: llmq status")
		}
	}
	printReady(out, r)
	if !*once {
		<-ctx.Done()
	}
	step("stopping")
	return nil
}

// inMemory tells what all of it holds, where that can be known.
func inMemory() string {
	f, err := memory()
	if err != nil {
		return ""
	}
	return "; memory: " + f.String()
}

// stopWithin bounds the end: then what still runs is killed.
const stopWithin = 5 * time.Second
