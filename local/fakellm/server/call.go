package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

const statusThrottled = http.StatusTooManyRequests

// call is a call on its way through the server.
type call struct {
	id       string
	who      identity // fixed before begin
	bodyMark mark
	keyMark  mark
	// The goroutine that serves the call changes the record, and after begin not its Model.
	record  Call
	release chan struct{} // closed by Release; nil if the call does not hang; set by begin

	// Set by begin, and guarded by state.mu.
	gauges   []*Gauge // where it counts
	admitted bool     // it is in flight
	meter    *quota.Meter
	scope    scope
	limits   quota.Limits
	grant    quota.Grant
}

// serveCall takes one call of a wire through its life.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, wi wire) {
	c := &call{id: requestID(), record: Call{At: time.Now(), Wire: wi.name(), Path: r.URL.EscapedPath()}}
	c.record.Header = visible(r.Header)
	a, f := s.understand(w, r, wi, c)
	if f != nil {
		s.answer(r.Context(), w, c, Refused, wi.fault(*f, c.id))
		return
	}
	if a.instant {
		s.answer(r.Context(), w, c, Replied, a.render(completion{input: a.input}, c.id, 0))
		return
	}
	p := s.state.begin(c, a, wi, time.Now())
	switch {
	case p.refused != nil:
		s.answer(r.Context(), w, c, Refused, wi.fault(*p.refused, c.id))
	case p.throttled != nil:
		if s.waited(r.Context(), w, c, p, p.first, 0) {
			s.answer(r.Context(), w, c, Replied, p.refuse(wi, a, c.id))
		}
	default:
		s.run(w, r, wi, c, a, p)
	}
}

// run is the life of a call that no quota refused.
func (s *Server) run(w http.ResponseWriter, r *http.Request, wi wire, c *call, a ask, p plan) {
	said := complete(a, p.reply, p.length, c.id)
	wait, output := p.first, 0
	if !p.reply.isError() {
		output = said.output * max(1, a.choices)
	}
	if !a.stream {
		wait += time.Duration(output) * p.perToken
	}
	if !s.waited(r.Context(), w, c, p, wait, output) {
		return
	}
	if p.reply.Reset {
		s.finish(r.Context(), c, Reset)
		dropConnection(w)
		return
	}
	c.record.FirstByte = time.Since(c.record.At)
	re := p.reply.apply(wi, a, said, c.id, c.record.FirstByte)
	wi.tellQuotas(re.header, p.left[0], p.left[1])
	if p.phase.RetryAfter.Form != "" && (re.status == statusThrottled || re.status == http.StatusServiceUnavailable) {
		p.phase.RetryAfter.tell(re.header, wi, time.Now(), chanceWait)
	}
	for name, values := range p.reply.Header { // once more: the programmed ones win
		re.header[http.CanonicalHeaderKey(name)] = values
	}
	c.record.OutputTokens = output
	s.deliver(r.Context(), w, c, p, re.deliver(p.reply, a.model))
}

// refuse is the answer to a call that was throttled.
func (p plan) refuse(wi wire, a ask, id string) reply {
	f := wi.throttle(a, *p.throttled)
	t := p.phase.Throttle
	if t.Code != "" || t.Status != 0 {
		f = fault{status: t.Status, code: t.Code, message: t.Message, model: a.model}
	} else if t.Message != "" {
		f.message = t.Message
	}
	re := wi.fault(f, id)
	if t.Body != nil {
		re.body = t.Body
	}
	wi.tellQuotas(re.header, p.left[0], p.left[1])
	p.phase.RetryAfter.tell(re.header, wi, time.Now(), p.throttled.After)
	for name, values := range t.Header {
		re.header[http.CanonicalHeaderKey(name)] = values
	}
	return re
}

// understand reads r and says what it asks for; what it finds goes into the call.
func (s *Server) understand(w http.ResponseWriter, r *http.Request, wi wire, c *call) (ask, *fault) {
	who, f := wi.authenticate(r)
	if f != nil {
		return ask{}, f
	}
	c.who = who
	c.record.KeyHash, c.record.Region = who.keyHash, who.region
	body, err := s.readBody(w, r, s.opts.MaxBodyBytes)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return ask{}, &fault{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request is larger than %d bytes.", s.opts.MaxBodyBytes)}
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		return ask{}, &fault{status: http.StatusRequestTimeout, message: fmt.Sprintf("The request did not come within %v.", s.opts.BodyTimeout)}
	} else if err != nil {
		return ask{}, &fault{status: http.StatusBadRequest, message: "The request body could not be read."}
	}
	sum := sha256.Sum256(body)
	c.record.RequestSHA256, c.record.RequestBytes = hex.EncodeToString(sum[:]), len(body)
	c.record.Body = append([]byte(nil), body[:min(len(body), max(0, s.opts.CaptureBytes))]...)
	c.bodyMark, c.keyMark = bodyMarkOf(c.record.Path, sum), keyMarkOf(r, who)
	a, f := wi.parse(r, body)
	c.record.Operation, c.record.Model, c.record.Stream = a.operation, a.model, a.stream
	c.record.InputTokens = a.input
	return a, f
}

// readBody reads at most so many bytes, and takes the time limit away that ServeHTTP set: once all is
// read, how long the answer takes is nobody's concern. Where reading fails the limit stays, so that
// the http.Server does not wait for the rest.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // what has no deadlines has none to take away
	return body, nil
}

// answer logs a call and writes its whole reply; in that order (see the package's documentation).
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, c *call, outcome Outcome, re reply) {
	c.record.Status = re.status
	s.finish(ctx, c, outcome)
	write(w, re)
}

// finish ends the call and logs it.
func (s *Server) finish(ctx context.Context, c *call, outcome Outcome) {
	now := time.Now()
	c.record.Outcome = outcome
	c.record.Duration = now.Sub(c.record.At)
	record := s.state.end(c, now)
	s.logger.LogAttrs(ctx, slog.LevelDebug, "call",
		slog.Uint64("seq", record.Seq),
		slog.String("wire", record.Wire),
		slog.String("operation", record.Operation),
		slog.String("model", record.Model),
		slog.String("region", record.Region),
		slog.String("outcome", string(record.Outcome)),
		slog.String("throttled_by", string(record.ThrottledBy)),
		slog.Int("status", record.Status),
		slog.Duration("took", record.Duration),
	)
}

// requestID makes an id that no other call has; replies carry it in the header of their wire.
func requestID() string { return strings.ToLower(rand.Text()) }
