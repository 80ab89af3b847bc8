// Package provider is the contract between the engine and whoever serves a model:
// bytes in, bytes out, one HTTP exchange, and a verdict on what came back.
package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Provider sends requests to one configured endpoint. Implementations are safe for
// concurrent use, never retry by themselves (a hidden attempt is billed and blinds
// the limiter), and stop at once when ctx ends.
type Provider interface {
	// Call makes exactly one attempt. A reply outside 2xx, or one that is not what
	// the op promises, is an *Error; so is everything that goes wrong on the way.
	Call(ctx context.Context, req Request) (*Response, error)
}

// Selective is a Provider that has only some of what it may be asked for, and tells which.
type Selective interface {
	// Has reports whether Call can serve the model of that id.
	Has(modelID string) bool
}

// Request is one attempt.
type Request struct {
	Op      llmq.Op
	ModelID string // the provider's own id of the model, never empty
	Body    []byte // the caller's JSON; the provider sets the model in it where its wire wants that

	Headers map[string]string // what goes with the body of an invocation, of [llmq.Op.Headers]

	// DefaultMaxOutput is put into the body as the most output, in tokens, where the caller sends
	// none and the op has output; 0 puts nothing. What is sent is what is reserved (FEATURES C13).
	DefaultMaxOutput int
	// Tier is the service tier to ask for, whatever the caller asks for; "" asks for none. Embeddings have none.
	Tier llmq.Tier
	// Tenant is whose request it is, for what must differ between tenants; "" is nobody's.
	Tenant string
	// ID is the request's, and Attempt which of its attempts this is, from 1: both are for who must know a repeat. No wire tells them.
	ID      string
	Attempt int
	// HostedTools are the tools that the provider may run itself for this model, by their type.
	HostedTools []string
	// Pace bounds how slowly the reply of a stream may come. [Provider.Call] has no use for it.
	Pace Pace
}

// Response is a successful answer.
type Response struct {
	Status      int    // 2xx
	ContentType string // "application/json"; of a stream that of its events
	Body        []byte // valid JSON, byte for byte as it came but for a byte order mark; nil of a stream
	RequestID   string // the provider's own id of the exchange; "" when it gave none
	Usage       *Usage // nil where the provider told none
}

// Class says what an error means for the next step. It is decided in one place per
// provider, by a table.
type Class int

const (
	// Retryable is a passing fault of the provider or the network; another try may do.
	Retryable Class = iota + 1
	// Throttle is a refusal for load: the limiter learns from it.
	Throttle
	// TargetFatal will not go away on this target; another target may serve.
	TargetFatal
	// CallFatal is the call's own fault; no target will take it.
	CallFatal
)

// String is the class's name in logs and metrics.
func (c Class) String() string {
	switch c {
	case Retryable:
		return "retryable"
	case Throttle:
		return "throttle"
	case TargetFatal:
		return "target_fatal"
	case CallFatal:
		return "call_fatal"
	}
	return "unknown"
}

// Error is a failed attempt.
type Error struct {
	Class      Class
	Code       llmq.Code     // what the caller is told
	Status     int           // the provider's HTTP status; 0 when there was no answer
	Kind       string        // the provider's own error code, e.g. "ThrottlingException"; "" when it gave none
	Message    string        // for the caller: the provider's message as [CleanMessage] leaves it, or ours where it gave none
	RetryAfter time.Duration // the provider's wish; 0 when it gave none
	Unsent     bool          // nothing went out, so that nothing can have been charged
	Err        error         // cause, for logs
}

// Error is for logs.
func (e *Error) Error() string {
	s := fmt.Sprintf("provider: %s (%s, status %d)", e.Code, e.Class, e.Status)
	if e.Kind != "" {
		s += " " + e.Kind
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap lets errors.Is see the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}
