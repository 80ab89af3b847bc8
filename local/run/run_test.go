package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/beacon"
)

// freePort is a port with two free ones after it.
func freePort(t *testing.T) string {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close() // a test
		free := port < 65000
		for p := port; p <= port+2 && free; p++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
			if free = err == nil; free {
				l.Close() // a test
			}
		}
		if free {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no three free ports in a row")
	return ""
}

// G3: one command starts everything, sends one call, prints what a shell needs, serves,
// and after Ctrl-C leaves no process and no file.
func TestRun_ServesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tmp, runtimeDir := t.TempDir(), t.TempDir()
	bin := filepath.Join(t.TempDir(), "run")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // what make run does, and what is in the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	port := freePort(t)
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "XDG_RUNTIME_DIR="+runtimeDir, "LLMQ_LOCAL_PORT="+port, "OPENAI_BASE_URL=", "OPENAI_API_KEY=")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(12*time.Minute, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer timer.Stop()

	var lines []string
	for s := bufio.NewScanner(stdout); s.Scan(); {
		lines = append(lines, s.Text())
		if strings.HasPrefix(s.Text(), "ready ") {
			break
		}
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		`(?m)^200 OK in \d+ ms$`, `(?m)^X-Llmq-Target: main$`, `\[fake-chat-1\] hello, queue`,
		`(?m)^export OPENAI_BASE_URL=http://127\.0\.0\.1:` + port + `/v1 OPENAI_API_KEY=llmq_\S+ AWS_ENDPOINT_URL_BEDROCK_RUNTIME=https://127\.0\.0\.1:\d+ AWS_BEARER_TOKEN_BEDROCK=llmq_\S+ AWS_CA_BUNDLE=\S+ AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1$`,
		`(?m)^export LLMQ_ADMIN_URL=http://127\.0\.0\.1:\d+ LLMQ_ADMIN_KEY=llmq_\S+ AWS_ENDPOINT_URL_SQS=http://127\.0\.0\.1:\d+ AWS_ENDPOINT_URL_LAMBDA=http://127\.0\.0\.1:\d+ AWS_ENDPOINT_URL_S3=http://127\.0\.0\.1:\d+ `,
		`(?m)^ready http://127\.0\.0\.1:` + port + `$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("output has no %s:\n%s\n%s", want, text, stderr.String())
		}
	}
	if lit, err := beacon.Find(runtimeDir); err != nil || len(lit) != 1 || lit[0].URL != "http://127.0.0.1:"+port || !strings.Contains(text, "LLMQ_ADMIN_KEY="+lit[0].AdminKey+" ") {
		t.Errorf("llmq finds %v, %v", lit, err)
	}
	resp, err := http.Get("http://127.0.0.1:" + port + "/health")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body) //nolint:errcheck // a test
	resp.Body.Close()              // a test

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, stdout) //nolint:errcheck // to its end
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, stderr.String())
	}
	if want := regexp.MustCompile(`ready after \d+\.\d s; memory: [1-9]\d* MiB here, [1-9]\d* MiB in the other processes \([1-9]\d*\)`); !want.Match(stderr.Bytes()) {
		t.Errorf("start time and memory are not told:\n%s", stderr.String())
	}
	for _, dir := range []string{tmp, runtimeDir} {
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			t.Errorf("%s is left in %s", f.Name(), dir)
		}
	}
	for _, p := range processesUnder(t, tmp) {
		t.Errorf("process %s is left", p)
	}
}

// processesUnder lists the processes that run from a folder or were told of it.
func processesUnder(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		cmdline, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ")) // another user's
		if bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(environ, []byte("TMPDIR="+dir)) {
			found = append(found, string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func TestRun_PortInUseSaysSo(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // a test
	var out, errOut bytes.Buffer
	err = run(t.Context(), []string{"-once"}, []string{"LLMQ_LOCAL_PORT=" + port, "PATH=" + os.Getenv("PATH")}, &out, &errOut)
	if err == nil || !strings.Contains(err.Error(), port) || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		t.Errorf("error = %v", err)
	}
}

func TestRun_BadPortSaysWhatIsRight(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"0", "-1", "65534", "web", "8080x"} {
		_, err := addresses([]string{"LLMQ_LOCAL_PORT=" + port})
		if err == nil || !strings.Contains(err.Error(), "1 to 65533") {
			t.Errorf("%s: %v", port, err)
		}
	}
}

// G3: what is printed for a shell is one word for each variable there, JSON and quotes included.
func TestExports_AreOneWordEach(t *testing.T) {
	t.Parallel()
	const settings = `{"models":{"chat-a":{"rpm":60}}} it's $HOME`
	line := exports([]string{"LLMQ_PLAIN=/tmp/a-b.yaml", "LLMQ_EMPTY=", "LLMQ_SETTINGS=" + settings})
	got, err := exec.CommandContext(t.Context(), "bash", "-c", line+`; printf '%s|%s|%s' "$LLMQ_PLAIN" "$LLMQ_EMPTY" "$LLMQ_SETTINGS"`).Output()
	if want := "/tmp/a-b.yaml||" + settings; err != nil || string(got) != want {
		t.Errorf("%s\nmakes %s, %v; want %s", line, got, err, want)
	}
	if !strings.HasPrefix(line, "export LLMQ_PLAIN=/tmp/a-b.yaml LLMQ_EMPTY= ") {
		t.Errorf("plain values are quoted: %s", line)
	}
}
