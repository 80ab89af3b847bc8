package admin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// PurgeRequest asks for a queue to be emptied.
type PurgeRequest struct {
	Queue   queue.Name `json:"queue"`   // of a model's lane, or its dead-letter queue
	Confirm queue.Name `json:"confirm"` // the same again
}

// Purged is a purge under way.
type Purged struct {
	Queue    queue.Name `json:"queue"`
	Messages int        `json:"messages"` // about as many were there, in workers' hands included
	Note     string     `json:"note"`
}

// Purge empties a queue for good. Callers who wait for what was in it are told nothing: each gets its time-out at its
// deadline. Calls that run are not stopped, and their results are stored. [llmq.CodeRateLimited] means that the
// queue was purged in the last minute.
func (o *Operator) Purge(ctx context.Context, by string, r PurgeRequest) (done Purged, err error) {
	defer func() {
		err = o.deps.Trail.record(ctx, deed{by: by, verb: "purge", args: []any{"queue", llmq.Clip(string(r.Queue), 80), "messages", done.Messages}}, err)
	}()
	if err := o.checkQueue(r.Queue); err != nil {
		return Purged{}, err
	}
	if r.Confirm != r.Queue {
		return Purged{}, llmq.Errorf(llmq.CodeInvalidRequest, "confirm must repeat the queue's name, %s: a purge can't be undone", r.Queue).At("confirm")
	}
	depth, err := o.deps.Queue.Depth(ctx, r.Queue)
	if err != nil {
		return Purged{}, err
	}
	if err := o.deps.Queue.Purge(ctx, r.Queue); err != nil {
		return Purged{}, err
	}
	return Purged{
		Queue: r.Queue, Messages: depth.Visible + depth.InFlight + depth.Delayed,
		Note: "SQS takes up to 60 s to delete them, and what is sent meanwhile may go too; the next purge of this queue is possible after that",
	}, nil
}

// checkQueue refuses a name that is none of this deployment's.
func (o *Operator) checkQueue(q queue.Name) error {
	if q == "" {
		return llmq.Errorf(llmq.CodeInvalidRequest, "queue is missing; GET /queues lists them").At("queue")
	}
	for _, p := range o.places() {
		if q == p.queue || q == p.queue.DLQ() {
			return nil
		}
	}
	return unknownQueue(q)
}

// SwitchRequest names a model's lane, or its queue.
type SwitchRequest struct {
	Model string     `json:"model"`
	Lane  llmq.Lane  `json:"lane"`
	Queue queue.Name `json:"queue"` // in their place
}

// Switched is a pause or a resumption under way.
type Switched struct {
	Queue queue.Name        `json:"queue"`
	State queue.SourceState `json:"state"` // on the way there; GET /status tells when it has arrived
	Note  string            `json:"note"`
}

// Pause stops the event source of a model's lane. Lambda does it asynchronously, in seconds to a minute: calls
// that workers hold run to their end. The door goes on to take calls for the lane: they wait in its queue until
// it is resumed or their deadline passes. A live call that finds a free slot at the door never needed the queue, and
// still runs. A deploy that changes the event source resumes it.
func (o *Operator) Pause(ctx context.Context, by string, r SwitchRequest) (Switched, error) {
	return o.flip(ctx, by, r, false)
}

// Resume starts it again, as asynchronously.
func (o *Operator) Resume(ctx context.Context, by string, r SwitchRequest) (Switched, error) {
	return o.flip(ctx, by, r, true)
}

func (o *Operator) flip(ctx context.Context, by string, r SwitchRequest, enable bool) (done Switched, err error) {
	verb, note := "pause", "calls are still taken and wait in the queue until it is resumed or their deadline passes; calls that run are not stopped"
	if enable {
		verb, note = "resume", "calls that waited are handed out once the state is Enabled; those whose deadline has passed end as expired"
	}
	d := deed{by: by, verb: verb}
	defer func() {
		d.args = []any{
			"model", llmq.Clip(r.Model, 80), "lane", llmq.Clip(string(r.Lane), 20), "queue", llmq.Clip(string(cmp.Or(done.Queue, r.Queue)), 80), "state", string(done.State),
		}
		err = o.deps.Trail.record(ctx, d, err)
	}()
	p, err := o.pick(r.Queue, r.Model, r.Lane)
	if err != nil {
		return Switched{}, err
	}
	for wait := time.Second; ; wait *= 2 {
		was, s, err := o.flipOnce(ctx, p, enable)
		if err == nil {
			d.before, d.after = was.State, s.State
			return Switched{Queue: p.queue, State: s.State, Note: note}, nil
		}
		passing := errors.Is(err, queue.ErrBusy) || errors.Is(err, queue.ErrThrottled)
		if !passing || wait > longestBusyWait || !sleep(ctx, wait) {
			return Switched{}, explainSwitch(p, err)
		}
	}
}

// longestBusyWait is the last wait for a source that the governor, or a deploy, is changing: 1 + 2 + 4 + 8 s are well
// within an invocation of the admin API.
const longestBusyWait = 8 * time.Second

// flipOnce asks for the change, unless the source is there or on its way.
func (o *Operator) flipOnce(ctx context.Context, p place, enable bool) (was, is queue.Source, err error) {
	list, err := o.deps.Sources.List(ctx, o.rule(p).Worker)
	s, err := listed{list, err}.of(p.queue)
	if err != nil {
		return queue.Source{}, queue.Source{}, err
	}
	running := s.State == queue.SourceEnabled || s.State == queue.SourceEnabling
	if enable && running || !enable && s.State.Paused() {
		return s, s, nil
	}
	is, err = o.deps.Sources.SetEnabled(ctx, s.ID, enable)
	return s, is, err
}

func explainSwitch(p place, err error) error {
	switch {
	case errors.Is(err, queue.ErrBusy):
		return llmq.Errorf(llmq.CodeQueueUnavailable, "the event source of %s is being changed by somebody else; ask again in a minute", p.queue).After(time.Minute).Because(err)
	case errors.Is(err, queue.ErrThrottled):
		return llmq.Errorf(llmq.CodeQueueUnavailable, "AWS throttles requests about event sources; ask again in a minute").After(time.Minute).Because(err)
	case errors.Is(err, queue.ErrNoSource):
		return llmq.Errorf(llmq.CodeConfiguration, "%s has no event source: it is being deployed, or was removed by hand", p.queue).Because(err)
	}
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the event source of %s can't be changed now", p.queue).Because(err)
}

// sleep waits, and reports false where ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
