package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits of the service, in bytes.
const (
	MaxPayload        = 6 << 20           // request of an invocation, as AWS counts it (6,291,456)
	MaxAsyncPayload   = 1 << 20           // request of an asynchronous one
	MaxResponse       = 6<<20 + 100       // buffered reply (6,291,556: AWS adds 100 bytes of slack)
	MaxStreamResponse = int64(200) << 20  // streamed reply
	maxErrorBody      = 256 << 10         // what a runtime may say about an error
	maxTimeout        = 900 * time.Second // longest function timeout
)

// InvokeOptions are the rare extras of an invocation. The zero value is the usual one.
type InvokeOptions struct {
	TraceHeader   string // X-Ray header handed to the function; empty: a new, unsampled one
	ClientContext []byte // JSON handed to the function beside the payload; nil: none
	LogTail       bool   // Result.LogTail is wanted

	requestID string // of an event that is tried again; empty: a new one
}

// Result is the outcome of a buffered invocation.
type Result struct {
	RequestID     string
	Payload       []byte // the function's reply, or its error as JSON when FunctionError is set
	FunctionError string // "" or "Unhandled", as the X-Amz-Function-Error header
	ErrorType     string // errorType of the payload when FunctionError is set
	LogTail       []byte // last 4 KB of the invocation's log, the platform's lines included, if it was asked for
}

// Host runs functions. All its methods are safe for concurrent use.
type Host struct {
	opts    Options
	account *account
	async   *asyncQueue
	life    sync.WaitGroup // one per instance, from its creation until nothing of it is left

	mu        sync.Mutex // guards what follows
	functions map[string]*function
	closed    bool
}

// New returns a host without functions. The caller must Close it.
func New(opts Options) (*Host, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	h := &Host{opts: opts, account: &account{limit: opts.AccountConcurrency}, functions: map[string]*function{}}
	h.async = newAsyncQueue(h.Invoke, opts.AsyncRetries, opts.Logger)
	return h, nil
}

// Create adds a function. It starts no process: that is what the first invocation does. It fails with CodeConflict when
// the name is taken, with CodeInvalidConfig when AWS would refuse the configuration or its reserved concurrency, or when
// the binary can't be run.
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
		return &Error{Code: CodeConflict, Function: cfg.Name, Reason: "Function already exist: " + cfg.Name}
	}
	if err := h.account.change(0, cfg.Concurrency); err != nil {
		return &Error{Code: CodeInvalidConfig, Function: cfg.Name, Reason: err.Error()}
	}
	h.functions[cfg.Name] = newFunction(h, cfg)
	return nil
}

// Invoke runs a function and returns its whole reply. A function that fails is a Result with FunctionError set, not an
// error; an error means that the function did not run (*Error) or that ctx ended. Even then a function that has been
// started runs to its end, as on AWS.
func (h *Host) Invoke(ctx context.Context, name string, payload []byte, opts InvokeOptions) (Result, error) {
	inv, _, err := h.start(ctx, name, payload, opts, MaxResponse, 0)
	var failed *FunctionError
	if errors.As(err, &failed) {
		return failed.result(inv), nil
	}
	if err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = inv.replyReader.CloseWithError(context.Cause(ctx)) })
	defer stop()
	reply, err := io.ReadAll(inv.replyReader)
	if errors.As(err, &failed) {
		return failed.result(inv), nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("lambda: function %s: read reply: %w", name, err)
	}
	return Result{RequestID: inv.id, Payload: reply, LogTail: inv.logTail}, nil
}

func (e *FunctionError) result(inv *invocation) Result {
	return Result{RequestID: e.RequestID, Payload: e.Payload, FunctionError: functionErrorHeader, ErrorType: e.Type, LogTail: inv.logTail}
}

// InvokeStream runs a function and returns once it has begun to reply. It fails with *FunctionError when the function fails
// before that, and with *Error when it did not run. ctx bounds only the wait for the reply's beginning.
func (h *Host) InvokeStream(ctx context.Context, name string, payload []byte) (*Stream, error) {
	s, _, err := h.stream(ctx, name, payload, InvokeOptions{})
	return s, err
}

// stream is InvokeStream with options. The result is that of a function which failed before its reply began.
func (h *Host) stream(ctx context.Context, name string, payload []byte, opts InvokeOptions) (*Stream, Result, error) {
	inv, contentType, err := h.start(ctx, name, payload, opts, MaxStreamResponse, h.opts.StreamRate)
	var failed *FunctionError
	if errors.As(err, &failed) {
		return nil, failed.result(inv), err
	}
	if err != nil {
		return nil, Result{}, err
	}
	return &Stream{ReadCloser: inv.replyReader, RequestID: inv.id, ContentType: contentType, inv: inv}, Result{}, nil
}

// start dispatches an invocation and waits for its reply to begin. With a *FunctionError the invocation is over, and is
// returned too.
func (h *Host) start(ctx context.Context, name string, payload []byte, opts InvokeOptions, limit, rate int64) (inv *invocation, contentType string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", fmt.Errorf("lambda: function %s: %w", name, err)
	}
	f, payload, err := h.accept(name, payload)
	if err != nil {
		return nil, "", err
	}
	inv = newInvocation(payload, opts, limit)
	inv.rate = rate
	if err := f.dispatch(inv); err != nil { //nolint:contextcheck // an instance outlives the invocation that started it
		return nil, "", err
	}
	select {
	case begun := <-inv.head:
		return inv, begun.contentType, begun.err
	case <-ctx.Done():
		// The function goes on; whatever it replies is read and dropped.
		_ = inv.replyReader.CloseWithError(context.Cause(ctx))
		return nil, "", fmt.Errorf("lambda: function %s: wait for reply: %w", name, context.Cause(ctx))
	}
}

// accept checks what the service checks before it looks for an instance, and returns the payload that the function gets.
func (h *Host) accept(name string, payload []byte) (*function, []byte, error) {
	f, err := h.function(name)
	if err != nil {
		return nil, nil, err
	}
	if len(payload) > MaxPayload {
		return nil, nil, &Error{
			Code: CodeTooLarge, Function: name,
			Reason: fmt.Sprintf("Request must be smaller than %d bytes for the InvokeFunction operation", MaxPayload),
		}
	}
	if len(payload) == 0 {
		payload = []byte("{}") // what a function gets when it is invoked without a payload
	}
	if !json.Valid(payload) {
		return nil, nil, &Error{Code: CodeInvalidContent, Function: name, Reason: "Could not parse request body into json: it is not JSON"}
	}
	return f, payload, nil
}

// Renew makes a function's next invocations run in new processes, as a deploy does: a process that is idle ends now, a busy one
// when its invocation has ended. It returns at once, and fails with CodeNotFound.
func (h *Host) Renew(name string) error {
	f, err := h.function(name)
	if err != nil {
		return err
	}
	for _, inst := range f.renew() {
		inst.spinDown()
	}
	return nil
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

// Close spins every instance down, without StopGrace when ctx ends, and returns when all processes have been reaped.
// Invocations still running fail as if their process had died; events that wait are dropped. Later calls of any method but
// Instances and Stats fail with CodeClosed. Close is idempotent.
func (h *Host) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	var live []*instance
	for _, f := range h.functions {
		live = append(live, f.close()...)
	}
	h.mu.Unlock()
	h.async.close()

	var stops sync.WaitGroup
	for _, inst := range live {
		stops.Go(func() { inst.stop(ctx) })
	}
	stops.Wait()
	h.life.Wait()
	h.async.wait()
}

func (h *Host) function(name string) (*function, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f, ok := h.functions[name]; ok {
		return f, nil
	}
	return nil, &Error{Code: CodeNotFound, Function: name, Reason: "Function not found: " + h.arn(name)}
}

// Timeout returns a function's; false where there is none of that name.
func (h *Host) Timeout(name string) (time.Duration, bool) {
	f, err := h.function(name)
	if err != nil {
		return 0, false
	}
	return f.cfg.Timeout, true
}

func (h *Host) arn(name string) string {
	return "arn:aws:lambda:" + h.opts.Region + ":" + h.opts.AccountID + ":function:" + name
}

func closedError(name string) error {
	return &Error{Code: CodeClosed, Function: name, Reason: "host is closed"}
}
