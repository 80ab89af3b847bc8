// Package queue is the contract between llmq and whatever carries its messages.
package queue

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Name is a queue's name, without account or region, e.g. "llm-chat-a-rt".
type Name string

// DLQ is the name of n's dead-letter queue.
func (n Name) DLQ() Name { return n + "-dlq" }

// Names is how a deployment names its queues: prefix, model, lane. The bg lane is
// the model's default queue and has no suffix.
type Names struct{ Prefix string }

// Model is the queue of a model's lane.
func (n Names) Model(alias string, lane llmq.Lane) Name {
	base := Name(n.Prefix + "-" + alias)
	if lane == llmq.LaneBG {
		return base
	}
	return base + "-" + Name(lane)
}

// Message is one received message. Its receipt is good for one receive only.
type Message struct {
	ID           string // the queue's own id; never used to deduplicate
	Receipt      string
	Queue        Name
	Body         []byte
	ReceiveCount int       // receives so far, releases among them
	SentAt       time.Time // when it was first sent
	SenderID     string    // who sent it, as the queue says
	Attributes   map[string]string
	Trace        string // W3C traceparent that the queue carried beside the body; "" is none
}

// Outgoing is a message to be sent.
type Outgoing struct {
	Body       []byte
	Delay      time.Duration     // 0 to 15 min, whole seconds; sub-second parts are dropped
	Group      string            // fairness group, hashed; "" is none
	Attributes map[string]string // hints for people and tools; the body decides
	Trace      string            // W3C traceparent, for whoever looks at the queue and not into the body; what is none is not carried
}

// Size is how many bytes of a queue's limit m takes: its body and its attributes, with their
// names and types.
func (m Outgoing) Size() int {
	size := len(m.Body)
	for name, value := range m.Attributes {
		size += len(name) + len("String") + len(value)
	}
	return size
}

// Lease asks for a received message to stay hidden for For from now on. Zero makes
// it visible at once.
type Lease struct {
	Receipt string
	For     time.Duration // 0 to 12 h; rounded up to whole seconds
}

// Depth is a queue's approximate state.
type Depth struct {
	Visible, InFlight, Delayed int
}

// What a send's error says of the queue as a whole, among its causes. One without either is the fault of the message or of
// the deployment, and no wait mends it.
var (
	// ErrUnanswered means that no answer came in time: the message may be on the queue.
	ErrUnanswered = errors.New("the queue did not answer in time")
	// ErrRefused means that the queue takes no messages for now, or can't be reached.
	ErrRefused = errors.New("the queue takes no messages for now")
)

// Queue carries messages. Implementations are safe for concurrent use.
type Queue interface {
	// Send returns once the queue has the message. [llmq.CodeQueueUnavailable] means
	// that it may or may not have it. [ErrUnanswered] and [ErrRefused] are causes of it.
	Send(ctx context.Context, q Name, m Outgoing) error
	// Extend changes the visibility of any number of messages of one queue. Result i
	// belongs to lease i and is nil when it holds.
	Extend(ctx context.Context, q Name, leases []Lease) []error
	// Depth reads a queue's counts.
	Depth(ctx context.Context, q Name) (Depth, error)
}

// BatchSender is a Queue that sends many messages in a request.
type BatchSender interface {
	Queue
	// SendAll sends any number of messages to one queue in as few requests as it can. Result i
	// belongs to message i and is as Send's.
	SendAll(ctx context.Context, q Name, ms []Outgoing) []error
}
