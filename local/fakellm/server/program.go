package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxPrograms bounds the programmed replies that wait, counting one with Times once.
	maxPrograms = 10_000
	// maxDelay bounds every wait but a hang, programmed or drawn.
	maxDelay = time.Hour
)

// Match says which calls a programmed reply is for. An empty field matches every call.
type Match struct {
	Model  string
	Region string // of the SigV4 credential scope; a call with a bearer token has none
}

func (m Match) fits(model, region string) bool {
	return (m.Model == "" || m.Model == model) && (m.Region == "" || m.Region == region)
}

// Reply is what a programmed call gets. Each field changes one thing; the zero value is the
// normal answer.
type Reply struct {
	// Status replaces the HTTP status; 0 leaves it. From 400 on, with no Body, the wire's own
	// error for that status is sent, for example 429: rate_limit_exceeded or ThrottlingException.
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
	// Delay is waited in place of the default latency, if it is more than 0. At most an hour.
	Delay time.Duration
	// Hang keeps the call until Release lets it go, its client leaves or the server closes. The
	// rest of the Reply then applies.
	Hang bool
	// Reset drops the connection instead of answering, after Delay and Hang.
	Reset bool
	// Times is how many calls get this reply; 0 means one.
	Times int
}

func (r Reply) validate() error {
	var faults []error
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		faults = append(faults, fmt.Errorf("status %d: want 0 or 200 to 599", r.Status))
	}
	if r.Delay < 0 || r.Delay > maxDelay {
		faults = append(faults, fmt.Errorf("delay %v: want 0 to %v", r.Delay, maxDelay))
	}
	if r.Times < 0 {
		faults = append(faults, fmt.Errorf("times %d: want 0 or more", r.Times))
	}
	if r.Code != "" && r.Body != nil {
		faults = append(faults, errors.New("code and body: the one makes the body, the other replaces it"))
	}
	return errors.Join(faults...)
}

// isError says whether the wire is to make an error of it.
func (r Reply) isError() bool {
	return r.Body == nil && (r.Code != "" || r.Status >= http.StatusBadRequest)
}

// program is a programmed reply that waits for its calls.
type program struct {
	match Match
	reply Reply
	left  int
}

// plan is what will happen to a call that has begun.
type plan struct {
	programmed Reply // zero: the normal answer
	delay      time.Duration
}

// reply makes the response when the wait is over.
func (p plan) reply(wi wire, a ask, c *call) reply {
	var re reply
	if p.programmed.isError() {
		re = wi.fault(fault{
			status:  p.programmed.Status,
			code:    p.programmed.Code,
			message: p.programmed.Message,
			model:   a.model,
		}, c.id)
	} else {
		re = a.answer(c.id, time.Since(c.record.At))
		if p.programmed.Status != 0 {
			re.status = p.programmed.Status
		}
		if p.programmed.Body != nil {
			re.body = p.programmed.Body
		}
	}
	for name, values := range p.programmed.Header {
		re.header[http.CanonicalHeaderKey(name)] = values
	}
	return re
}

// Program queues replies for the calls that match, in this order, after those queued before. A
// call takes the first reply that waits for it.
func (s *Server) Program(match Match, replies ...Reply) error {
	added := make([]program, 0, len(replies))
	for i, r := range replies {
		if err := r.validate(); err != nil {
			return fmt.Errorf("program reply %d: %w", i, err)
		}
		r.Header, r.Body = r.Header.Clone(), bytes.Clone(r.Body) // the caller may change its own
		added = append(added, program{match: match, reply: r, left: max(1, r.Times)})
	}
	return s.state.program(added)
}

// SetLatency sets how long calls without a programmed Delay take, from the next call on.
func (s *Server) SetLatency(l Latency) error {
	if err := l.validate(); err != nil {
		return fmt.Errorf("set latency: %w", err)
	}
	s.state.setLatency(l)
	return nil
}

// Release lets the calls go that match and hang now, and says how many those were. Calls that
// come later hang all the same: wait for them first, see AwaitInFlight.
func (s *Server) Release(match Match) int { return s.state.release(match) }

// Reset forgets the programmed replies, the latency, the call log and the counters, and releases
// what hangs. Calls in flight go on, and count as in flight and in the new peaks.
func (s *Server) Reset() { s.state.reset() }
