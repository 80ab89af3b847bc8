// Command supply builds the functions twice, each time with an empty build cache and in a folder of another name, zips
// them as a deployment does, and fails if the two differ: whoever has the source can tell whether a deployed zip was made
// of it. Run it in the checkout's root.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

const arch = "arm64" // what is deployed

// run compares two builds of the module at root.
func run(ctx context.Context, root string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "llmq-supply-")
	if err != nil {
		return fmt.Errorf("temp folder: %w", err)
	}
	defer os.RemoveAll(dir) // the system's temp folder
	first, err := build(ctx, root, filepath.Join(dir, "a"))
	if err != nil {
		return err
	}
	second, err := build(ctx, root, filepath.Join(dir, "another"))
	if err != nil {
		return err
	}
	var differ []error
	for _, f := range functions() {
		if first[f] == second[f] {
			fmt.Fprintf(out, "%x  %s.zip (%s)\n", first[f], f, arch)
			continue
		}
		differ = append(differ, fmt.Errorf("two builds of %s differ: %x and %x", f, first[f], second[f]))
	}
	return errors.Join(differ...)
}

func functions() []string { return []string{"admin", "enqueue", "worker"} }

// sources are what a build may read of the module.
func sources() []string { return []string{"go.mod", "go.sum", "docs", "functions", "pkg"} }

// build copies the sources into dir and builds each function there; it returns the hashes of their zips.
func build(ctx context.Context, root, dir string) (map[string][sha256.Size]byte, error) {
	src := filepath.Join(dir, "src")
	for _, s := range sources() {
		if err := copyTree(filepath.Join(root, s), filepath.Join(src, s)); err != nil {
			return nil, fmt.Errorf("copy %s: %w", s, err)
		}
	}
	sums := map[string][sha256.Size]byte{}
	for _, f := range functions() {
		binary := filepath.Join(dir, f, "bootstrap")
		// The flags of make build; a test holds them equal.
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=lambda.norpc", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", binary, "./functions/"+f) // fixed arguments
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOCACHE="+filepath.Join(dir, "cache"))
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", f, err, text)
		}
		zipped, err := zipFolder(filepath.Join(dir, f))
		if err != nil {
			return nil, fmt.Errorf("zip %s: %w", f, err)
		}
		sums[f] = sha256.Sum256(zipped)
	}
	return sums, nil
}

func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := fs.ReadFile(os.DirFS(filepath.Dir(from)), filepath.Base(from))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
