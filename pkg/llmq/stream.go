package llmq

import "context"

// Stream is a reply that is read while it comes. It is for one goroutine.
type Stream interface {
	// Next waits for more of the reply: whole events, framed as their wire frames them, without what ends a stream
	// there. io.EOF says that the reply is whole. Every other end is an [*Error], but that of ctx, which is the context's own
	// error: then Next may be called again, and nothing is lost.
	Next(ctx context.Context) ([]byte, error)
	// Close ends the reading; the request goes on. It is idempotent.
	Close()
}
