package server

import (
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// maxLogBytes bounds the request bodies that the log keeps, all calls together.
const maxLogBytes = 32 << 20

// Outcome says how a call ended.
type Outcome string

// The outcomes that a Call may have.
const (
	Replied Outcome = "replied" // answered, be it with a throttle or a programmed error
	Refused Outcome = "refused" // answered with an error for its key, its form or its model
	Broken  Outcome = "broken"  // answered with something that went wrong as programmed, see Failure
	Aborted Outcome = "aborted" // its client went away first
	Reset   Outcome = "reset"   // its connection was dropped before an answer, as programmed or by Close
)

// Call is what the log keeps of a call that has ended.
type Call struct {
	Seq       uint64 // 1, 2, 3 … in the order in which calls ended; Reset does not start it again
	At        time.Time
	Wire      string // "openai" or "bedrock"
	Operation string // "chat", "responses", "embeddings", "models", "converse", "invoke", "count_tokens"; empty if it was not understood
	Stream    bool   // the answer was asked for as a stream
	Path      string // as it was sent
	Model     string
	Region    string // of the SigV4 credential scope or the host's name; empty if neither has one
	KeyHash   string // see KeyHash; empty if the key was refused
	Status    int    // 0 if nothing was answered
	Outcome   Outcome
	// ThrottledBy is the quota that refused the call, or Chance; empty if it was let in.
	ThrottledBy quota.Cause
	// Fail is what went wrong as programmed.
	Fail Failure
	// Phase is the number of the rule's phase in which the call began, from 0.
	Phase int
	// Repeat says that a call with the same path and body had been let in before.
	Repeat bool
	// InputTokens are what the request has, OutputTokens what the answer had when it ended, and
	// ChargedTokens what a quota of tokens was charged.
	InputTokens, OutputTokens int
	ChargedTokens             int64
	// Events is the number of pieces of a stream that were written.
	Events int
	// FirstByte is the time from the call's headers to just before the first byte of an answer of
	// the model, Duration to just before the last.
	FirstByte, Duration time.Duration
	// RequestBytes and RequestSHA256 (hexadecimal) are of the whole body, of which Body is the
	// beginning if Options.CaptureBytes keeps any. They are empty if the key was refused, since
	// the body was not read then.
	RequestBytes  int
	RequestSHA256 string
	Body          []byte
	// Header is the request's, with "(redacted)" for values that hold secrets.
	Header http.Header
}

// good says whether the call was answered, whole.
func (c Call) good() bool { return c.Outcome == Replied && c.Status < http.StatusBadRequest }

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
