// Command fakellm runs a fake LLM provider on loopback: the OpenAI and Bedrock wires, and an admin
// API to program it. See package server for what it answers, and README.md for how to use it.
//
// It prints one line of exports with its address and its keys, and serves until it is interrupted.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	fake, err := server.New(cfg.options(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cfg.level}))))
	if err != nil {
		return err
	}
	if err := fake.SetLatency(server.Latency{Mean: cfg.latency}); err != nil {
		return err
	}
	if cfg.program != "" {
		if err := load(fake, cfg.program); err != nil {
			return err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.address())
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: give another port with %s, or port 0 for any that is free", err, cfg.addressFlag())
	} else if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintln(stdout, cfg.exports(listener.Addr())); err != nil {
		return errors.Join(fmt.Errorf("print the exports: %w", err), listener.Close())
	}
	return serve(ctx, limit(listener, cfg.maxConns), fake)
}

// load programs the server from a file.
func load(fake *server.Server, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("-program: %w", err)
	}
	program, err := server.ParseProgram(text)
	if err != nil {
		return fmt.Errorf("-program %s:\n%w", path, err)
	}
	return fake.Load(program)
}

// stopWithin bounds how long calls that are being answered may go on after an interrupt.
const stopWithin = 5 * time.Second

func serve(ctx context.Context, listener net.Listener, fake *server.Server) error {
	srv := &http.Server{
		Handler:           fake,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	fake.Close() // what hangs or is slow would keep Shutdown waiting
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("stop: %w", err), srv.Close())
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// settings are the command line.
type settings struct {
	addr, listen             string
	key, accessKey, adminKey string
	models, hosts            []string
	latency                  time.Duration
	program                  string
	capture, logCalls        int
	maxConns                 int
	maxBody                  int64
	level                    slog.Level
}

// minKey is how long the keys of a fakellm must be that listens beyond loopback.
const minKey = 16

func parse(args []string, stderr io.Writer) (settings, error) {
	var c settings
	flags := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are told once, by who called; help is told below
	flags.StringVar(&c.addr, "addr", "127.0.0.1:0", "loopback `address` to serve; port 0 is any free one")
	flags.StringVar(&c.listen, "listen", "", "`address` to serve that others can reach, as in a container; needs -key, -access-key and -admin-key")
	flags.StringVar(&c.key, "key", "", "bearer `key` of both wires; random if empty (others on this machine can see a command line)")
	flags.StringVar(&c.accessKey, "access-key", "", "AWS access key `id` for SigV4; random if empty")
	flags.StringVar(&c.adminKey, "admin-key", "", "bearer `key` of the admin API; random if empty")
	flags.DurationVar(&c.latency, "latency", 0, "how long each call takes")
	flags.StringVar(&c.program, "program", "", "`file` of YAML or JSON with rules (quotas, phases, latencies, faults) and queued replies")
	flags.IntVar(&c.capture, "capture", 0, "`bytes` of each request's body to keep in the call log; 0 keeps no prompt")
	flags.IntVar(&c.logCalls, "log-calls", 2000, "`number` of the latest calls to keep in the call log")
	flags.IntVar(&c.maxConns, "max-conns", 10_000, "`number` of connections at a time; more wait")
	flags.Int64Var(&c.maxBody, "max-body", 32<<20, "`bytes` that a request's body may have")
	flags.TextVar(&c.level, "log", slog.LevelInfo, "log `level`; debug has a line for each call")
	flags.Func("models", "comma-separated `ids` that exist; all of them if empty", list(&c.models))
	flags.Func("hosts", "comma-separated further `names` that the Host header may have", list(&c.hosts))
	flags.Usage = func() {}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, usage)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return settings{}, err
	} else if err != nil {
		return settings{}, fmt.Errorf("%w (%s)", err, seeHelp)
	}
	if flags.NArg() > 0 {
		return settings{}, fmt.Errorf("unexpected argument %q (%s)", flags.Arg(0), seeHelp)
	}
	if err := c.check(); err != nil {
		return settings{}, err
	}
	for _, key := range []*string{&c.key, &c.accessKey, &c.adminKey} {
		if *key == "" {
			*key = rand.Text()
		}
	}
	return c, nil
}

const seeHelp = "-h shows the flags, with examples"

func list(to *[]string) func(string) error {
	return func(value string) error {
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*to = append(*to, item)
			}
		}
		return nil
	}
}

const usage = `fakellm is a fake LLM provider: it speaks OpenAI's and Bedrock's wires and repeats what it is told.

  go run ./local/fakellm                          any free port; prints the exports that clients need
  go run ./local/fakellm -addr 127.0.0.1:8081 -key k -models gpt-x,claude-x
  go run ./local/fakellm -latency 800ms           every call takes so long
  go run ./local/fakellm -program quotas.yaml     quotas, phases, faults; local/fakellm/README.md shows all fields

quotas.yaml:

  rules:
    - model: claude-x                             # the first rule that fits a call is in force
      phases:
        - for_ms: 60000
          concurrency: 50
          tpm: 200000
          burndown: 5
          latency: {distribution: lognormal, mean_ms: 400, deviation_ms: 150, speed: 80}
        - faults: [{share: 0.05, status: 503}]    # after a minute, and for ever

and while it runs:

  curl -H "Authorization: Bearer $FAKELLM_ADMIN_KEY" $FAKELLM_URL/_admin/stats
  curl -H "Authorization: Bearer $FAKELLM_ADMIN_KEY" -X PUT --data-binary @quotas.yaml $FAKELLM_URL/_admin/program

Flags:
`

// check holds the rule that nothing without a key of its owner's choice leaves loopback.
func (c settings) check() error {
	if c.maxConns < 1 || c.maxBody < 1 || c.logCalls < 1 || c.capture < 0 {
		return errors.New("-max-conns, -max-body and -log-calls: want 1 or more, and -capture 0 or more")
	}
	if c.listen != "" {
		var faults []error
		for name, key := range map[string]string{"key": c.key, "access-key": c.accessKey, "admin-key": c.adminKey} {
			if len(key) < minKey {
				faults = append(faults, fmt.Errorf("-listen needs -%s of at least %d characters", name, minKey))
			}
		}
		return errors.Join(faults...)
	}
	host, _, err := net.SplitHostPort(c.addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-addr %s is not on loopback; use -listen for others to reach it", c.addr)
	}
	return nil
}

func (c settings) address() string {
	if c.listen != "" {
		return c.listen
	}
	return c.addr
}

// addressFlag is the flag that the address came from.
func (c settings) addressFlag() string {
	if c.listen != "" {
		return "-listen"
	}
	return "-addr"
}

func (c settings) options(logger *slog.Logger) server.Options {
	return server.Options{
		APIKeys:    []string{c.key},
		AccessKeys: []string{c.accessKey},
		AdminKey:   c.adminKey,
		Models:     c.models,
		Hosts:      c.hosts,
		LogCalls:   c.logCalls,
		// Options have no zero: below it nothing is kept.
		CaptureBytes: cmp.Or(c.capture, -1),
		MaxBodyBytes: c.maxBody,
		Logger:       logger,
	}
}

// exports is a line for a shell, with all that a client needs. The secret of the access key is
// not verified, but the SDKs want one.
func (c settings) exports(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port)
	return strings.Join([]string{
		"export FAKELLM_URL=" + url,
		"FAKELLM_ADMIN_KEY=" + quote(c.adminKey),
		"OPENAI_BASE_URL=" + url + "/v1",
		"OPENAI_API_KEY=" + quote(c.key),
		"AWS_ENDPOINT_URL_BEDROCK_RUNTIME=" + url,
		"AWS_ACCESS_KEY_ID=" + quote(c.accessKey),
		"AWS_SECRET_ACCESS_KEY=unverified",
		"AWS_REGION=us-east-1",
		"AWS_DEFAULT_REGION=us-east-1", // what the AWS CLI and boto3 read
	}, " ")
}

// quote makes a value one word of a shell. Keys that were chosen here need no quotes.
func quote(value string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r)
	}
	if strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
