package lambda

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
)

// beginning is the first thing a caller learns of its invocation: the reply has begun, or there will be none.
type beginning struct {
	contentType string
	err         error
}

// invocation is one call of a function. Its owner is the instance it is assigned to; fields below the line are guarded by
// that instance's mutex.
type invocation struct {
	id            string
	trace         string
	clientContext []byte // JSON, or nil
	payload       []byte
	limit         int64 // bytes of reply
	rate          int64 // bytes a second of reply after the first maxFreeStream; 0 is no bound
	tail          bool  // logTail is wanted

	head        chan beginning // capacity 1, written once: by begin or by finish
	replyReader *io.PipeReader
	replyWriter *io.PipeWriter

	cold     bool          // started its instance
	initTook time.Duration // of that start
	handed   bool          // the runtime has the payload
	handedAt time.Time
	ran      time.Duration // from then to its end
	watchdog *time.Timer   // ends the process at the timeout
	answered bool          // the runtime has begun to post a response or an error
	begun    bool          // head has been written
	complete bool          // the whole response has arrived
	failure  error         // why the reply is not (all) there
	logTail  []byte        // set before the reply's end, which the caller waits for
}

func newInvocation(payload []byte, opts InvokeOptions, limit int64) *invocation {
	r, w := io.Pipe()
	inv := &invocation{
		id: opts.requestID, trace: opts.TraceHeader, clientContext: opts.ClientContext, payload: payload, limit: limit, tail: opts.LogTail,
		head: make(chan beginning, 1), replyReader: r, replyWriter: w,
	}
	if inv.id == "" {
		inv.id = ids.UUID()
	}
	if inv.trace == "" {
		inv.trace = newTrace(time.Now())
	}
	return inv
}

// result is the error that the invocation ended with, if any; cause is what to report if the runtime owes the answer.
func (inv *invocation) result(cause error) error {
	if inv.failure == nil && !inv.complete {
		return cause
	}
	return inv.failure
}

// outcome is how the REPORT line of the log says that it failed; "" when it did not.
func (inv *invocation) outcome(cause error) string {
	var failed *FunctionError
	switch {
	case !errors.As(inv.result(cause), &failed):
		return ""
	case failed.Type == codeTimedOut:
		return "Status: timeout"
	default:
		return "Status: error\tError Type: " + failed.Type
	}
}

// end tells the caller how the invocation ended. It is called once, by the instance, after the invocation is no longer its
// current one; cause is what to report if the runtime owes the answer.
func (inv *invocation) end(cause error) {
	err := inv.result(cause)
	if !inv.begun {
		inv.head <- beginning{err: err}
	}
	_ = inv.replyWriter.CloseWithError(err) // nil is io.EOF to the reader; the close itself can't fail
}

// Stream is the reply of a function while it is being written. Reads return chunks as the function wrote them. The reply
// ends with io.EOF, or with *FunctionError when the function failed in its midst. Close gives up the rest; the function is
// not told and goes on.
type Stream struct {
	io.ReadCloser

	RequestID   string
	ContentType string // as the runtime posted it

	inv *invocation
}

// logTail returns the end of the invocation's log, once the reply has been read to its end, if InvokeOptions asked for it.
func (s *Stream) logTail() []byte { return s.inv.logTail }

// newTrace returns an unsampled X-Ray header.
func newTrace(now time.Time) string {
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", now.Unix(), ids.Hex(12), ids.Hex(8))
}
