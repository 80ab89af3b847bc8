// Package schedule invokes a function at a fixed rate, as a schedule of EventBridge Scheduler with the expression
// rate(1 minute) does: the governor's clock.
//
// An invocation is asynchronous: the schedule hands the event over and goes on, whether or not an earlier one still runs, so
// runs overlap, and one that fails is tried again by the function's host. Delivery is at least once. A function that must
// run alone, or once, has to see to that itself, here as on AWS; SetFault makes it prove that.
package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// The scheduler's own retries, when the function's host does not take an event: AWS's default policy.
const (
	maxAttempts  = 186 // the first and 185 retries
	maxEventAge  = 24 * time.Hour
	retryFirst   = time.Second // before the first retry; it doubles
	retryLongest = 5 * time.Minute
)

// invoker is the functions' host; *lambda.Host is one.
type invoker interface {
	Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error)
	InvokeAsync(name string, payload []byte, opts lambda.InvokeOptions) (requestID string, err error)
}

var _ invoker = (*lambda.Host)(nil)

// Options describe a schedule. All fields but Input and Logger are required.
type Options struct {
	Name      string // of the schedule, in the group "default"
	Function  string // to invoke
	Every     time.Duration
	Region    string
	AccountID string
	Invoker   invoker

	// Input is the payload. In it <aws.scheduler.schedule-arn>, <aws.scheduler.scheduled-time>,
	// <aws.scheduler.execution-id> and <aws.scheduler.attempt-number> are replaced. Empty: a "Scheduled Event".
	Input string

	Logger *slog.Logger // nil discards
}

// Stats counts what a schedule has done.
type Stats struct {
	Due      int64 // times that were due, Now among them
	Accepted int64 // events that the function's host took; duplicates count
	Refused  int64 // tries that it refused
	Dropped  int64 // events given up
}

// Fault makes a schedule misbehave. The zero value is no fault.
type Fault struct {
	Miss  bool // what is due is left out
	Twice bool // each event is delivered twice, as at-least-once delivery may
}

// Schedule runs a function at a fixed rate. Its methods are safe for concurrent use, but for Run, which runs once at a time.
type Schedule struct {
	opts Options
	arn  string
	log  *slog.Logger

	mu    sync.Mutex // guards what follows
	fault Fault
	stats Stats
}

// New checks a schedule. It does nothing until Run or Now.
func New(o Options) (*Schedule, error) {
	if o.Name == "" || o.Function == "" || o.Region == "" || o.AccountID == "" || o.Invoker == nil {
		return nil, errors.New("schedule: name, function, region, account id and invoker are required")
	}
	if o.Every <= 0 {
		return nil, fmt.Errorf("schedule: rate of %v is not positive", o.Every)
	}
	if o.Input != "" && !json.Valid([]byte(o.Input)) {
		return nil, errors.New("schedule: input is not JSON")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Schedule{
		opts: o, arn: "arn:aws:scheduler:" + o.Region + ":" + o.AccountID + ":schedule/default/" + o.Name,
		log: o.Logger.With("schedule", o.Name, "function", o.Function),
	}, nil
}

// Run invokes the function now and then every Options.Every, until ctx ends; what the host has accepted by then is its own.
// A time that passes while the machine sleeps is made up for once, not many times. It returns nil.
func (s *Schedule) Run(ctx context.Context) error {
	var events sync.WaitGroup
	defer events.Wait()
	ticker := time.NewTicker(s.opts.Every)
	defer ticker.Stop()
	due := time.Now()
	for {
		s.fire(ctx, &events, due)
		select {
		case due = <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// fire delivers the event of a time that has come, or what the fault leaves of it.
func (s *Schedule) fire(ctx context.Context, events *sync.WaitGroup, due time.Time) {
	fault := s.due()
	if fault.Miss {
		return
	}
	times := 1
	if fault.Twice {
		times = 2
	}
	id := ids.UUID() // one event, however often it is delivered
	for range times {
		events.Go(func() { s.deliver(ctx, id, due) })
	}
}

// Now invokes the function once with the event of this moment, waits for it, and returns its reply. It is for tests and for
// operators; faults do not touch it.
func (s *Schedule) Now(ctx context.Context) (lambda.Result, error) {
	s.due()
	result, err := s.opts.Invoker.Invoke(ctx, s.opts.Function, s.payload(ids.UUID(), time.Now(), 1), lambda.InvokeOptions{})
	s.count(err)
	if err != nil {
		return lambda.Result{}, fmt.Errorf("schedule %s: %w", s.opts.Name, err)
	}
	return result, nil
}

// SetFault makes a fault hold for what is due from now on, until the next call.
func (s *Schedule) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Stats returns the counters.
func (s *Schedule) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// due counts a time that has come.
func (s *Schedule) due() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Due++
	return s.fault
}

// deliver hands an event to the host, and tries again while that refuses it.
func (s *Schedule) deliver(ctx context.Context, id string, due time.Time) {
	wait := retryFirst
	for attempt := 1; ; attempt++ {
		_, err := s.opts.Invoker.InvokeAsync(s.opts.Function, s.payload(id, due, attempt), lambda.InvokeOptions{})
		s.count(err)
		if err == nil {
			return
		}
		hopeless := errors.Is(err, lambda.CodeNotFound) || errors.Is(err, lambda.CodeTooLarge) || errors.Is(err, lambda.CodeClosed)
		if hopeless || attempt == maxAttempts || time.Since(due) >= maxEventAge {
			s.log.Warn("event dropped", "attempts", attempt, "err", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stats.Dropped++
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, retryLongest)
	}
}

func (s *Schedule) count(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Refused++
		return
	}
	s.stats.Accepted++
}

// event is what Scheduler sends when it was given no input. Its detail is a string, not an object.
type event struct {
	Version    string   `json:"version"`
	ID         string   `json:"id"`
	DetailType string   `json:"detail-type"`
	Source     string   `json:"source"`
	Account    string   `json:"account"`
	Time       string   `json:"time"`
	Region     string   `json:"region"`
	Resources  []string `json:"resources"`
	Detail     string   `json:"detail"`
}

func (s *Schedule) payload(id string, due time.Time, attempt int) []byte {
	at := due.UTC().Format(time.RFC3339)
	if s.opts.Input != "" {
		return []byte(strings.NewReplacer(
			"<aws.scheduler.schedule-arn>", s.arn, "<aws.scheduler.scheduled-time>", at,
			"<aws.scheduler.execution-id>", id, "<aws.scheduler.attempt-number>", strconv.Itoa(attempt),
		).Replace(s.opts.Input))
	}
	body, err := json.Marshal(event{
		Version: "0", ID: id, DetailType: "Scheduled Event", Source: "aws.scheduler", Account: s.opts.AccountID,
		Time: at, Region: s.opts.Region, Resources: []string{s.arn}, Detail: "{}",
	})
	if err != nil {
		panic("schedule: " + err.Error()) // strings marshal
	}
	return body
}
