package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// testDeadline bounds every wait of these tests; a wait ends by its condition, and only a failure takes this long.
const testDeadline = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv("LAMBDA_TEST_HOST") != "" {
		actAsHost()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "testfn-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, "bootstrap"), "./internal/testfn")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		log.Printf("build the test function: %v", err)
		return 1
	}
	_ = os.Setenv("LAMBDA_TEST_BOOTSTRAP", filepath.Join(dir, "bootstrap"))
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		log.Print(err)
		return 1
	}
	return code
}

// actAsHost is the program of TestHost_KilledParentLeavesNoOrphan: it runs a function that starts a child, prints the pids of both and waits to be killed.
func actAsHost() {
	h, err := New(DefaultOptions())
	if err != nil {
		log.Fatal(err)
	}
	if err := h.Create(testConfig()); err != nil {
		log.Fatal(err)
	}
	res, err := h.Invoke(context.Background(), "fn", []byte(`{"op":"child"}`), InvokeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Instances("fn")[0].PID, string(res.Payload))
	select {}
}

func testConfig() FunctionConfig {
	return FunctionConfig{
		Name: "fn", Bootstrap: os.Getenv("LAMBDA_TEST_BOOTSTRAP"), Timeout: 10 * time.Second,
		MemoryMB: 128, Concurrency: 1,
	}
}

// setup returns a host with the test function, changed by edit.
func setup(t *testing.T, edit func(*Options, *FunctionConfig)) *Host {
	t.Helper()
	opts, cfg := DefaultOptions(), testConfig()
	if edit != nil {
		edit(&opts, &cfg)
	}
	h, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(context.Background()) })
	if err := h.Create(cfg); err != nil {
		t.Fatal(err)
	}
	return h
}

func order(t *testing.T, fields map[string]any) []byte {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// invoke runs the function and expects it to have run.
func invoke(t *testing.T, h *Host, fields map[string]any) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	defer cancel()
	res, err := h.Invoke(ctx, "fn", order(t, fields), InvokeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// gate lets a test set the pace of a function.
type gate struct {
	t  *testing.T
	ln net.Listener
}

func newGate(t *testing.T) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return &gate{t, ln}
}

func (g *gate) addr() string { return g.ln.Addr().String() }

// accept waits until a function has arrived at the gate.
func (g *gate) accept() net.Conn {
	g.t.Helper()
	_ = g.ln.(*net.TCPListener).SetDeadline(time.Now().Add(testDeadline))
	conn, err := g.ln.Accept()
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, steps string) {
	t.Helper()
	if _, err := conn.Write([]byte(steps)); err != nil {
		t.Fatal(err)
	}
}

// alive says whether a process exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// eventually polls a condition of the world outside this process, which no channel can tell of.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(testDeadline)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", testDeadline, what)
		}
	}
}

// isStopped says whether a process is stopped by a signal.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(after, "T")
}

// syncBuffer collects lines from several processes.
type syncBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

// count says how many of the lines end with the given words.
func (b *syncBuffer) count(words string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if strings.HasSuffix(l, words+"\n") {
			n++
		}
	}
	return n
}
