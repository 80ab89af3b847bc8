package sqs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// Kind is what a [Fault] does.
type Kind int

// The kinds of faults. The first two happen to messages, as AWS's own storage may do to them; the others to requests, as a network or
// an overloaded server does.
const (
	// Drop answers as if all was well, without the effect. A message sent never comes; a delete or a change of a visibility timeout is
	// forgotten, so that the message comes again; a receive finds nothing, at once, as a short poll on AWS may.
	Drop Kind = iota + 1

	// Duplicate makes a message sent come twice under one message id, each with a handle of its own, or leaves what a receive hands out
	// visible, so that the next receive gets it too.
	Duplicate

	// Delay holds the request for Fault.Wait, then carries it out. If its caller has left by then, it has no effect.
	Delay

	// Refuse answers with the error Fault.Code and Fault.Status name, without an effect.
	Refuse

	// Hang has no effect and gives no answer until the caller leaves, the fault is removed or the server closes; then the connection
	// is cut.
	Hang

	// Cut cuts the connection at once, without an effect.
	Cut

	// LoseAnswer carries the request out and then cuts the connection, so that its caller cannot know.
	LoseAnswer
)

// String returns the kind's name.
func (k Kind) String() string {
	names := []string{"Drop", "Duplicate", "Delay", "Refuse", "Hang", "Cut", "LoseAnswer"}
	if k < 1 || int(k) > len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k-1]
}

// A Fault is a failure for [Server.Inject]: which requests it strikes, how often, and what it does to them.
type Fault struct {
	Kind Kind

	// Op is the operation it strikes, such as "SendMessage"; "" means every one. A batch is another operation than its single form.
	Op string

	// Queue is the name of the queue it strikes; "" means every one.
	Queue string

	// Skip is how many it would strike first and leaves alone.
	Skip int

	// Times is how many it strikes before it is over; 0 means until it is removed. In a batch of sends, deletes or changes Drop and
	// Duplicate strike, and count, each message by itself.
	Times int

	// Probability is the chance, in 0..1, that it strikes; 0 means always. What chance spares is not counted in Skip or Times.
	Probability float64

	// Seed starts the chances, so that they come the same again.
	Seed uint64

	// Wait is how long Delay delays.
	Wait time.Duration

	// Code is the error Refuse answers with, by the name of its shape: "OverLimit", "RequestThrottled" ... Default
	// "ServiceUnavailableException".
	Code string

	// Status is the HTTP status Refuse answers with. Default: the code's own; 400 for a code that SQS doesn't know.
	Status int
}

// Inject makes a fault happen from now on, until it has happened Times times or remove is called. Both are safe at any time; remove
// may be called twice. Several faults that strike one request act in the order in which they were injected, until one of them ends
// it. Inject panics on a fault that cannot happen, for the test that asks for it would prove nothing.
func (s *Server) Inject(f Fault) (remove func()) {
	if err := s.checkFault(f); err != nil {
		panic("sqs: inject: " + err.Error())
	}
	return s.faults.add(f)
}

func (s *Server) checkFault(f Fault) error {
	if _, known := s.operations[f.Op]; !known && f.Op != "" {
		return fmt.Errorf("there is no operation %q", f.Op)
	}
	switch {
	case f.Kind < Drop || f.Kind > LoseAnswer:
		return fmt.Errorf("there is no %v", f.Kind)
	case f.Op != "" && !f.Kind.applies(f.Op):
		return fmt.Errorf("%v means nothing for %s", f.Kind, f.Op)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("the probability %v is not in 0..1", f.Probability)
	case f.Times < 0 || f.Skip < 0:
		return errors.New("the fields Times and Skip count up from 0")
	case (f.Wait > 0) != (f.Kind == Delay):
		return errors.New("the field Wait is for Delay, and Delay needs it")
	case f.Kind != Refuse && (f.Code != "" || f.Status != 0):
		return errors.New("the fields Code and Status are for Refuse")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("the status %d is no error", f.Status)
	}
	return nil
}

// applies tells whether a kind has a meaning for an operation.
func (k Kind) applies(op string) bool {
	op = strings.TrimSuffix(op, "Batch")
	switch k {
	case Drop:
		return op == "SendMessage" || op == "ReceiveMessage" || op == "DeleteMessage" || op == "ChangeMessageVisibility"
	case Duplicate:
		return op == "SendMessage" || op == "ReceiveMessage"
	default:
		return true
	}
}

// ofMessages tells whether a kind strikes messages rather than requests.
func (k Kind) ofMessages() bool { return k == Drop || k == Duplicate }

// faults are those of a server.
type faults struct {
	any     atomic.Bool   // whether there are any, for the many requests that need not look
	closing chan struct{} // closed by close
	running sync.WaitGroup
	hits    atomic.Int64

	mu     sync.Mutex // guards what follows, and every fault
	closed bool
	active []*injected
}

// injected is a Fault that is active.
type injected struct {
	Fault
	chance  *rand.Rand
	skipped int
	struck  int
	removed chan struct{} // closed when it is removed
}

func newFaults() *faults { return &faults{closing: make(chan struct{})} }

// close ends what hangs and what is delayed, and waits for it.
func (fs *faults) close() {
	fs.mu.Lock()
	if !fs.closed {
		fs.closed = true
		close(fs.closing)
	}
	fs.mu.Unlock()
	fs.running.Wait()
}

func (fs *faults) add(f Fault) (remove func()) {
	added := &injected{Fault: f, chance: rand.New(rand.NewPCG(f.Seed, 0)), removed: make(chan struct{})}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.active = append(fs.active, added)
	fs.any.Store(true)
	return sync.OnceFunc(func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.active = slices.DeleteFunc(fs.active, func(f *injected) bool { return f == added })
		fs.any.Store(len(fs.active) > 0)
		close(added.removed)
	})
}

// strikes returns the first fault from number from on that strikes a request (or, if messages, a message), and the number after it.
// A fault that is used up stays in the list until it is removed.
func (fs *faults) strikes(op, queue string, messages bool, from int) (f *injected, next int) {
	if !fs.any.Load() {
		return nil, 0
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i := from; i < len(fs.active); i++ {
		if f := fs.active[i]; f.Kind.ofMessages() == messages && f.matches(op, queue) && f.happens() {
			fs.hits.Add(1)
			return f, i + 1
		}
	}
	return nil, 0
}

func (f *injected) matches(op, queue string) bool {
	return (f.Op == "" || f.Op == op) && (f.Queue == "" || f.Queue == queue) && f.Kind.applies(op)
}

// happens draws the chance and counts.
func (f *injected) happens() bool {
	if f.Times > 0 && f.struck >= f.Times {
		return false
	}
	if f.Probability > 0 && f.chance.Float64() >= f.Probability {
		return false
	}
	if f.skipped < f.Skip {
		f.skipped++
		return false
	}
	f.struck++
	return true
}

// fate decides what becomes of one message of an operation.
func (fs *faults) fate(op, queue string) broker.Fate {
	f, _ := fs.strikes(op, queue, true, 0)
	switch {
	case f == nil:
		return broker.Kept
	case f.Kind == Drop:
		return broker.Lost
	default:
		return broker.Doubled
	}
}

// errCut tells ServeHTTP to cut the connection.
var errCut = errors.New("connection cut by a fault")

// before does to a request what its faults do before its effect. loses tells that its answer is to be lost after it.
func (fs *faults) before(ctx context.Context, op, queue string) (loses bool, err error) {
	for f, next := fs.strikes(op, queue, false, 0); f != nil; f, next = fs.strikes(op, queue, false, next) {
		switch f.Kind {
		case Delay:
			if err := fs.hold(ctx, f, f.Wait); err != nil {
				return false, err
			}
		case Refuse:
			return false, f.refusal()
		case Hang:
			return false, errors.Join(fs.hold(ctx, f, 0), errCut)
		case Cut:
			return false, errCut
		case LoseAnswer:
			loses = true
		default: // those of messages are the operation's own
		}
	}
	return loses, nil
}

// hold waits until the time is over (0: never), the caller has left, the fault is removed or the server closes. It fails where the
// request must not go on.
func (fs *faults) hold(ctx context.Context, f *injected, d time.Duration) error {
	fs.mu.Lock()
	if fs.closed {
		fs.mu.Unlock()
		return errCut
	}
	fs.running.Add(1)
	fs.mu.Unlock()
	defer fs.running.Done()
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-f.removed:
	case <-fs.closing:
		return errCut
	case <-ctx.Done():
		return errCut
	}
	return nil
}

// refused is an error with a status of its own.
type refused struct {
	error
	status int // 0: the code's
}

func (e *refused) Unwrap() error { return e.error }

func (f *injected) refusal() error {
	code := broker.Unavailable
	if f.Code != "" {
		code = broker.Code(f.Code)
	}
	return &refused{fault(code, "Refused, as a fault was injected."), f.Status}
}

// queueIn returns the name of the queue a request is about; "" if it names none.
func queueIn(body []byte) string {
	var in struct {
		QueueURL  string `json:"QueueUrl"`
		QueueName string `json:"QueueName"`
		SourceARN string `json:"SourceArn"`
	}
	if json.Unmarshal(body, &in) != nil {
		return ""
	}
	name := in.QueueURL + in.QueueName + in.SourceARN // a request has one of them
	return name[strings.LastIndexAny(name, "/:")+1:]
}
