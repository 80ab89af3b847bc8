package lambda

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// beginning is the first thing a caller learns of its invocation: the reply has begun, or there will be none.
type beginning struct {
	contentType string
	err         error
}

// invocation is one call of a function. Its owner is the instance it is assigned to; fields below the line are guarded by
// that instance's mutex.
type invocation struct {
	id      string
	trace   string
	payload []byte
	limit   int64 // bytes of reply

	head        chan beginning // capacity 1, written once: by begin or by finish
	replyReader *io.PipeReader
	replyWriter *io.PipeWriter

	cold     bool          // started its instance
	initTook time.Duration // of that start
	handed   bool          // the runtime has the payload
	handedAt time.Time
	watchdog *time.Timer // ends the process at the timeout
	answered bool        // the runtime has begun to post a response or an error
	begun    bool        // head has been written
	complete bool        // the whole response has arrived
	failure  error       // why the reply is not (all) there
}

func newInvocation(payload []byte, trace string, limit int64) *invocation {
	r, w := io.Pipe()
	id := newUUID()
	if trace == "" {
		trace = newTrace(time.Now())
	}
	return &invocation{
		id: id, trace: trace, payload: payload, limit: limit,
		head: make(chan beginning, 1), replyReader: r, replyWriter: w,
	}
}

// end tells the caller how the invocation ended. It is called once, by the instance, after the invocation is no longer its
// current one; cause is what to report if the runtime owes the answer.
func (inv *invocation) end(cause error) {
	err := inv.failure
	if err == nil && !inv.complete {
		err = cause
	}
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
}

// newUUID returns a random (version 4) UUID, the form of every AWS request id.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// newTrace returns an unsampled X-Ray header.
func newTrace(now time.Time) string {
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", now.Unix(), randomHex(12), randomHex(8))
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}
