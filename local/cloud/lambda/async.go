package lambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
)

const (
	maxEventAge    = 6 * time.Hour   // how long an event is tried, unless AsyncConfig says less
	firstBackoff   = time.Second     // before an event that was throttled is tried again; it doubles
	longestBackoff = 5 * time.Minute // up to this
	maxAsyncEvents = 10_000          // that wait or run at once; AWS has no such limit, this machine has
)

// The conditions under which an event is given up, as AWS's destination records name them.
const (
	EventRetriesExhausted = "RetriesExhausted"        // the function failed at every try
	EventAgeExceeded      = "EventAgeExceeded"        // it was throttled, or waited, for too long
	EventZeroReserved     = "ZeroReservedConcurrency" // the function may not run at all
)

// AsyncConfig is how a function's asynchronous events are handled. The zero value is AWS's default, without a destination.
type AsyncConfig struct {
	// MaxAge is how long an event is kept, 1m to 6h. 0 is 6h.
	MaxAge time.Duration

	// NoRetries gives an event up after its first function error. Otherwise Options.AsyncRetries counts.
	NoRetries bool

	// OnFailure is the destination, or dead-letter queue, of events that are given up. It is called from a goroutine of the
	// host, which Close waits for. nil drops them.
	OnFailure func(AsyncFailure)
}

// AsyncFailure is an event that was given up.
type AsyncFailure struct {
	Function  string
	RequestID string
	Payload   []byte
	Condition string // EventRetriesExhausted, EventAgeExceeded or EventZeroReserved
	Attempts  int    // invocations that ran
	Last      Result // of the last that ran; zero when none did
}

// event is one asynchronous invocation. The request id stays the same over all tries, as on AWS.
type event struct {
	function  string
	requestID string
	payload   []byte
	config    AsyncConfig
	since     time.Time
}

// invoker is Host.Invoke.
type invoker func(ctx context.Context, name string, payload []byte, opts InvokeOptions) (Result, error)

// asyncQueue runs events, each in a goroutine of its own.
type asyncQueue struct {
	invoke  invoker
	retries []time.Duration
	log     *slog.Logger
	ctx     context.Context // of every event; ends with the queue
	cancel  context.CancelFunc
	tasks   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	pending int
}

func newAsyncQueue(invoke invoker, retries []time.Duration, log *slog.Logger) *asyncQueue {
	ctx, cancel := context.WithCancel(context.Background())
	return &asyncQueue{invoke: invoke, retries: retries, log: log, ctx: ctx, cancel: cancel}
}

// InvokeAsync accepts an event and returns its request id; the function runs later. After a function error it runs again as
// Options.AsyncRetries say, and while it is throttled, with growing pauses, until AsyncConfig.MaxAge. It fails as Invoke
// does, with CodeTooLarge above MaxAsyncPayload.
func (h *Host) InvokeAsync(name string, payload []byte, opts InvokeOptions) (requestID string, err error) {
	if len(payload) > MaxAsyncPayload {
		return "", &Error{
			Code: CodeTooLarge, Function: name,
			Reason: fmt.Sprintf("%d byte payload is too large for the Event invocation type (limit %d bytes)", len(payload), MaxAsyncPayload),
		}
	}
	f, payload, err := h.accept(name, payload)
	if err != nil {
		return "", err
	}
	ev := event{function: name, requestID: ids.UUID(), payload: payload, config: f.cfg.Async, since: time.Now()}
	f.mu.Lock()
	never := f.reserved == 0
	f.mu.Unlock()
	opts.requestID, opts.LogTail, opts.ClientContext = ev.requestID, false, nil // AWS passes the context of synchronous calls only
	if !h.async.add(ev, opts, never) {
		return "", closedError(name)
	}
	return ev.requestID, nil
}

// add starts an event; never is that the function may not run. It is false when the queue is closed or full.
func (q *asyncQueue) add(ev event, opts InvokeOptions, never bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.pending >= maxAsyncEvents {
		return false
	}
	q.pending++
	q.tasks.Go(func() {
		defer q.done()
		if never {
			q.giveUp(ev, AsyncFailure{Condition: EventZeroReserved})
			return
		}
		q.run(ev, opts)
	})
	return true
}

func (q *asyncQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending--
}

// run tries an event until the function succeeds, or it is given up or dropped.
func (q *asyncQueue) run(ev event, opts InvokeOptions) {
	var end AsyncFailure
	backoff := firstBackoff
	for {
		result, err := q.invoke(q.ctx, ev.function, ev.payload, opts)
		var wait time.Duration
		switch {
		case err == nil && result.FunctionError == "":
			return
		case err == nil:
			end.Attempts++
			end.Last = result
			if ev.config.NoRetries || end.Attempts > len(q.retries) {
				end.Condition = EventRetriesExhausted
				q.giveUp(ev, end)
				return
			}
			wait = q.retries[end.Attempts-1]
		case errors.Is(err, CodeThrottled):
			wait, backoff = backoff, min(2*backoff, longestBackoff)
		default:
			q.log.Warn("event dropped", "function", ev.function, "request_id", ev.requestID, "error", err)
			return
		}
		if !q.sleep(wait) {
			return
		}
		if time.Since(ev.since) >= ev.config.MaxAge {
			end.Condition = EventAgeExceeded
			q.giveUp(ev, end)
			return
		}
	}
}

func (q *asyncQueue) giveUp(ev event, end AsyncFailure) {
	q.log.Warn("event given up", "function", ev.function, "request_id", ev.requestID, "condition", end.Condition)
	if ev.config.OnFailure == nil {
		return
	}
	end.Function, end.RequestID, end.Payload = ev.function, ev.requestID, ev.payload
	ev.config.OnFailure(end)
}

// sleep waits for d; false when the queue is closed meanwhile.
func (q *asyncQueue) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.ctx.Done():
		return false
	}
}

// close drops what waits and accepts nothing more.
func (q *asyncQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cancel()
}

func (q *asyncQueue) wait() { q.tasks.Wait() }
