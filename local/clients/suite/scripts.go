package suite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/rig"
)

// Result is one check of a client, as a script prints it.
type Result struct {
	Client string `json:"client"` // its package, and version
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Note   string `json:"note"` // what was seen, or why it failed
}

// ErrMissing means that what scripts need is not installed here; the error says what.
var ErrMissing = errors.New("not installed")

const folder = "local/clients" // where the scripts lie, seen from the root of the repository

// Node installs the packages of npm below dir, as the lock file says and without install scripts, and returns the folder to
// run scripts in. It takes what is there of an earlier call.
func Node(ctx context.Context, dir string) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s, of Node 20 or newer: %w", program, ErrMissing)
		}
	}
	dir = filepath.Join(dir, "node")
	if err := copyInto(dir, folder+"/node"); err != nil {
		return "", err
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(dir, "installed.json")
	if installed, err := os.ReadFile(stamp); err == nil && bytes.Equal(installed, lock) {
		return dir, nil
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the packages of %s/node/package.json (npm ci: %w: %.500s): %w", folder, err, out, ErrMissing)
	}
	return dir, os.WriteFile(stamp, lock, 0o600)
}

// Python installs the packages of PyPI in a virtual environment below dir, and returns the folder to run scripts in and the
// interpreter.
func Python(ctx context.Context, dir string) (folderOf, interpreter string, err error) {
	dir = filepath.Join(dir, "python")
	if err := copyInto(dir, folder+"/python"); err != nil {
		return "", "", err
	}
	interpreter = filepath.Join(dir, "venv", "bin", "python")
	for _, args := range [][]string{
		{"python3", "-m", "venv", filepath.Join(dir, "venv")},
		{interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", filepath.Join(dir, "requirements.txt")},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("the packages of %s/python/requirements.txt (%w: %.300s): %w", folder, err, out, ErrMissing)
		}
	}
	return dir, interpreter, nil
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

// Script is one to run: its folder, its interpreter and its file, and what it is told besides by variables.
type Script struct {
	Dir  string
	Args []string
	Env  []string
}

// longest bounds a script.
const longest = 10 * time.Minute

// Run runs a script on a rig and gives each of its results to add, and what else it prints to other. Its error says that it did not
// end well, or that it made no check.
func (c *Control) Run(ctx context.Context, r *rig.Rig, s Script, add func(Result), other io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Stderr = s.Dir, other
	cmd.Env = slices.Concat(slices.DeleteFunc(os.Environ(), foreign), c.Shell(r), s.Env)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	made := 0
	read := Read(out, func(got Result) { made++; add(got) }, other)
	if err := errors.Join(cmd.Wait(), read); err != nil {
		return err
	}
	if made == 0 {
		return errors.New("it made no check")
	}
	return nil
}

// Read takes the results that a script prints, one JSON line each; what else it prints goes on as it is.
func Read(from io.Reader, add func(Result), other io.Writer) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var got Result
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil || got.Client == "" || got.Check == "" {
			fmt.Fprintln(other, lines.Text())
			continue
		}
		got.Note = strings.Join(strings.Fields(got.Note), " ")
		add(got)
	}
	return lines.Err()
}

// Shell is what a caller's shell has of `make run`'s lines, and how scripts steer the provider.
func (c *Control) Shell(r *rig.Rig) []string {
	return []string{
		"OPENAI_BASE_URL=" + r.URL + "/v1", "OPENAI_API_KEY=" + r.Key,
		"AWS_ENDPOINT_URL_BEDROCK_RUNTIME=" + r.TLSURL, "AWS_BEARER_TOKEN_BEDROCK=" + r.Key, "AWS_CA_BUNDLE=" + r.CAFile,
		"NODE_EXTRA_CA_CERTS=" + r.CAFile, "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1",
		"PROVIDER_URL=" + c.url,
	}
}

// foreign reports a variable that would lead a client elsewhere.
func foreign(kv string) bool {
	return slices.ContainsFunc([]string{
		"OPENAI_", "AWS_", "LLMQ_", "LANGCHAIN_", "LANGSMITH_", "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=", "https_proxy=", "ALL_PROXY=",
	}, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
}
