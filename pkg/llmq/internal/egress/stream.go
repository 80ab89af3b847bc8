package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Stream is the reply to one exchange, read while it comes. It is for one goroutine, which must close it.
type Stream struct {
	Reply // its body is that of a refusal; what comes of a success is read from the Stream

	caller context.Context // of the call, without the stream's own ends
	ctx    context.Context
	cancel context.CancelCauseFunc
	host   string
	body   io.ReadCloser // nil of a refusal
	left   int64         // bytes that may still be read
	first  *time.Timer   // runs until the first content
	stall  *time.Timer   // runs during a read
	rest   *time.Timer   // runs once only the end of the exchange is missing; else nil
	pace   provider.Pace
}

// Open makes one exchange as [Client.Do] does, but leaves the body of a 2xx reply of the given media type to be
// read. pace bounds the wait for the header too.
func (c *Client) Open(req *http.Request, pace provider.Pace, media string) (*Stream, error) {
	s := &Stream{caller: req.Context(), host: c.base.Host, left: MaxBodyBytes, pace: pace}
	s.ctx, s.cancel = context.WithCancelCause(s.caller)
	s.first = after(pace.FirstContent, func() { s.cancel(errFirst) })
	resp, err := c.begin(req.WithContext(s.ctx)) //nolint:bodyclose,contextcheck // [Stream.Close] closes it; its context is the request's own, with an end of ours
	if err != nil {
		s.Close()
		return nil, s.Fault(err)
	}
	s.Status, s.Header, s.body = resp.StatusCode, resp.Header, resp.Body
	if err := s.open(resp, media); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open reads a refusal, and checks what a success is made of.
func (s *Stream) open(resp *http.Response, media string) error {
	if !s.OK() {
		body, err := readBody(resp, maxErrorBodyBytes)
		if err != nil && s.ctx.Err() != nil {
			return s.Fault(fmt.Errorf("read the reply of %s: %w", s.host, err))
		}
		s.Body = body
		return nil
	}
	if err := checkEncoding(resp); err != nil {
		return s.Fault(err)
	}
	if got, isJSON := s.media(); got != media {
		class := provider.Retryable // a page of something on the way, as [Reply.JSON] has it
		if isJSON {
			class = provider.TargetFatal // it knows no streams, and would be paid again for the whole reply
		}
		return &provider.Error{
			Class: class, Code: llmq.CodeProviderError, Status: s.Status,
			Message: fmt.Sprintf("the provider answered %d with something that is no stream", s.Status),
		}
	}
	s.stall = after(s.pace.Stall, func() { s.cancel(errStall) })
	s.stall.Stop()
	return nil
}

// Read is that of io.Reader. What its errors mean [Stream.Fault] says.
func (s *Stream) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errTooLarge, int64(MaxBodyBytes))
	}
	if s.pace.Stall > 0 {
		s.stall.Reset(s.pace.Stall)
		defer s.stall.Stop()
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	return n, err
}

// TooLarge is the error of an event with more than [provider.MaxEventBytes]. It would come again.
func (s *Stream) TooLarge(err error) *provider.Error {
	return &provider.Error{
		Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: s.Status,
		Message: fmt.Sprintf("an event of the provider's stream has more than %d MiB", provider.MaxEventBytes>>20), Err: err,
	}
}

// NoEvent is the error of bytes that are no event of the stream's kind.
func (s *Stream) NoEvent(err error) *provider.Error {
	return &provider.Error{
		Class: provider.Retryable, Code: llmq.CodeProviderError, Status: s.Status, Message: "the provider's stream holds what is no event", Err: err,
	}
}

// Begun says that the first content has come: from then on only a standstill ends the stream early. It is idempotent.
func (s *Stream) Begun() { s.first.Stop() }

// Rest says that the reply is whole and nothing is missing but the end of the exchange, which reading goes on to wait for
// within d. Only the first one counts.
func (s *Stream) Rest(d time.Duration) {
	if s.rest == nil {
		s.pace.Stall = 0
		s.rest = time.AfterFunc(d, func() { s.cancel(errRest) })
	}
}

// Rested reports whether a read has failed because the end of the exchange didn't come in the time that [Stream.Rest] gave it.
func (s *Stream) Rested() bool {
	return s.caller.Err() == nil && errors.Is(context.Cause(s.ctx), errRest)
}

// Fault says what an error of a read means. io.EOF is one that came before the reply was whole.
func (s *Stream) Fault(err error) *provider.Error {
	var e *provider.Error
	why := context.Cause(s.ctx)
	switch {
	case s.caller.Err() == nil && errors.Is(why, errFirst):
		e = &provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Message: fmt.Sprintf("the provider began no reply in %s", s.pace.FirstContent), Err: why}
	case s.caller.Err() == nil && errors.Is(why, errStall):
		e = &provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Message: fmt.Sprintf("the provider's stream stood still for %s", s.pace.Stall), Err: why}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e = Fault(s.caller, cause{err}, provider.Retryable, llmq.CodeProviderError)
		if e.Code == llmq.CodeProviderError {
			e.Message = "the provider's stream broke off"
		}
	default:
		e = fault(s.caller, err)
	}
	e.Status = s.Status
	return e
}

// drainWithin is how long the rest of a reply that is whole may take to come. With it read the connection serves
// another call.
const drainWithin = 100 * time.Millisecond

// Drain reads what follows the end of a whole reply.
func (s *Stream) Drain() {
	late := time.AfterFunc(drainWithin, func() { s.cancel(errStall) })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(s.body, 64<<10)) // the reply is whole whatever comes of it
}

// Close ends the exchange. A reply that was not read to its end closes its connection.
func (s *Stream) Close() {
	s.first.Stop()
	if s.stall != nil {
		s.stall.Stop()
	}
	if s.rest != nil {
		s.rest.Stop()
	}
	if s.body != nil {
		_ = s.body.Close() // nothing is written through it
	}
	s.cancel(nil)
}

// after is a timer that runs f, and one that never does for no duration.
func after(d time.Duration, f func()) *time.Timer {
	if d > 0 {
		return time.AfterFunc(d, f)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
