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

// concurrencyCap is AWS's own bound on the concurrent invocations of one mapping.
const concurrencyCap = 1250

// quietAfter is how many empty polls in a row make a mapping quiet: a minute of them.
const quietAfter = 3

// Deps are the collaborators of a Source; Queue and Invoker are required.
type Deps struct {
	Queue   queueClient
	Invoker invoker
	Logger  *slog.Logger // never given bodies or replies; nil discards
}

// Stats counts what a Source has done.
type Stats struct {
	Polls      int64 // receives that were answered
	EmptyPolls int64 // of these, without a message
	Received   int64 // messages
	Invokes    int64 // batches given to the function, retries after a throttle included
	Throttles  int64 // of these, refused for lack of concurrency
	Failures   int64 // of these, failed as a whole
	Deleted    int64 // messages
	Kept       int64 // messages left in the queue
	Workers    int   // now
}

// Source runs one mapping.
type Source struct {
	mapping    Mapping
	tuning     Tuning
	deps       Deps
	log        *slog.Logger
	visibility time.Duration // of the queue, read when Run starts

	workers sync.WaitGroup

	mu       sync.Mutex // guards what follows
	count    int        // workers
	polling  int        // of these, polling or about to
	growFrom time.Time  // no worker is added before
	stats    Stats
}

// New checks a mapping. It does not talk to the queue; Run does.
func New(m Mapping, t Tuning, deps Deps) (*Source, error) {
	if err := check(m, t); err != nil {
		return nil, err
	}
	if deps.Queue == nil || deps.Invoker == nil {
		return nil, errors.New("eventsource: queue client and invoker are required")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{mapping: m, tuning: t, deps: deps, log: deps.Logger.With("function", m.Function, "queue", m.QueueARN)}, nil
}

// Run works until ctx ends: then it stops polling, gives running invocations DrainTimeout to end, and returns nil. It
// returns an error only if the queue can't be read at the start. Call it once.
//
// A receive that is cancelled while its answer is on the way would leave messages hidden for a visibility timeout. The
// local SQS server notices clients that have left; on AWS that is a cost of stopping.
func (s *Source) Run(ctx context.Context) error {
	attrs, err := s.deps.Queue.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       aws.String(s.mapping.QueueURL),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameVisibilityTimeout},
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("eventsource: read queue %s: %w", s.mapping.QueueARN, err)
	}
	seconds, err := strconv.Atoi(attrs.Attributes[string(types.QueueAttributeNameVisibilityTimeout)])
	if err != nil {
		return fmt.Errorf("eventsource: read visibility timeout of %s: %w", s.mapping.QueueARN, err)
	}
	s.visibility = time.Duration(seconds) * time.Second

	// Invocations and deletes outlive ctx by the drain timeout.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	s.mu.Lock()
	s.count, s.polling = s.floor(), s.floor()
	s.mu.Unlock()
	for range s.floor() {
		s.workers.Go(func() { s.worker(ctx, work, 0) })
	}
	ended := make(chan struct{})
	go func() { s.workers.Wait(); close(ended) }()

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

// Stats returns the counters.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Workers = s.count
	return stats
}

// tally changes the counters.
func (s *Source) tally(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// ceiling is the most workers.
func (s *Source) ceiling() int {
	if s.mapping.MaximumConcurrency == 0 {
		return concurrencyCap
	}
	return s.mapping.MaximumConcurrency
}

// floor is how many workers there are without load.
func (s *Source) floor() int { return min(s.tuning.Pollers, s.ceiling()) }

// afterPoll counts a poll and decides how many workers there should be. It reports whether this worker shall leave.
func (s *Source) afterPoll(ctx, work context.Context, got, emptyInARow int) (leave bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling--
	s.stats.Polls++
	s.stats.Received += int64(got)
	if got == 0 {
		s.stats.EmptyPolls++
		quiet := s.mapping.MaximumConcurrency == 0 && emptyInARow >= quietAfter && s.count > s.tuning.QuietPollers
		leave = s.count > s.floor() || quiet
		if leave {
			s.count-- // here, not when it has left: else two could leave for one that is too many
		}
		return leave
	}
	if s.polling > 0 || s.count >= s.ceiling() || ctx.Err() != nil {
		return false
	}
	// All are busy: add one, which counts as polling from now on, so that no other is added meanwhile.
	now := time.Now()
	wait := max(0, s.growFrom.Sub(now))
	s.growFrom = now.Add(wait + s.tuning.GrowEvery)
	s.count++
	s.polling++
	s.workers.Go(func() { s.worker(ctx, work, wait) }) // this worker still counts, so Wait is not over
	return false
}

// stopped counts a worker that ends because the source does.
func (s *Source) stopped(polling bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if polling {
		s.polling--
	}
}

// polls counts a worker that is about to poll.
func (s *Source) polls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling++
}
