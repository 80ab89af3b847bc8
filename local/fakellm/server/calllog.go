package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"
)

// maxLogBytes bounds the request bodies that the log keeps, all calls together.
const maxLogBytes = 32 << 20

// Outcome says how a call ended.
type Outcome string

// The outcomes that a Call may have.
const (
	Replied Outcome = "replied" // answered, be it with a programmed error
	Refused Outcome = "refused" // answered with an error for its key, its form or its model
	Aborted Outcome = "aborted" // its client went away first
	Reset   Outcome = "reset"   // its connection was dropped, as programmed or by Close
)

// Call is what the log keeps of a call that has ended.
type Call struct {
	Seq       uint64 // 1, 2, 3 … in the order in which calls ended; Reset does not start it again
	At        time.Time
	Wire      string // "openai" or "bedrock"
	Operation string // "chat", "embeddings", "models", "converse"; empty if it was not understood
	Path      string // as it was sent
	Model     string
	Region    string // of the SigV4 credential scope; empty for a bearer token
	KeyHash   string // see KeyHash; empty if the key was refused
	Status    int    // 0 if nothing was answered
	Outcome   Outcome
	// Duration is the time from the call's headers to just before its answer is written.
	Duration time.Duration
	// RequestBytes and RequestSHA256 (hexadecimal) are of the whole body, of which Body is the
	// beginning. They are empty if the key was refused, since the body was not read then.
	RequestBytes  int
	RequestSHA256 string
	Body          []byte
	// Header is the request's, with "(redacted)" for values that hold secrets.
	Header http.Header
}

// captureBody keeps what the log shows of a body.
func (c *Call) captureBody(body []byte, limit int) {
	sum := sha256.Sum256(body)
	c.RequestSHA256 = hex.EncodeToString(sum[:])
	c.RequestBytes = len(body)
	c.Body = slices.Clone(body[:min(len(body), limit)])
}

// callLog keeps the latest calls. Its owner guards it.
type callLog struct {
	limit int
	seq   uint64
	bytes int    // of all bodies kept
	calls []Call // oldest first
}

// add gives the call its number and keeps it, at the price of the oldest ones.
func (l *callLog) add(c Call) Call {
	l.seq++
	c.Seq = l.seq
	l.calls = append(l.calls, c)
	l.bytes += len(c.Body)
	for len(l.calls) > l.limit || l.bytes > maxLogBytes {
		l.bytes -= len(l.calls[0].Body)
		l.calls[0] = Call{} // the array below outlives the slice for a while
		l.calls = l.calls[1:]
	}
	return c
}

// all copies the log. Bodies and headers are shared, and never changed after add.
func (l *callLog) all() []Call { return slices.Clone(l.calls) }
