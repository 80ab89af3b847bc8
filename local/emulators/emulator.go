package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// scripts serve each emulator on 127.0.0.1.
//
//go:embed local-aws-sqs.mjs fauxqs.mjs
var scripts embed.FS

// emulator is one npm package that serves SQS.
type emulator struct {
	name, version string
	nodeMajor     int // the oldest Node it runs on
}

func emulators() []emulator {
	return []emulator{
		{"local-aws-sqs", "2.0.2", 20},
		{"fauxqs", "2.4.1", 22}, // for node:sqlite
	}
}

// nodePackage is Node itself as an npm package, for machines whose own is too old.
const (
	nodePackage      = "node-%s-%s"
	nodePackageMajor = 22
)

// prepare compiles the suite into dir and installs the emulators there, and returns the suite's path.
func prepare(ctx context.Context, dir string) (suite string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("directory of the emulators: %w", err)
	}
	suite = filepath.Join(dir, "sqs.test")
	if err := command(ctx, "", "go", "test", "-trimpath", "-tags=lambda.norpc", "-c", "-o", suite, "./local/cloud/sqs"); err != nil {
		return "", err
	}
	var missing []string
	for _, e := range emulators() {
		if installed(dir, e.name) != e.version {
			missing = append(missing, e.name+"@"+e.version)
		}
		if own, err := node(ctx, dir, e.nodeMajor); err != nil {
			return "", err
		} else if own == "" {
			missing = append(missing, nodeModule()+"@"+strconv.Itoa(nodePackageMajor))
		}
	}
	if len(missing) == 0 {
		return suite, nil
	}
	npm := []string{"install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}
	// All of them, or npm would remove what it was not told of.
	for _, e := range emulators() {
		npm = append(npm, e.name+"@"+e.version)
	}
	npm = append(npm, nodeModule()+"@"+strconv.Itoa(nodePackageMajor))
	return suite, command(ctx, "", "npm", npm...)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// installed returns the version of a package in dir; "" if there is none.
func installed(dir, name string) string {
	var manifest struct {
		Version string `json:"version"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
	if err != nil || json.Unmarshal(raw, &manifest) != nil {
		return ""
	}
	return manifest.Version
}

func nodeModule() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return fmt.Sprintf(nodePackage, runtime.GOOS, arch)
}

// node returns a Node of that version or newer: this machine's, or the one in dir; "" if neither will do.
func node(ctx context.Context, dir string, major int) (string, error) {
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("node, which the emulators need: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	if have, err := strconv.Atoi(first); err == nil && have >= major {
		return "node", nil
	}
	own := filepath.Join(dir, "node_modules", nodeModule(), "bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	return "", nil
}

// test starts the emulator, runs the suite on it and stops it.
func (e emulator) test(ctx context.Context, dir, suite string) (outcome, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	stop, err := e.start(ctx, dir, port)
	if err != nil {
		return nil, err
	}
	defer stop()
	// Many at once, since most of the time they wait. It is expected to fail: what failed is what is asked.
	c := exec.CommandContext(ctx, suite, "-test.run=^TestConformanceOfEndpoint$", "-test.v", "-test.parallel=16", "-test.timeout=5m",
		"-sqs-endpoint=http://127.0.0.1:"+port)
	out, err := c.Output()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return nil, fmt.Errorf("run the suite: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, e.name+".txt"), out, 0o644); err != nil { // why checks failed
		return nil, fmt.Errorf("keep the suite's output: %w", err)
	}
	got := parse(out)
	if len(got) == 0 || bytes.Contains(out, []byte("\npanic: ")) {
		return nil, fmt.Errorf("the suite did not come to its end:\n%s", out)
	}
	return got, nil
}

// freePort returns a port that is free now; nobody keeps it free, so there is a small chance that the start fails.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

const startTimeout = 30 * time.Second

// start starts the emulator and returns when it listens.
func (e emulator) start(ctx context.Context, dir, port string) (stop func(), err error) {
	binary, err := node(ctx, dir, e.nodeMajor)
	if err != nil {
		return nil, err
	}
	script, err := scripts.ReadFile(e.name + ".mjs")
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	file := filepath.Join(dir, e.name+".mjs")
	if err := os.WriteFile(file, script, 0o644); err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := exec.CommandContext(ctx, binary, file, filepath.Join(dir, "node_modules"), port)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start: %w", err)
	}
	ready, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() == "ready" {
				close(ready)
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	stop = func() {
		cancel()
		<-read
		_ = c.Wait() // it was killed
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-ready:
		return stop, nil
	case <-read:
		err = errors.New("it ended before it was ready")
	case <-timer.C:
		err = fmt.Errorf("it was not ready after %v", startTimeout)
	}
	stop()
	return nil, err
}
