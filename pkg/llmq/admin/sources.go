package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/governor"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// SourceStatus is what feeds a queue to its worker. Error says why it could not be read.
type SourceStatus struct {
	Queue          queue.Name        `json:"queue"`
	Model          string            `json:"model"`
	Lane           llmq.Lane         `json:"lane"`
	State          queue.SourceState `json:"state,omitempty"`
	Paused         bool              `json:"paused"`
	MaxConcurrency int               `json:"max_concurrency"` // invocations at once; 0 is no bound
	Ceiling        int               `json:"ceiling"`         // the same as deployed
	Changed        *time.Time        `json:"changed,omitempty"`
	Governor       *GovernorStatus   `json:"governor,omitempty"` // of bg and bulk, where it is on
	Error          string            `json:"error,omitempty"`
}

// GovernorStatus is what the governor would do with a source now. It decides from what it reads alone, so that
// this is what it did in the last minute, or does in the next.
type GovernorStatus struct {
	Want   int             `json:"want"` // 0 where the limits are not known
	Moves  bool            `json:"moves"`
	Reason governor.Reason `json:"reason"`
}

// SourceStates reads the event source of every queue: a request for each worker, side by side.
func (o *Operator) SourceStates(ctx context.Context) []SourceStatus {
	var lim limits
	if o.deps.Governed {
		lim = o.limits(ctx)
	}
	byWorker := o.listAll(ctx)
	out := []SourceStatus{}
	for _, p := range o.places() {
		st := SourceStatus{Queue: p.queue, Model: p.model.Alias, Lane: p.lane, Ceiling: o.rule(p).MaxConcurrency}
		s, err := byWorker[o.rule(p).Worker].of(p.queue)
		if err != nil {
			st.Error = err.Error()
			out = append(out, st)
			continue
		}
		st.State, st.Paused, st.MaxConcurrency = s.State, s.State.Paused(), s.MaxConcurrency
		if !s.Changed.IsZero() {
			st.Changed = &s.Changed
		}
		if o.deps.Governed && governs(p) {
			d := governor.Decide(o.facts(p, s, lim))
			st.Governor = &GovernorStatus{Want: d.Want, Moves: d.Move, Reason: d.Reason}
		}
		out = append(out, st)
	}
	return out
}

// QueueState is a queue with what feeds it.
type QueueState struct {
	QueueStatus
	Source SourceStatus `json:"source"`
}

// Queues lists every queue with its depth, its dead letters and its event source.
func (o *Operator) Queues(ctx context.Context) []QueueState {
	var st Status
	var wg sync.WaitGroup
	wg.Go(func() { st = o.Status(ctx) })
	sources := o.SourceStates(ctx)
	wg.Wait()
	byQueue := map[queue.Name]SourceStatus{}
	for _, s := range sources {
		byQueue[s.Queue] = s
	}
	out := []QueueState{}
	for _, q := range st.Queues {
		out = append(out, QueueState{QueueStatus: q, Source: byQueue[q.Queue]})
	}
	return out
}

// listed is the answer for one function.
type listed struct {
	sources []queue.Source
	err     error
}

func (l listed) of(q queue.Name) (queue.Source, error) {
	for _, s := range l.sources {
		if s.Queue == q {
			return s, nil
		}
	}
	if l.err != nil {
		return queue.Source{}, l.err
	}
	return queue.Source{}, fmt.Errorf("the event source of %s: %w", q, queue.ErrNoSource)
}

// listAll lists the sources of the workers that some queue is for, by their names.
func (o *Operator) listAll(ctx context.Context) map[string]listed {
	out := map[string]*listed{}
	for _, p := range o.places() {
		out[o.rule(p).Worker] = &listed{}
	}
	var wg sync.WaitGroup
	for worker, into := range out {
		wg.Go(func() { into.sources, into.err = o.deps.Sources.List(ctx, worker) })
	}
	wg.Wait()
	all := map[string]listed{}
	for worker, got := range out {
		all[worker] = *got
	}
	return all
}
