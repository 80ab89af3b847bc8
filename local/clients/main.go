// Command clients runs the vendors' own clients, unchanged, against the real functions in a local cloud: openai-go and the Go Bedrock
// SDK in this program, those of npm and of PyPI in node/ and python/. What a client can't do through llmq is a line that begins with
// FAIL, and exit code 1.
//
// The packages are installed under -dir, at the versions of the files here, without install scripts. Where there is no Node, or where
// Python packages can't be installed, their clients are skipped, which is said. Everything listens on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/llm-queue/llmq/local/clients/suite"
	"github.com/llm-queue/llmq/local/rig"
)

func main() {
	dir := flag.String("dir", ".build/clients", "where packages are installed")
	only := flag.String("only", "", "go, node or python; empty is all")
	verbose := flag.Bool("v", false, "show what the functions log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	ok, err := run(ctx, *dir, *only, *verbose)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// language is the checks of one language's clients.
type language struct {
	name string
	run  func(ctx context.Context, w *world, r *report) error
}

func run(ctx context.Context, dir, only string, verbose bool) (ok bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return false, err
	}
	w, err := start(ctx, verbose)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, w.Close(closing))
	}()
	r := &report{out: os.Stdout}
	for _, s := range []language{{"go", runGo}, {"node", node(dir)}, {"python", python(dir)}} {
		if only != "" && only != s.name {
			continue
		}
		if err := s.run(ctx, w, r); err != nil {
			return false, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.end(), nil
}

// world is a running local cloud, and what steers its provider.
type world struct {
	*rig.Rig
	*suite.Control
}

// start starts one whose waits between tries are short, so that an error of a provider takes no minute, and whose limits and breakers
// learn nothing: one check's errors must not be the next one's wait.
func start(ctx context.Context, verbose bool) (*world, error) {
	o := rig.Options{
		Env:  []string{"LLMQ_RETRY_BASE_SECS=0.05", "LLMQ_RETRY_MAX_SECS=1", "LLMQ_THROTTLE_RETRY_MAX_SECS=1", "LLMQ_CB_THRESHOLD=1000", "LLMQ_AC_MIN_THROTTLES=1000", "LLMQ_AC_LOSS_TOLERANCE=1", "LLMQ_AC_PAUSE_RATIO=1"},
		Step: func(what string) { fmt.Println("· " + what) },
	}
	if verbose {
		o.Output = os.Stderr
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	r, err := rig.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	c, err := suite.NewControl(r.Fake)
	if err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return &world{r, c}, nil
}

// Close ends both.
func (w *world) Close(ctx context.Context) error {
	return errors.Join(w.Control.Close(ctx), w.Rig.Close(ctx))
}

// node runs the checks of the npm packages.
func node(dir string) func(context.Context, *world, *report) error {
	return func(ctx context.Context, w *world, r *report) error {
		fmt.Println("· installing openai, @aws-sdk/client-bedrock-runtime, @langchain/openai and @langchain/langgraph from npm")
		in, err := suite.Node(ctx, dir)
		return r.script(ctx, w, "node", in, err, "node", "checks.mjs")
	}
}

// python runs the checks of the PyPI packages.
func python(dir string) func(context.Context, *world, *report) error {
	return func(ctx context.Context, w *world, r *report) error {
		fmt.Println("· installing openai, boto3, langchain-openai, langchain-aws and langgraph from PyPI")
		in, interpreter, err := suite.Python(ctx, dir)
		return r.script(ctx, w, "python", in, err, interpreter, "checks.py")
	}
}
