package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// Limits of the service, in bytes.
const (
	MaxPayload        = 6 << 20           // request of an invocation, as AWS counts it (6,291,456)
	MaxResponse       = 6<<20 + 100       // buffered reply (6,291,556: AWS adds 100 bytes of slack)
	MaxStreamResponse = int64(200) << 20  // streamed reply
	maxErrorBody      = 256 << 10         // what a runtime may say about an error
	maxTimeout        = 900 * time.Second // longest function timeout
)

// Options configure a Host. Start from DefaultOptions.
type Options struct {
	// Region and AccountID appear in ARNs; Region also in AWS_REGION. Both are required.
	Region    string
	AccountID string

	// InitTimeout bounds the time from a process's start to its first request for work. On AWS it is 10s.
	InitTimeout time.Duration

	// StopGrace is how long a process has between SIGTERM and SIGKILL when the host closes. AWS gives 500ms. 0 kills at once.
	StopGrace time.Duration

	// TempDir is where instances get their scratch folders (TMPDIR), each removed when its instance ends. A host that is
	// killed leaves them. Empty: os.TempDir.
	TempDir string

	// Output receives what functions write to stdout and stderr, one Write per line, each line led by
	// "[function instance] ". It must be safe for concurrent use, as os.Stderr is. nil discards.
	Output io.Writer

	// Logger receives the host's own events: starts, exits, timeouts; never payloads. nil discards.
	Logger *slog.Logger
}

// DefaultOptions returns the options AWS's behaviour corresponds to, for us-east-1 and a made-up account.
func DefaultOptions() Options {
	return Options{Region: "us-east-1", AccountID: "000000000000", InitTimeout: 10 * time.Second, StopGrace: 500 * time.Millisecond}
}

// FunctionConfig describes a function. All fields but Dir, Env and Handler are required.
type FunctionConfig struct {
	Name        string
	Bootstrap   string        // path of the binary; made absolute by Create
	Dir         string        // working directory and LAMBDA_TASK_ROOT; empty: the folder of Bootstrap
	Env         []string      // KEY=value, at most 4 KB in all; the only variables besides those Lambda sets
	Timeout     time.Duration // of one invocation, 1s to 900s
	MemoryMB    int           // 128 to 10240; told to the function, not enforced
	Concurrency int           // most instances at once, at least 1; on AWS the reserved concurrency
	Handler     string        // _HANDLER; empty: "bootstrap"
}

// InvokeOptions are the rare extras of an invocation. The zero value is the usual one.
type InvokeOptions struct {
	TraceHeader string // X-Ray header handed to the function; empty: a new, unsampled one
}

// Result is the outcome of a buffered invocation.
type Result struct {
	RequestID     string
	Payload       []byte // the function's reply, or its error as JSON when FunctionError is set
	FunctionError string // "" or "Unhandled", as the X-Amz-Function-Error header
	ErrorType     string // errorType of the payload when FunctionError is set
}

// Host runs functions. All its methods are safe for concurrent use.
type Host struct {
	opts Options
	life sync.WaitGroup // one per instance, from its creation until nothing of it is left

	mu        sync.Mutex // guards what follows
	functions map[string]*function
	closed    bool
}

// New returns a host without functions. The caller must Close it.
func New(opts Options) (*Host, error) {
	var faults []error
	if opts.Region == "" || opts.AccountID == "" {
		faults = append(faults, errors.New("region and account id are required"))
	}
	if opts.InitTimeout <= 0 {
		faults = append(faults, errors.New("init timeout must be positive"))
	}
	if opts.StopGrace < 0 {
		faults = append(faults, errors.New("stop grace must not be negative"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("lambda: options: %w", err)
	}
	if opts.Output == nil {
		opts.Output = io.Discard
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Host{opts: opts, functions: map[string]*function{}}, nil
}

// Create adds a function. It starts no process: that is what the first invocation does. It fails with CodeConflict when
// the name is taken, with CodeInvalidConfig when AWS would refuse the configuration or the binary can't be run.
func (h *Host) Create(cfg FunctionConfig) error {
	cfg, err := normalize(cfg)
	if err != nil {
		return &Error{Code: CodeInvalidConfig, Function: cfg.Name, Reason: err.Error()}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return closedError(cfg.Name)
	}
	if _, taken := h.functions[cfg.Name]; taken {
		return &Error{Code: CodeConflict, Function: cfg.Name, Reason: "function already exists"}
	}
	h.functions[cfg.Name] = newFunction(h, cfg)
	return nil
}

// Invoke runs a function and returns its whole reply. A function that fails is a Result with FunctionError set, not an
// error; an error means that the function did not run (*Error) or that ctx ended. Even then a function that has been
// started runs to its end, as on AWS.
func (h *Host) Invoke(ctx context.Context, name string, payload []byte, opts InvokeOptions) (Result, error) {
	inv, _, err := h.start(ctx, name, payload, opts, MaxResponse)
	var failed *FunctionError
	if errors.As(err, &failed) {
		return failed.result(), nil
	}
	if err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = inv.replyReader.CloseWithError(context.Cause(ctx)) })
	defer stop()
	reply, err := io.ReadAll(inv.replyReader)
	if errors.As(err, &failed) {
		return failed.result(), nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("lambda: function %s: read reply: %w", name, err)
	}
	return Result{RequestID: inv.id, Payload: reply}, nil
}

func (e *FunctionError) result() Result {
	return Result{RequestID: e.RequestID, Payload: e.Payload, FunctionError: functionErrorHeader, ErrorType: e.Type}
}

// InvokeStream runs a function and returns once it has begun to reply. It fails with *FunctionError when the function fails
// before that, and with *Error when it did not run. ctx bounds only the wait for the reply's beginning.
func (h *Host) InvokeStream(ctx context.Context, name string, payload []byte) (*Stream, error) {
	inv, contentType, err := h.start(ctx, name, payload, InvokeOptions{}, MaxStreamResponse)
	if err != nil {
		return nil, err
	}
	return &Stream{ReadCloser: inv.replyReader, RequestID: inv.id, ContentType: contentType}, nil
}

// start dispatches an invocation and waits for its reply to begin.
func (h *Host) start(ctx context.Context, name string, payload []byte, opts InvokeOptions, limit int64) (inv *invocation, contentType string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", fmt.Errorf("lambda: function %s: %w", name, err)
	}
	f, err := h.function(name)
	if err != nil {
		return nil, "", err
	}
	if len(payload) > MaxPayload {
		return nil, "", &Error{
			Code: CodeTooLarge, Function: name,
			Reason: fmt.Sprintf("request must be smaller than %d bytes for the InvokeFunction operation", MaxPayload),
		}
	}
	if len(payload) == 0 {
		payload = []byte("{}") // what a function gets when it is invoked without a payload
	}
	if !json.Valid(payload) {
		return nil, "", &Error{Code: CodeInvalidContent, Function: name, Reason: "could not parse request body into json"}
	}
	inv = newInvocation(payload, opts.TraceHeader, limit)
	if err := f.dispatch(inv); err != nil { //nolint:contextcheck // an instance outlives the invocation that started it
		return nil, "", err
	}
	select {
	case begun := <-inv.head:
		if begun.err != nil {
			return nil, "", begun.err
		}
		return inv, begun.contentType, nil
	case <-ctx.Done():
		// The function goes on; whatever it replies is read and dropped.
		_ = inv.replyReader.CloseWithError(context.Cause(ctx))
		return nil, "", fmt.Errorf("lambda: function %s: wait for reply: %w", name, context.Cause(ctx))
	}
}

// Instances lists a function's processes, oldest first; none for an unknown function.
func (h *Host) Instances(name string) []InstanceInfo {
	f, err := h.function(name)
	if err != nil {
		return nil
	}
	return f.list()
}

// Stats returns the counters of a function, zero for an unknown one.
func (h *Host) Stats(name string) Stats {
	f, err := h.function(name)
	if err != nil {
		return Stats{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Close ends every process, first by SIGTERM and after StopGrace (or when ctx ends) by SIGKILL, and returns when all have
// been reaped. Invocations still running fail as if their process had died. Later calls of any method but Instances and
// Stats fail with CodeClosed. Close is idempotent.
func (h *Host) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	var live []*instance
	for _, f := range h.functions {
		live = append(live, f.close()...)
	}
	h.mu.Unlock()

	var stops sync.WaitGroup
	for _, inst := range live {
		stops.Go(func() { inst.stop(ctx, h.opts.StopGrace) })
	}
	stops.Wait()
	h.life.Wait()
}

func (h *Host) function(name string) (*function, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f, ok := h.functions[name]; ok {
		return f, nil
	}
	return nil, &Error{Code: CodeNotFound, Function: name, Reason: "function not found"}
}

func (h *Host) arn(name string) string {
	return "arn:aws:lambda:" + h.opts.Region + ":" + h.opts.AccountID + ":function:" + name
}

func closedError(name string) error {
	return &Error{Code: CodeClosed, Function: name, Reason: "host is closed"}
}

// normalize fills what may be left out and reports every fault of a configuration.
func normalize(cfg FunctionConfig) (FunctionConfig, error) {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(cfg.Name), "name %q is not 1 to 64 letters, digits, - or _", cfg.Name)
	check(cfg.Timeout >= time.Second && cfg.Timeout <= maxTimeout, "timeout %v is not within 1s and %v", cfg.Timeout, maxTimeout)
	check(cfg.MemoryMB >= 128 && cfg.MemoryMB <= 10240, "memory of %d MB is not within 128 and 10240", cfg.MemoryMB)
	check(cfg.Concurrency >= 1, "concurrency %d is below 1", cfg.Concurrency)
	if err := checkEnv(cfg.Env); err != nil {
		faults = append(faults, err)
	}
	if path, err := filepath.Abs(cfg.Bootstrap); err != nil {
		faults = append(faults, fmt.Errorf("find bootstrap: %w", err))
	} else {
		cfg.Bootstrap = path
	}
	info, err := os.Stat(cfg.Bootstrap)
	if err != nil {
		faults = append(faults, fmt.Errorf("find bootstrap: %w", err))
	} else {
		check(info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0, "bootstrap %s is not an executable file", cfg.Bootstrap)
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Dir(cfg.Bootstrap)
	}
	if cfg.Handler == "" {
		cfg.Handler = "bootstrap"
	}
	return cfg, errors.Join(faults...)
}
