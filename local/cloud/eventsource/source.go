package eventsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Deps are the collaborators of a Source; Queue and Invoker are required.
type Deps struct {
	Queue   queueClient
	Invoker invoker
	Logger  *slog.Logger // never given bodies or replies; nil discards
}

// Source runs one mapping. Its methods are safe for concurrent use, but for Run, which runs once at a time.
type Source struct {
	tuning Tuning
	deps   Deps
	log    *slog.Logger
	group  sync.WaitGroup // the workers

	mu       sync.Mutex // guards what follows
	mapping  Mapping
	fault    Fault
	changed  chan struct{}      // closed, and replaced, when mapping, fault or running change
	polls    map[*poll]struct{} // receives under way
	workers  int                // alive
	polling  int                // of these, polling or about to
	wanted   int                // workers that failures leave; the others leave after their batch
	running  int                // invocations
	growFrom time.Time          // no worker is added before
	cutFrom  time.Time          // no worker is taken away before
	failing  bool               // the last invocation failed or was throttled: no worker is added
	stats    Stats
}

// New checks a mapping. It does not talk to the queue; Run does.
func New(m Mapping, t Tuning, deps Deps) (*Source, error) {
	if err := errors.Join(m.check(), t.check()); err != nil {
		return nil, err
	}
	if deps.Queue == nil || deps.Invoker == nil {
		return nil, errors.New("eventsource: queue client and invoker are required")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		tuning: t, deps: deps, log: deps.Logger.With("function", m.Function, "queue", m.QueueARN),
		mapping: m, changed: make(chan struct{}), polls: map[*poll]struct{}{},
	}, nil
}

// Run works until ctx ends: then it stops polling, gives running invocations DrainTimeout to end, and returns nil. It
// returns an error only if the queue can't be read at the start. It may be called again once it has returned.
//
// A receive that is cancelled while its answer is on the way would leave messages hidden for a visibility timeout, so a
// receive that has just begun is given pollGrace to end by itself; one that has waited longer has nothing on the way.
func (s *Source) Run(ctx context.Context) error {
	if _, err := s.visibility(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	// Receives, invocations and deletes outlive ctx.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	ended := make(chan struct{})
	go func() { s.run(ctx, work); close(ended) }()

	<-ctx.Done()
	drain := time.NewTimer(s.tuning.DrainTimeout)
	defer drain.Stop()
	select {
	case <-ended:
	case <-drain.C:
		s.log.Warn("running invocations abandoned", "after", s.tuning.DrainTimeout)
		abandon()
		<-ended
	}
	return nil
}

// run polls until ctx ends, and returns when everything that was begun has ended, or been abandoned because work ended.
func (s *Source) run(ctx, work context.Context) {
	s.mu.Lock()
	n := s.floorLocked()
	s.workers, s.polling, s.wanted, s.growFrom, s.cutFrom, s.failing = n, n, n, time.Time{}, time.Time{}, false
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endPollsLocked()
	})
	defer stop()
	for range n {
		s.group.Go(func() { s.worker(ctx, work, 0) })
	}
	s.group.Wait()
}

// Mapping returns the mapping in force.
func (s *Source) Mapping() Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mapping
}

// Update puts another mapping in force, at once: batches that are being delivered end as they began, polls under way end,
// and every poll and invocation after them follows it. No message is given up. The queue can't be changed.
func (s *Source) Update(m Mapping) error {
	if err := m.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.QueueURL != s.mapping.QueueURL || m.QueueARN != s.mapping.QueueARN {
		return errors.New("eventsource: the queue of a mapping can't be changed")
	}
	s.mapping = m
	s.changedLocked()
	s.endPollsLocked()
	return nil
}

// changedLocked wakes whoever waits for a change.
func (s *Source) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// visibility reads the queue's visibility timeout, which may change at any time.
func (s *Source) visibility(ctx context.Context) (time.Duration, error) {
	m := s.Mapping()
	return readVisibility(ctx, s.deps.Queue, m.QueueURL, m.QueueARN)
}

func readVisibility(ctx context.Context, q queueClient, url, arn string) (time.Duration, error) {
	attrs, err := q.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       aws.String(url),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameVisibilityTimeout},
	})
	if err != nil {
		return 0, fmt.Errorf("eventsource: read queue %s: %w", arn, err)
	}
	seconds, err := strconv.Atoi(attrs.Attributes[string(types.QueueAttributeNameVisibilityTimeout)])
	if err != nil {
		return 0, fmt.Errorf("eventsource: read visibility timeout of %s: %w", arn, err)
	}
	return time.Duration(seconds) * time.Second, nil
}
