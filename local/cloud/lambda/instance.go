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
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
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
	Frozen      bool // the process is stopped until its next invocation
	Invocations int  // given to it so far, the running one included
}

// instance is one process, or, after a failed init, two in a row, with its Runtime API. Its goroutine is supervise.
type instance struct {
	id   string
	fn   *function
	made time.Time
	logs tail
	work chan *invocation // capacity 1: at most the current invocation, not yet handed to the runtime
	quit chan struct{}    // closed when the instance is to end
	gone chan struct{}    // closed when the process has ended: requests that wait give up
	dead chan struct{}    // closed when nothing of the instance is left

	// Guarded by fn.mu.
	reap    *time.Timer // runs while it is idle
	serving bool        // it counts as an invocation of the function
	pooled  bool        // and of what the account has unreserved
	stale   bool        // it runs what was there before a deploy: it gets no more work

	handlers sync.WaitGroup // running Runtime API handlers; added to only while state is not dead, under mu

	mu        sync.Mutex // guards what follows, and the invocation that is current
	state     State
	proc      *process
	out       []*pump
	current   *invocation
	count     int
	started   time.Time
	initEnd   *time.Timer
	initErr   error // what the runtime posted to .../init/error, or that it took too long
	restarted bool  // the first init failed: init and invocation share the function's timeout
	extension bool  // one is registered: SIGTERM comes before SIGKILL
	killEnd   *time.Timer
	frozen    bool // stopped until its next invocation
	hung      bool // stopped by a test, until it says otherwise
	dying     bool // the process has been told to end: it gets no more work
	quitting  bool // and no other follows
}

func newInstance(f *function) *instance {
	return &instance{
		id: ids.Hex(8), fn: f, made: time.Now(), work: make(chan *invocation, 1), quit: make(chan struct{}),
		gone: make(chan struct{}), dead: make(chan struct{}), state: StateStarting, proc: newProcess(),
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
	if i.state != StateIdle || i.dying {
		i.mu.Unlock()
		return false
	}
	i.state, i.current = StateBusy, inv
	i.count++
	i.thaw()
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

	logStream := time.Now().UTC().Format("2006/01/02") + "/[$LATEST]" + i.id
	env := environment(i.fn.cfg, h.opts.Region, ln.Addr().String(), logStream, tmp)
	e := i.runProcess(env, h.opts.InitTimeout)
	if i.initFailed(e) {
		e = i.runProcess(env, i.fn.cfg.Timeout)
	}
	i.ending(e)
	_ = srv.Close() // closes listener and connections; their errors tell nothing new
	serving.Wait()
	i.handlers.Wait()
	return e
}

// runProcess runs the bootstrap once, until it has ended and its output has been read.
func (i *instance) runProcess(env []string, initTimeout time.Duration) exit {
	if !i.delay(i.fn.slowStart()) {
		return exit{startErr: errStopping}
	}
	cmd := exec.Command(i.fn.cfg.Bootstrap) //nolint:noctx // running this binary is the host's purpose; spinDown ends it, not a context
	cmd.Dir = i.fn.cfg.Dir
	cmd.Env = env
	var readers sync.WaitGroup
	pumps, closeWriters, err := i.attach(cmd)
	if err != nil {
		return exit{startErr: fmt.Errorf("make output pipes: %w", err)}
	}
	for _, p := range pumps {
		readers.Go(p.run)
	}
	i.mu.Lock()
	proc := i.proc
	i.out, i.started = pumps, time.Now()
	i.initEnd = time.AfterFunc(initTimeout, i.initExpired)
	i.mu.Unlock()
	e := proc.run(cmd, closeWriters)
	for _, p := range pumps {
		p.finish()
	}
	readers.Wait()
	i.mu.Lock()
	i.initEnd.Stop()
	if i.killEnd != nil {
		i.killEnd.Stop()
	}
	i.mu.Unlock()
	return e
}

// delay waits for d; false when the instance is to end meanwhile, or already.
func (i *instance) delay(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-i.quit:
		return false
	}
}

// initFailed says whether the process has failed to init for the first time. AWS starts another then, within the
// invocation: whatever init does, it does twice.
func (i *instance) initFailed(e exit) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state != StateStarting || i.quitting || e.startErr != nil {
		return false
	}
	i.proc, i.restarted = newProcess(), true
	i.initErr, i.killEnd, i.extension, i.hung, i.dying = nil, nil, false, false, false
	return true
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
		inv.ran = time.Since(inv.handedAt)
		took += inv.ran
	}
	failed := inv.failure != nil || !inv.complete
	billed := i.fn.record(took, failed)
	if inv.tail {
		inv.logTail = i.logs.report(inv, i.fn.cfg.MemoryMB, i.process().peakMemoryMB(), billed, inv.outcome(cause))
	}
	inv.end(cause)
}

func (i *instance) process() *process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.proc
}

func (i *instance) info() InstanceInfo {
	i.mu.Lock()
	defer i.mu.Unlock()
	return InstanceInfo{ID: i.id, PID: i.proc.pidNow(), State: i.state, Frozen: i.frozen, Invocations: i.count}
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
