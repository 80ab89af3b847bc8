package admin

import (
	"cmp"
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// CreateRequest asks for a queue of this deployment, or, where it names none, for all that are missing. What is 0 is as a deployment
// has it.
type CreateRequest struct {
	Model          string     `json:"model"`
	Lane           llmq.Lane  `json:"lane"`
	Queue          queue.Name `json:"queue"`           // in their place
	VisibilitySecs int        `json:"visibility_secs"` // 0 is the timeout of the queue's function, which Lambda takes no less than
	MaxReceives    int        `json:"max_receives"`    // 0 is 1000; each release is a receive
	RetentionSecs  int        `json:"retention_secs"`  // 0 is 4 days
}

// Created is what has been made.
type Created struct {
	Queues []CreatedQueue `json:"queues"`
}

// CreatedQueue is a queue, and how it was made. One that there was is left as it is, and its shape is not told.
type CreatedQueue struct {
	Queue          queue.Name `json:"queue"`
	DLQ            queue.Name `json:"dlq"`
	Created        bool       `json:"created"`
	VisibilitySecs int        `json:"visibility_secs,omitempty"`
	MaxReceives    int        `json:"max_receives,omitempty"`
	RetentionSecs  int        `json:"retention_secs,omitempty"`
}

// How a deployment makes its queues.
const (
	// MaxReceives is only a last guard: releases are receives too.
	MaxReceives = 1000
	// Retention is SQS's own default.
	Retention = 4 * 24 * time.Hour
)

// Create makes queues that are missing, each with its dead-letter queue (FEATURES B12). On AWS it is refused: there infrastructure
// code makes them, with what feeds them to their workers.
func (o *Operator) Create(ctx context.Context, by string, r CreateRequest) (done Created, err error) {
	d := deed{by: by, verb: "create"}
	defer func() {
		made := []string{}
		for _, q := range done.Queues {
			if q.Created {
				made = append(made, string(q.Queue))
			}
		}
		d.args = []any{"queue", llmq.Clip(string(r.Queue), 80), "model", llmq.Clip(r.Model, 80), "lane", llmq.Clip(string(r.Lane), 20), "created", made}
		err = o.deps.Trail.record(ctx, d, err)
	}()
	if o.deps.Creator == nil {
		return Created{}, llmq.Errorf(llmq.CodeUnsupported, "on AWS infrastructure code creates queues: name the model, or the queue of jobs, in infra/cdk/environments/ENV.yaml, then make deploy E=ENV")
	}
	for _, bound := range []struct {
		name      string
		got       int
		low, high int
	}{{"visibility_secs", r.VisibilitySecs, 1, 43200}, {"max_receives", r.MaxReceives, 1, 1000}, {"retention_secs", r.RetentionSecs, 60, 1209600}} {
		if bound.got != 0 && (bound.got < bound.low || bound.got > bound.high) {
			return Created{}, llmq.Errorf(llmq.CodeInvalidRequest, "%s must be %d to %d", bound.name, bound.low, bound.high).At(bound.name)
		}
	}
	places := o.places()
	if r.Queue != "" || r.Model != "" || r.Lane != "" {
		p, err := o.pick(r.Queue, r.Model, r.Lane)
		if err != nil {
			return Created{}, err
		}
		places = []place{p}
	}
	done.Queues = []CreatedQueue{}
	for _, p := range places {
		shape := queue.Shape{
			Visibility:  cmp.Or(time.Duration(r.VisibilitySecs)*time.Second, o.rule(p).Visibility),
			MaxReceives: cmp.Or(r.MaxReceives, MaxReceives),
			Retention:   cmp.Or(time.Duration(r.RetentionSecs)*time.Second, Retention),
		}
		made, err := o.deps.Creator.Create(ctx, p.queue, shape)
		if err != nil {
			return done, err
		}
		q := CreatedQueue{Queue: p.queue, DLQ: p.queue.DLQ(), Created: made}
		if made {
			q.VisibilitySecs, q.MaxReceives, q.RetentionSecs = int(shape.Visibility/time.Second), shape.MaxReceives, int(shape.Retention/time.Second)
		}
		done.Queues = append(done.Queues, q)
	}
	return done, nil
}
