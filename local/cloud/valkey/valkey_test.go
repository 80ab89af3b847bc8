package valkey_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/valkey"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperDir) != "" {
		runHelper() // never returns
	}
	goleak.VerifyTestMain(m)
}

// needReal skips where there is no valkey-server, but never where CI is set.
func needReal(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("valkey-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs valkey-server: %v", err)
		}
		t.Skipf("needs valkey-server: %v", err)
	}
}

func start(t *testing.T, opts valkey.Options) *valkey.Server {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	s, err := valkey.Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func dial(t *testing.T, s *valkey.Server) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                    []string{s.Addr()},
		Password:                 s.Password(),
		IsClusterMode:            s.Cluster(),
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

// refuses says whether nothing listens on addr.
func refuses(addr string) bool {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// eventually polls until ok, for at most 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %s", what)
		}
	}
}

func testServes(t *testing.T, s *valkey.Server) {
	t.Helper()
	host, _, err := net.SplitHostPort(s.Addr())
	if err != nil || host != "127.0.0.1" {
		t.Errorf("address %q is not on loopback: %v", s.Addr(), err)
	}
	c := dial(t, s)
	script := redis.NewScript("#!lua\nreturn redis.call('INCR', KEYS[1])")
	for want := 1; want <= 2; want++ {
		if got, err := script.Run(t.Context(), c, []string{"{a}:n"}).Int(); err != nil || got != want {
			t.Fatalf("script = %d, %v; want %d", got, err, want)
		}
	}
	if err := c.Set(t.Context(), "short", "x", 30*time.Millisecond).Err(); err != nil {
		t.Fatalf("SET: %v", err)
	}
	eventually(t, "a TTL of 30 ms ends", func() bool {
		return errors.Is(c.Get(t.Context(), "short").Err(), redis.Nil)
	})
	stranger := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	defer func() { _ = stranger.Close() }()
	if err := stranger.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("PING without the password: got %v, want NOAUTH", err)
	}
}

func testLeavesNothing(t *testing.T, s *valkey.Server, dir string) {
	t.Helper()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	select {
	case <-s.Done():
	default:
		t.Error("Done is open after Close")
	}
	if !refuses(s.Addr()) {
		t.Error("something still listens")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStart_ClusterMode(t *testing.T) {
	t.Parallel()
	needReal(t)
	dir := t.TempDir()
	s := start(t, valkey.Options{Dir: dir, Engine: valkey.Real})
	if !regexp.MustCompile(`^valkey \d+\.\d+\.\d+ \(cluster mode\)$`).MatchString(s.Kind()) || !s.Cluster() {
		t.Errorf("Kind = %q, Cluster = %v", s.Kind(), s.Cluster())
	}
	testServes(t, s)

	// What cluster mode is wanted for: a script may not touch a key of another slot.
	c := dial(t, s)
	err := c.Eval(t.Context(), "#!lua\nreturn redis.call('SET', 'of-another-slot', 1)", []string{"{a}:n"}).Err()
	if err == nil || !strings.Contains(err.Error(), "do not hash to the same slot") {
		t.Errorf("undeclared key of another slot: got %v", err)
	}
	testLeavesNothing(t, s, dir)
}

func TestStart_Standalone(t *testing.T) {
	t.Parallel()
	needReal(t)
	dir := t.TempDir()
	s := start(t, valkey.Options{Dir: dir, Standalone: true})
	if !regexp.MustCompile(`^valkey \d+\.\d+\.\d+ \(standalone\)$`).MatchString(s.Kind()) || s.Cluster() {
		t.Errorf("Kind = %q, Cluster = %v", s.Kind(), s.Cluster())
	}
	testServes(t, s)
	testLeavesNothing(t, s, dir)
}

func TestStart_InProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, valkey.Options{Dir: dir, Engine: valkey.InProcess})
	if s.Kind() != "miniredis (in process; limits are approximate)" || s.Cluster() {
		t.Errorf("Kind = %q, Cluster = %v", s.Kind(), s.Cluster())
	}
	testServes(t, s)
	testLeavesNothing(t, s, dir)
}

func TestStart_WithoutBinary(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := valkey.Start(t.Context(), valkey.Options{Engine: valkey.Real}); !errors.Is(err, valkey.ErrNotFound) {
		t.Errorf("Real: got %v, want ErrNotFound", err)
	}
	if s := start(t, valkey.Options{}); !strings.HasPrefix(s.Kind(), "miniredis") {
		t.Errorf("Auto: Kind = %q, want miniredis", s.Kind())
	}
}

func TestStart_PasswordsDiffer(t *testing.T) {
	t.Parallel()
	a, b := start(t, valkey.Options{Engine: valkey.InProcess}), start(t, valkey.Options{Engine: valkey.InProcess})
	if a.Password() == b.Password() || len(a.Password()) < 20 {
		t.Error("passwords are equal or short")
	}
}

func TestStart_SaysWhyTheServerDied(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	fake := "#!/bin/sh\necho 'Fatal: no such thing'\nexit 3\n"
	if err := os.WriteFile(bin+"/valkey-server", []byte(fake), 0o700); err != nil { // it must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	_, err := valkey.Start(t.Context(), valkey.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "no such thing") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want its last words and its status", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStart_TriesAnotherPort(t *testing.T) {
	needReal(t)
	real, err := exec.LookPath("valkey-server")
	if err != nil {
		t.Fatal(err)
	}
	// The first run plays a server whose port was taken, the next ones are the real one.
	bin := t.TempDir()
	fake := "#!/bin/sh\nif [ -e " + bin + "/ran ]; then exec " + real + " -; fi\n: > " + bin +
		"/ran\necho 'Warning: Could not create server TCP listening socket 127.0.0.1:1: bind: Address already in use'\nexit 1\n"
	if err := os.WriteFile(bin+"/valkey-server", []byte(fake), 0o700); err != nil { // it must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	s := start(t, valkey.Options{Standalone: true})
	if err := dial(t, s).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING: %v", err)
	}
}

func TestStart_CancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	needReal(t)
	dir := t.TempDir()
	// Cluster mode takes 2 s, so this ends while the server is up and not ready.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := valkey.Start(ctx, valkey.Options{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestServer_TellsThatItDied(t *testing.T) {
	t.Parallel()
	needReal(t)
	var log syncBuffer
	dir := t.TempDir()
	s := start(t, valkey.Options{Dir: dir, Standalone: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_ = dial(t, s).ShutdownNoSave(t.Context()).Err() // the reply is a closed connection
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("Done stayed open")
	}
	if !strings.Contains(log.String(), "ended by itself") {
		t.Errorf("log = %q", log.String())
	}
	testLeavesNothing(t, s, dir)
}

const helperDir = "LLMQ_TEST_VALKEY_HELPER_DIR"

// runHelper is the test binary run by TestServer_DiesWithItsParent: it starts a server, says where,
// and waits to be killed.
func runHelper() {
	s, err := valkey.Start(context.Background(), valkey.Options{Dir: os.Getenv(helperDir), Standalone: true})
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(s.Addr() + "\n")
	<-s.Done()
	os.Exit(1)
}

func TestServer_DiesWithItsParent(t *testing.T) {
	t.Parallel()
	needReal(t)
	if !diesWithParent {
		t.Skip("only Linux has a parent death signal")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperDir+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var line [64]byte
	n, err := out.Read(line[:])
	addr := strings.TrimSpace(string(line[:n]))
	if _, port, splitErr := net.SplitHostPort(addr); err != nil || splitErr != nil || port == "" {
		_ = cmd.Process.Kill()
		t.Fatalf("helper said %q, %v", addr, err)
	}
	if refuses(addr) {
		t.Error("the helper's server does not listen")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as wanted
	eventually(t, "the orphan ends", func() bool { return refuses(addr) })
}

// syncBuffer is a buffer that a logger and a test may use at once.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestStart_PasswordIsInNoArgumentAndNoLog(t *testing.T) {
	t.Parallel()
	needReal(t)
	var log syncBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := start(t, valkey.Options{Standalone: true, Logger: logger})
	info, err := dial(t, s).Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(info)
	if match == nil {
		t.Fatal("INFO has no process_id")
	}
	if pid, err := strconv.Atoi(match[1]); err != nil || pid == os.Getpid() {
		t.Fatalf("process_id %q: %v", match[1], err)
	}
	if args, err := os.ReadFile("/proc/" + match[1] + "/cmdline"); err == nil && bytes.Contains(args, []byte(s.Password())) {
		t.Error("the password is in the argument list")
	}
	if got := log.String(); !strings.Contains(got, "valkey-server") || strings.Contains(got, s.Password()) {
		t.Errorf("the log lacks the server's lines, or has its password: %q", got)
	}
}
