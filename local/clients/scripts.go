package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const folder = "local/clients" // where the scripts lie, seen from the root of the repository

// node runs the checks of the npm packages, which it installs as the lock file says.
func node(dir string) func(context.Context, *world, *report) error {
	return func(ctx context.Context, w *world, r *report) error {
		npm, err := exec.LookPath("npm")
		if err != nil {
			r.skip("node: npm is not installed")
			return nil //nolint:nilerr // what is missing is told, and fails nothing
		}
		dir := filepath.Join(dir, "node")
		if err := copyInto(dir, folder+"/node"); err != nil {
			return err
		}
		fmt.Println("· installing openai and @aws-sdk/client-bedrock-runtime from npm")
		install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-fund", "--no-audit", "--loglevel=error")
		install.Dir = dir
		if out, err := install.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w: %s", err, out)
		}
		return script(ctx, w, r, "node", dir, "node", "checks.mjs")
	}
}

// python runs the checks of the Python packages, in a virtual environment.
func python(dir string) func(context.Context, *world, *report) error {
	return func(ctx context.Context, w *world, r *report) error {
		dir := filepath.Join(dir, "python")
		if err := copyInto(dir, folder+"/python"); err != nil {
			return err
		}
		interpreter := filepath.Join(dir, "venv", "bin", "python")
		fmt.Println("· installing openai, boto3, langchain-openai, langchain-aws and langgraph from PyPI")
		for _, args := range [][]string{
			{"python3", "-m", "venv", filepath.Join(dir, "venv")},
			{interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", filepath.Join(dir, "requirements.txt")},
		} {
			if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
				r.skip(fmt.Sprintf("python: packages can't be installed here: %v: %.300s", err, out))
				return nil
			}
		}
		return script(ctx, w, r, "python", dir, interpreter, "checks.py")
	}
}

// copyInto copies the files of a folder.
func copyInto(to, from string) error {
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("run it from the root of the repository: %w", err)
	}
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// script runs one that prints its results. One that ends otherwise than well is a result too.
func script(ctx context.Context, w *world, r *report, name, dir string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), foreign), w.environ()...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	before := len(r.results)
	if err := cmd.Start(); err != nil {
		return err
	}
	read := r.read(out)
	if err := errors.Join(cmd.Wait(), read); err != nil {
		r.add(result{Client: name, Check: "runs to its end", Note: err.Error()})
	} else if len(r.results) == before {
		r.add(result{Client: name, Check: "runs to its end", Note: "it made no check"})
	}
	return nil
}

// foreign reports a variable that would lead a client elsewhere.
func foreign(kv string) bool {
	for _, prefix := range []string{"OPENAI_", "AWS_", "LLMQ_", "LANGCHAIN_", "LANGSMITH_", "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=", "https_proxy=", "ALL_PROXY="} {
		if len(kv) >= len(prefix) && kv[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}
