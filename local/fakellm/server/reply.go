package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxQueued bounds the queued replies that wait, counting one with Times once.
	maxQueued = 10_000
	// maxDelay bounds every wait but a hang, programmed or drawn.
	maxDelay = time.Hour
)

func itoa(n int) string { return strconv.Itoa(n) }

// Match says which calls something is for. An empty field matches every call.
type Match struct {
	Model  string
	Region string // of the SigV4 credential scope or the host's name
	Key    string // the bearer token or the access key id, or its KeyHash
}

// hashed gives the match its key as a hash, if it was the key itself.
func (m Match) hashed() Match {
	if m.Key != "" && !isKeyHash(m.Key) {
		m.Key = KeyHash(m.Key)
	}
	return m
}

// fits says whether a hashed match is for a call.
func (m Match) fits(model string, who identity) bool {
	return (m.Model == "" || m.Model == model) && (m.Region == "" || m.Region == who.region) && (m.Key == "" || m.Key == who.keyHash)
}

// Reply is what a programmed call gets. Each field changes one thing; the zero value is the
// normal answer.
type Reply struct {
	// Status replaces the HTTP status; 0 leaves it. From 400 on, with no Body, the wire's own
	// error for that status is sent, for example 429: rate_limit_exceeded or ThrottlingException.
	// An error without Delay and Hang is sent without asking the quotas.
	Status int
	// Code asks for one error by the name that its wire gives it, for example insufficient_quota
	// or ServiceQuotaExceededException, where several share a status. Its status comes with it,
	// unless Status says otherwise. A wire that doesn't know the name still sends it, with 500.
	Code string
	// Message replaces the text of the error.
	Message string
	// Header is added to the response and wins over what the wire would send.
	Header http.Header
	// Body replaces the body. An empty body that is not nil is sent as an empty body.
	Body []byte
	// Chunks replace the body by raw writes, each flushed by itself.
	Chunks [][]byte
	// Text replaces the text of the answer.
	Text *string
	// ToolCalls replace the text of the answer by calls of tools.
	ToolCalls []ToolCall
	// Delay is waited in place of the latency, if it is more than 0. At most an hour.
	Delay time.Duration
	// Hang keeps the call until Release lets it go, its client leaves or the server closes. The
	// rest of the Reply then applies.
	Hang bool
	// Reset drops the connection instead of answering, after Delay. Hang and what makes an answer do
	// not go with it; FailReset resets in the middle of an answer, also after Hang.
	Reset bool
	// Fail makes the answer go wrong in one more way; After, Pause and Size belong to it.
	Fail  Failure
	After int
	// Pause is 100 ms if 0.
	Pause time.Duration
	// Size is 2,000,000 if 0.
	Size int
	// Times is how many calls get this reply; 0 means one.
	Times int
}

func (r Reply) validate() error {
	var faults []error
	check := func(good bool, place, format string, args ...any) {
		if !good {
			faults = append(faults, at(place, fmt.Errorf(format, args...)))
		}
	}
	check(r.Status == 0 || r.Status >= 200 && r.Status <= 599, "status", "%d: want 0 or 200 to 599", r.Status)
	check(r.Delay >= 0 && r.Delay <= maxDelay, "delay_ms", "%v: want 0 to %v", r.Delay, maxDelay)
	check(r.Pause >= 0 && r.Pause <= maxDelay, "pause_ms", "%v: want 0 to %v", r.Pause, maxDelay)
	check(r.Times >= 0, "times", "%d: want 0 or more", r.Times)
	check(r.After >= 0, "after", "%d: want 0 or more", r.After)
	check(r.Size >= 0 && r.Size <= maxHugeSize, "size", "%d: want 0 to %d", r.Size, maxHugeSize)
	check(r.Fail == "" || slices.Contains(failures(), r.Fail), "fail", "%q: want one of %v", r.Fail, failures())
	for i, t := range r.ToolCalls {
		check(t.Name != "" && jsontext.Value(t.Arguments).IsValid(), "tool_calls/"+itoa(i), "want a name, and arguments that are JSON")
	}
	faults = append(faults, r.validateContent())
	if r.Reset {
		check(!r.Hang, "reset", "with hang: want one of them (fail: reset resets after a hang)")
		answers := r.Status != 0 || r.Code != "" || r.Message != "" || r.Header != nil || r.Fail != "" ||
			r.Body != nil || r.Chunks != nil || r.Text != nil || r.ToolCalls != nil
		check(!answers, "reset", "nothing is answered: want no status, headers, text, fail or another part of an answer with it")
	}
	return errors.Join(faults...)
}

// validateContent wants one source of the answer at most.
func (r Reply) validateContent() error {
	given := 0
	for _, is := range []bool{r.Body != nil, r.Chunks != nil, r.Text != nil || r.ToolCalls != nil, r.Code != "" && r.Fail != FailError} {
		if is {
			given++
		}
	}
	if given > 1 {
		return errors.New("code, body, chunks, and text or tool_calls: want one of them, for each makes the body")
	}
	return nil
}

// isNormal says whether it is the normal answer: what belongs to other fields alone changes nothing.
func (r Reply) isNormal() bool {
	return r.Status == 0 && r.Code == "" && r.Header == nil && r.Body == nil && r.Chunks == nil && r.Text == nil && r.ToolCalls == nil &&
		r.Delay == 0 && !r.Hang && !r.Reset && r.Fail == ""
}

func (r Reply) clone() Reply { // the caller may change its own
	r.Header, r.Body, r.ToolCalls = r.Header.Clone(), bytes.Clone(r.Body), slices.Clone(r.ToolCalls)
	if r.Chunks != nil {
		chunks := make([][]byte, len(r.Chunks))
		for i, c := range r.Chunks {
			chunks[i] = bytes.Clone(c)
		}
		r.Chunks = chunks
	}
	return r
}

// isError says whether the wire is to make an error of it.
func (r Reply) isError() bool {
	return r.Body == nil && r.Chunks == nil && r.Fail != FailError && (r.Code != "" || r.Status >= http.StatusBadRequest)
}

// isInstant says whether it is sent before any quota is asked: an error of the provider's door.
func (r Reply) isInstant() bool {
	return (r.isError() && r.Fail == "" || r.Fail == FailHTML) && r.Delay == 0 && !r.Hang && !r.Reset
}

// apply makes the response that the reply asks for.
func (r Reply) apply(wi wire, a ask, c completion, id string, took time.Duration) reply {
	var re reply
	noStream := r.Fail == FailError && !a.stream
	if r.isError() || noStream {
		re = wi.fault(fault{status: r.Status, code: r.Code, message: r.Message, model: a.model}, id)
	} else {
		re = a.render(c, id, took)
		if r.Status != 0 && r.Fail != FailError {
			re.status = r.Status
		}
		switch {
		case r.Body != nil:
			re.body, re.events = r.Body, nil
		case r.Chunks != nil:
			re.body, re.events = nil, make([]event, len(r.Chunks))
			for i, chunk := range r.Chunks {
				re.events[i].data = chunk
			}
		}
	}
	for name, values := range r.Header {
		re.header[http.CanonicalHeaderKey(name)] = values
	}
	return re
}
