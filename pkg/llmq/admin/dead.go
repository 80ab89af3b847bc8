package admin

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// DeadRequest asks what lies in the dead-letter queue of a model's lane.
type DeadRequest struct {
	Model string     `json:"model"`
	Lane  llmq.Lane  `json:"lane"`
	Queue queue.Name `json:"queue"` // in place of model and lane: theirs, or its dead-letter queue
	Limit int        `json:"limit"` // letters at most, 1 to 100; 0 is 20
}

// DeadLetters are some of a dead-letter queue's.
type DeadLetters struct {
	Queue   queue.Name   `json:"queue"`
	Letters []DeadLetter `json:"letters"`
	Left    int          `json:"left"`                   // in the queue, hidden ones included, about
	Hidden  int          `json:"out_of_sight,omitempty"` // of those: an earlier look has them for 2 minutes at most, about
}

// DeadLetter is a message that can't be done. What its message says is told where it can be read and its sender is listed; nothing of a prompt.
type DeadLetter struct {
	ID         string    `json:"id,omitempty"` // of the call, as its caller knows it
	Tenant     string    `json:"tenant,omitempty"`
	Reason     string    `json:"reason"`               // an error code; "none" where SQS moved it by itself
	Error      string    `json:"error,omitempty"`      // the reason in words
	Attempts   int       `json:"attempts,omitempty"`   // made at providers
	LastClass  string    `json:"last_class,omitempty"` // how the last attempt failed
	Generation int       `json:"generation,omitempty"` // how often it was sent again
	Hopeless   bool      `json:"hopeless,omitempty"`   // sent again as it is, it dies again
	Died       time.Time `json:"died"`                 // when it was put there
}

const (
	fewLetters  = 20
	mostLetters = 100
	// lookFor hides what is looked at from other looks, should its return fail.
	lookFor = 30 * time.Second
)

// Dead shows dead letters. They are taken for the look and given back at once.
func (o *Operator) Dead(ctx context.Context, by string, r DeadRequest) (out DeadLetters, err error) {
	defer func() {
		d := deed{by: by, verb: "dead", args: []any{"queue", llmq.Clip(string(cmp.Or(out.Queue, r.Queue)), 80), "letters", len(out.Letters)}}
		d.log(ctx, o.deps.Trail.Log, err) // it changes nothing
	}()
	p, err := o.pick(r.Queue, r.Model, r.Lane)
	if err != nil {
		return DeadLetters{}, err
	}
	if r.Limit < 0 || r.Limit > mostLetters {
		return DeadLetters{}, llmq.Errorf(llmq.CodeInvalidRequest, "limit must be from 1 to %d, is %d", mostLetters, r.Limit).At("limit")
	}
	limit := cmp.Or(r.Limit, fewLetters)
	depth, err := o.deps.Queue.Depth(ctx, p.queue.DLQ())
	if err != nil {
		return DeadLetters{}, err
	}
	out = DeadLetters{Queue: p.queue, Letters: []DeadLetter{}, Left: depth.Visible + depth.InFlight, Hidden: depth.InFlight}
	var seen []queue.Lease
	defer func() {
		giveBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageMargin)
		defer cancel()
		for _, err := range o.deps.Queue.Extend(giveBack, p.queue.DLQ(), seen) {
			if err != nil { // it comes back by itself
				o.deps.Trail.Log.Debug("dead letter stays hidden for a while", "queue", string(p.queue), "error", err)
			}
		}
	}()
	for len(out.Letters) < limit {
		msgs, err := o.deps.Queue.Receive(ctx, p.queue.DLQ(), queue.Fetch{Max: min(receiveMost, limit-len(out.Letters)), Hide: lookFor, Wait: firstWait})
		if err != nil {
			return out, err
		}
		if len(msgs) == 0 {
			break
		}
		for _, m := range msgs {
			seen = append(seen, queue.Lease{Receipt: m.Receipt})
			out.Letters = append(out.Letters, o.letter(m))
		}
	}
	return out, nil
}

// letter is what can be told of a dead letter.
func (o *Operator) letter(m queue.Message) DeadLetter {
	l := DeadLetter{Reason: reasonOf(m), Error: llmq.Clip(m.Attributes[queue.AttrError], 500), Died: m.SentAt}
	l.Hopeless = hopeless(l.Reason)
	l.Attempts, _ = strconv.Atoi(m.Attributes[queue.AttrAttempts]) // what is no number is none
	if class := m.Attributes[queue.AttrClass]; reasonPattern.MatchString(class) {
		l.LastClass = class
	}
	env, err := open(m.Body)
	if err != nil {
		return l
	}
	if l.Tenant, err = o.owner(m, env); err == nil {
		l.ID, l.Generation = env.ID, env.Generation
	}
	return l
}
