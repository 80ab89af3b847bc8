package eventsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
)

// State is where a mapping is in its life.
type State string

// The states of a mapping. Only an Enabled or a Disabled one can be changed.
const (
	StateCreating  State = "Creating"
	StateEnabling  State = "Enabling"
	StateEnabled   State = "Enabled"
	StateUpdating  State = "Updating"
	StateDisabling State = "Disabling"
	StateDisabled  State = "Disabled"
	StateDeleting  State = "Deleting"
)

// Options configure Mappings. Region, AccountID, Queue and Invoker are required.
type Options struct {
	Region    string
	AccountID string
	Queue     queueDirectory // all queues of the account
	Invoker   invoker

	// FunctionTimeout tells a function's timeout, or that there is no such function; it may be called concurrently. A queue
	// whose visibility timeout is below it is refused, as on AWS. nil: every name is a function, and nothing is refused.
	FunctionTimeout func(name string) (timeout time.Duration, exists bool)

	// Transition is how long a change takes to come into force; until then what was before holds. AWS promises nothing, and
	// takes seconds to a minute. 0 is as soon as running invocations let it.
	Transition time.Duration

	Tuning Tuning
	Logger *slog.Logger // never given bodies or replies; nil discards
}

// DefaultOptions returns AWS's tuning, and a transition of 3s.
func DefaultOptions() Options {
	return Options{Transition: 3 * time.Second, Tuning: DefaultTuning()}
}

// Info describes a mapping as the API does. Its Mapping is what was asked for last, which comes into force when State is
// Enabled or Disabled again.
type Info struct {
	UUID         string
	Mapping      Mapping
	State        State
	Reason       string // of the last change of state
	LastModified time.Time
}

// Mappings is the event source mapping service. It owns its mappings and runs a Source for each that is enabled. Close it.
// All methods are safe for concurrent use.
type Mappings struct {
	opts Options
	log  *slog.Logger

	life, work    context.Context // until Close, and until all has ended
	stop, abandon context.CancelFunc
	group         sync.WaitGroup // changes under way and running sources

	mu      sync.Mutex // guards what follows, and the entries' info
	closed  bool
	entries []*entry // oldest first
}

// entry is a mapping. What is not info belongs to the change under way, of which there is at most one.
type entry struct {
	info   Info
	source *Source
	stop   context.CancelFunc // nil while it does not run
	ended  chan struct{}      // closed when it has stopped
}

// NewMappings returns a service without mappings.
func NewMappings(o Options) (*Mappings, error) {
	if o.Region == "" || o.AccountID == "" || o.Queue == nil || o.Invoker == nil {
		return nil, errors.New("eventsource: region, account id, queue client and invoker are required")
	}
	if o.Transition < 0 {
		return nil, errors.New("eventsource: transition must not be negative")
	}
	if err := o.Tuning.check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Mappings{opts: o, log: o.Logger}
	r.life, r.stop = context.WithCancel(context.Background())
	r.work, r.abandon = context.WithCancel(context.Background())
	return r, nil
}

// Add makes a mapping that is enabled at once, as one of a stack that has been deployed. Of m, Function and QueueARN are
// required; QueueURL and Region are looked up, and a BatchSize of 0 is 10.
func (r *Mappings) Add(ctx context.Context, m Mapping) (Info, error) {
	return r.create(ctx, m, StateEnabled, true)
}

// Create makes a mapping as CreateEventSourceMapping does: it is Creating first. m is as for Add.
func (r *Mappings) Create(ctx context.Context, m Mapping, enabled bool) (Info, error) {
	return r.create(ctx, m, StateCreating, enabled)
}

func (r *Mappings) create(ctx context.Context, m Mapping, state State, enabled bool) (Info, error) {
	if m.BatchSize == 0 {
		m.BatchSize = defaultBatchSize
	}
	m, err := r.resolve(ctx, m)
	if err != nil {
		return Info{}, err
	}
	source, err := New(m, r.opts.Tuning, Deps{Queue: r.opts.Queue, Invoker: r.opts.Invoker, Logger: r.opts.Logger})
	if err != nil {
		return Info{}, invalid(err.Error())
	}
	e := &entry{source: source, info: Info{UUID: ids.UUID(), Mapping: m, State: state, Reason: userInitiated, LastModified: time.Now()}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Info{}, errClosed()
	}
	for _, other := range r.entries {
		if o := other.info; o.Mapping.Function == m.Function && o.Mapping.QueueARN == m.QueueARN {
			return Info{}, &Error{Code: CodeConflict, Message: fmt.Sprintf("An event source mapping with SQS arn (\" %s \") and function (\" %s \") "+
				"already exists. Please update or delete the existing mapping with UUID %s", m.QueueARN, m.Function, o.UUID)}
		}
	}
	r.entries = append(r.entries, e)
	if state == StateEnabled {
		r.startLocked(e) //nolint:contextcheck // a mapping outlives the request that makes or changes it
	} else {
		r.changeLocked(e, m, enabled) //nolint:contextcheck // a mapping outlives the request that makes or changes it
	}
	return e.info, nil
}

// Get describes a mapping.
func (r *Mappings) Get(uuid string) (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(uuid)
	if err != nil {
		return Info{}, err
	}
	return e.info, nil
}

// List describes the mappings of a function and of a queue, oldest first. "" is any.
func (r *Mappings) List(function, queueARN string) []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Info
	for _, e := range r.entries {
		if (function == "" || e.info.Mapping.Function == function) && (queueARN == "" || e.info.Mapping.QueueARN == queueARN) {
			list = append(list, e.info)
		}
	}
	return list
}

// Source returns a mapping's loop, for its Stats and SetFault; nil when there is no such mapping. To change it, use Update.
func (r *Mappings) Source(uuid string) *Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(uuid)
	if err != nil {
		return nil
	}
	return e.source
}

// Close stops polling, gives running invocations the tuning's DrainTimeout, or until ctx ends, and returns when nothing of
// the service runs any more. The mappings stay to be read.
func (r *Mappings) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	ended := make(chan struct{})
	go func() { r.group.Wait(); close(ended) }()
	drain := time.NewTimer(r.opts.Tuning.DrainTimeout)
	defer drain.Stop()
	select {
	case <-ended:
	case <-drain.C:
	case <-ctx.Done():
	}
	r.abandon()
	<-ended
}

// findLocked finds a mapping.
func (r *Mappings) findLocked(uuid string) (*entry, error) {
	i := slices.IndexFunc(r.entries, func(e *entry) bool { return e.info.UUID == uuid })
	if i < 0 {
		return nil, notFound()
	}
	return r.entries[i], nil
}

func errClosed() error { return &Error{Code: CodeService, Message: "The service is closed."} }
