package valkey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long the server may take to end after SIGTERM before it is killed. With
	// nothing to save it takes a few milliseconds.
	stopGrace = 3 * time.Second
	// startAttempts bounds how often a new port is tried: between choosing a free port and the
	// server's bind somebody else may take it.
	startAttempts = 5
	// tailBytes is how much of the server's log an error about its death quotes.
	tailBytes = 2 << 10
)

// process is a valkey-server child.
type process struct {
	path   string // of its program
	conf   string // what it read on its standard input
	dir    string
	child  *os.Process
	log    *logTail
	ended  chan struct{} // closed when the child has been waited for
	exit   error         // why it ended; read it after ended
	logger *slog.Logger

	mu       sync.Mutex
	stopping bool // Close was called, so the end is expected; guarded by mu

	closing  sync.Once
	closeErr error // of the first close; guarded by closing
}

func startProcess(ctx context.Context, path, password string, opts Options, logger *slog.Logger) (*Server, error) {
	var failed []error
	for range startAttempts {
		s, err := tryProcess(ctx, path, password, opts, logger)
		if err == nil {
			return s, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, fmt.Errorf("start valkey: %w", errors.Join(failed...))
}

// tryProcess makes one attempt on one pair of free ports.
func tryProcess(ctx context.Context, path, password string, opts Options, logger *slog.Logger) (*Server, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opts.Dir, "llmq-valkey-")
	if err != nil {
		return nil, fmt.Errorf("make its directory: %w", err)
	}
	p, err := spawn(path, dir, config(dir, password, ports, opts.Standalone), logger)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	addr := net.JoinHostPort("127.0.0.1", ports[0])
	version, err := p.awaitReady(ctx, addr, password, !opts.Standalone)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	mode := "cluster mode"
	if opts.Standalone {
		mode = "standalone"
	}
	return &Server{
		backend:  p,
		addr:     addr,
		password: password,
		kind:     fmt.Sprintf("valkey %s (%s)", version, mode),
		cluster:  !opts.Standalone,
	}, nil
}

// config is what the server reads on its standard input: so the password is in no argument list
// and in no file.
func config(dir, password string, ports []string, standalone bool) string {
	lines := []string{
		"bind 127.0.0.1",
		"port " + ports[0],
		"requirepass " + password,
		"dir " + quote(dir),
		`save ""`,
		"appendonly no",
		"daemonize no",
		`logfile ""`, // standard output
	}
	if !standalone {
		lines = append(lines,
			"cluster-enabled yes",
			// The default, port + 10000, need not be free, nor below 65536.
			"cluster-port "+ports[1],
		)
	}
	return strings.Join(lines, "\n") + "\n"
}

// quote writes a path as one word of a Valkey config line.
func quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

// freePorts asks the system for n different loopback ports that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not wait
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // nothing was accepted; all stay open till the end, so that they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// spawn starts the child and the goroutine that waits for it.
func spawn(path, dir, conf string, logger *slog.Logger) (*process, error) {
	p := &process{path: path, conf: conf, dir: dir, log: &logTail{logger: logger}, ended: make(chan struct{}), logger: logger}
	//nolint:noctx // the path is valkey-server as found on PATH; its life is Close's, not a context's
	cmd := exec.Command(path, "-")
	cmd.Dir = dir
	cmd.Env = []string{} // it needs none, and ours may hold secrets
	cmd.Stdin = strings.NewReader(conf)
	cmd.Stdout, cmd.Stderr = p.log, io.Discard
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that forked ends, not the process, so this
		// goroutine keeps its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.child = cmd.Process
		}
		started <- err
		if err == nil {
			p.wait(cmd)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return p, nil
}

// restart kills the child and starts another in its place. The node's own file about its
// cluster is kept, as on any server, so the new one owns the same slots.
func (p *process) restart(ctx context.Context, addr, password string, cluster bool) (*process, error) {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	<-p.ended
	next, err := spawn(p.path, p.dir, p.conf, p.logger)
	if err != nil {
		return nil, err
	}
	_, err = next.awaitReady(ctx, addr, password, cluster)
	return next, err
}

func (p *process) wait(cmd *exec.Cmd) {
	p.exit = cmd.Wait()
	p.mu.Lock()
	expected := p.stopping
	p.mu.Unlock()
	if !expected {
		p.logger.Error("valkey-server ended by itself", slog.Any("error", p.exit))
	}
	close(p.ended)
}

func (p *process) close() error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.stopping = true
		p.mu.Unlock()
		p.closeErr = errors.Join(p.terminate(), os.RemoveAll(p.dir))
	})
	return p.closeErr
}

// terminate ends the child, politely first, and waits for it. It has no children of its own: with
// saving off, Valkey never forks.
func (p *process) terminate() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.child.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to valkey-server: %w", sig, err)
	}
	return nil
}

func (p *process) done() <-chan struct{} { return p.ended }
