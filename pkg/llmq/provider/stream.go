package provider

import (
	"context"
	"time"
)

// MaxEventBytes bounds one event of a stream, as it comes and as it is passed on. A tool's whole argument
// can be one event (case H21b); what is larger is no stream any more, and ends it with an error.
const MaxEventBytes = 8 << 20

// Streamer is a provider that passes a reply on while it comes.
type Streamer interface {
	// Stream makes exactly one attempt, under the rules of [Provider.Call], and calls emit with each event
	// of the reply, one after the other, in their order. It returns a Response without a body once the reply
	// is known to be whole. A reply that ends in any other way is an *Error, however much of it was emitted.
	Stream(ctx context.Context, req Request, emit Emit) (*Response, error)
}

// Emit takes one event of a stream as the caller is to get it: whole, in the bytes of the provider, framed for the
// wire. They are valid only during the call. What ends a stream on its wire is not emitted: whoever passes events on
// writes that once the reply is known to be whole.
//
// content is false as long as the event tells nothing of the reply, such as the role that opens a message: until
// the first that does, another target may still answer instead.
type Emit func(event []byte, content bool)

// Pace says how slowly a stream may come. A zero duration is no bound.
type Pace struct {
	FirstContent time.Duration // from the request to the first event with content
	Stall        time.Duration // between any two reads; comments that keep a connection open count too (case H20)
}
