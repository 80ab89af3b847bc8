package lambda

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// State says what an instance is doing.
type State string

// The states of an instance, in the order of its life; idle and busy alternate.
const (
	StateStarting State = "starting" // the process has not asked for work yet
	StateIdle     State = "idle"     // it waits for work
	StateBusy     State = "busy"     // it has an invocation, or is about to get one
	StateDead     State = "dead"     // it has ended
)

// InstanceInfo describes one process of a function.
type InstanceInfo struct {
	ID          string
	PID         int // 0 while there is no process yet or any more
	State       State
	Invocations int // given to it so far, the running one included
}

// instance is one process with its Runtime API. Its goroutine is supervise.
type instance struct {
	id   string
	fn   *function
	proc process
	work chan *invocation // capacity 1: at most the current invocation, not yet handed to the runtime
	gone chan struct{}    // closed when the process has ended: requests that wait give up
	dead chan struct{}    // closed when nothing of the instance is left

	handlers sync.WaitGroup // running Runtime API handlers; added to only while state is not dead, under mu

	mu      sync.Mutex // guards what follows, and the invocation that is current
	state   State
	current *invocation
	count   int
	started time.Time
	initEnd *time.Timer
	initErr error // what the runtime posted to .../init/error, or that it took too long
}

func newInstance(f *function) *instance {
	return &instance{
		id: randomHex(8), fn: f, work: make(chan *invocation, 1),
		gone: make(chan struct{}), dead: make(chan struct{}), state: StateStarting,
	}
}

// launch starts the process with its first invocation waiting. Called once, before anyone else knows the instance.
func (i *instance) launch(inv *invocation) {
	i.mu.Lock()
	i.current, i.count = inv, 1
	i.mu.Unlock()
	i.work <- inv // has room: the channel is new
	go i.supervise()
}

// assign gives an idle instance an invocation; false if it has died.
func (i *instance) assign(inv *invocation) bool {
	i.mu.Lock()
	if i.state != StateIdle {
		i.mu.Unlock()
		return false
	}
	i.state, i.current = StateBusy, inv
	i.count++
	i.mu.Unlock()
	i.work <- inv // has room: an idle instance has no invocation
	return true
}

// supervise owns everything of the instance: listener, server, process, scratch folder.
func (i *instance) supervise() {
	defer i.fn.host.life.Done()
	defer close(i.dead)
	e := i.run()
	i.log().Debug("instance ended", "exit", e.String())
	i.ending(e) // for a start that failed before there was a process; else run has done it
}

func (i *instance) run() exit {
	h := i.fn.host
	tmp, err := os.MkdirTemp(h.opts.TempDir, "lambda-"+i.fn.cfg.Name+"-")
	if err != nil {
		return exit{startErr: fmt.Errorf("make scratch folder: %w", err)}
	}
	defer func() {
		if err := os.RemoveAll(tmp); err != nil {
			i.log().Warn("scratch folder not removed", "err", err)
		}
	}()
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return exit{startErr: fmt.Errorf("listen for runtime API: %w", err)}
	}
	// No timeouts but for headers: .../next waits for work as long as it takes.
	srv := &http.Server{
		Handler: i.guard(ln.Addr().String(), i.routes()), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(i.log().Handler(), slog.LevelDebug),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) }) // ends with ErrServerClosed

	cmd := exec.Command(i.fn.cfg.Bootstrap) //nolint:noctx // running this binary is the host's purpose; stop ends it, not a context
	cmd.Dir = i.fn.cfg.Dir
	logStream := time.Now().UTC().Format("2006/01/02") + "/[$LATEST]" + i.id
	cmd.Env = environment(i.fn.cfg, h.opts.Region, ln.Addr().String(), logStream, tmp)
	out, errOut := i.lines(), i.lines()
	cmd.Stdout, cmd.Stderr = out, errOut

	i.mu.Lock()
	i.started = time.Now()
	i.initEnd = time.AfterFunc(h.opts.InitTimeout, i.initExpired)
	i.mu.Unlock()
	e := i.proc.run(cmd)
	out.flush()
	errOut.flush()

	i.mu.Lock()
	i.initEnd.Stop()
	i.mu.Unlock()
	i.ending(e)
	_ = srv.Close() // closes listener and connections; their errors tell nothing new
	serving.Wait()
	i.handlers.Wait()
	return e
}

// ending makes the instance dead, releases every handler that waits and settles the invocation in progress. Idempotent.
func (i *instance) ending(e exit) {
	i.mu.Lock()
	if i.state == StateDead {
		i.mu.Unlock()
		return
	}
	wasStarting, inv, cause := i.state == StateStarting, i.current, i.initErr
	i.state, i.current = StateDead, nil
	i.mu.Unlock()
	close(i.gone)
	i.fn.remove(i) // before the caller hears of it, so that its next call finds room
	if inv == nil {
		return
	}
	if !inv.handed && !wasStarting {
		// It died idle and no runtime has seen this invocation: another instance may have it.
		if err := i.fn.dispatch(inv); err != nil {
			inv.end(err)
		}
		return
	}
	if cause == nil || !wasStarting {
		cause = exited(i.fn.cfg.Name, inv.id, e)
	}
	i.settle(inv, cause)
}

// settle bills an invocation that is no longer current and tells its caller.
func (i *instance) settle(inv *invocation, cause error) {
	took := inv.initTook
	if inv.handed {
		inv.watchdog.Stop()
		took += time.Since(inv.handedAt)
	}
	i.fn.record(took, inv.failure != nil || !inv.complete)
	inv.end(cause)
}

// initExpired ends a process that never asked for work.
func (i *instance) initExpired() {
	i.mu.Lock()
	expired := i.state == StateStarting
	if expired && i.initErr == nil && i.current != nil {
		i.initErr = timedOut(i.fn.cfg.Name, i.current.id, i.fn.host.opts.InitTimeout)
	}
	i.mu.Unlock()
	if expired {
		i.log().Warn("init timed out")
		i.proc.signal(syscall.SIGKILL)
	}
}

// expired ends a process whose invocation ran over the function's timeout. A response that is already complete stands.
func (i *instance) expired(inv *invocation) {
	i.mu.Lock()
	current := i.current == inv
	if current && inv.failure == nil && !inv.complete {
		inv.failure = timedOut(i.fn.cfg.Name, inv.id, i.fn.cfg.Timeout)
	}
	i.mu.Unlock()
	if current {
		i.log().Warn("task timed out", "request_id", inv.id)
		i.proc.signal(syscall.SIGKILL)
	}
}

// stop ends the process and returns when nothing of the instance is left.
func (i *instance) stop(ctx context.Context, grace time.Duration) {
	i.proc.signal(syscall.SIGTERM)
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-i.dead:
			return
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	i.proc.signal(syscall.SIGKILL)
	<-i.dead
}

func (i *instance) info() InstanceInfo {
	pid := i.proc.pidNow()
	i.mu.Lock()
	defer i.mu.Unlock()
	return InstanceInfo{ID: i.id, PID: pid, State: i.state, Invocations: i.count}
}

func (i *instance) log() *slog.Logger {
	return i.fn.host.opts.Logger.With("function", i.fn.cfg.Name, "instance", i.id)
}

func (e exit) String() string {
	if e.startErr != nil {
		return "not started: " + e.startErr.Error()
	}
	return e.state.String()
}
