package client

import (
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// Runner runs a request in this process: package engine's Engine.
type Runner interface {
	Run(ctx context.Context, c engine.Call) engine.Verdict
	RunUnclaimed(ctx context.Context, r llmq.Request, may func(llmq.Target) bool) (llmq.Result, bool)
}

// retryDown is what a caller is advised who can't be served because queue or store is down.
const retryDown = 5 * time.Second

// mayRun reports whether a request can be run here: its caller waits for it, to its end, and it is no stream (FEATURES E12).
func (c *Client) mayRun(ctx context.Context, r llmq.Request) bool {
	if c.Direct == nil || r.Lane != llmq.LaneRT || r.Stream {
		return false
	}
	end, bounded := ctx.Deadline()
	return !bounded || !r.Deadline.After(end)
}

// busy says that another process runs a request, and when its lease ends unless it is renewed.
type busy struct{ lease time.Duration }

// Error implements error.
func (b busy) Error() string { return "another process runs the request" }

// runHere runs the request in this process, under a claim and a slot as a worker does: what was sent of it after all is not
// run a second time. Without a result and without an error, the request is elsewhere: another has ended it, or it could
// not go on here at once and is queued now, which sent tells. Where another runs it the error is a busy.
func (c *Client) runHere(ctx context.Context, r llmq.Request, m llmq.Model) (res *llmq.Result, sent bool, err error) {
	run, err := c.Direct()
	if err != nil {
		return nil, false, unsent{err}
	}
	running := ctx
	if !c.cfg.CancelWithContext { // a lost connection does not cancel; the deadline ends it
		running = context.WithoutCancel(ctx)
	}
	c.Metrics.Count(telemetry.DirectCalls, telemetry.Labels{Model: m.Alias, Cause: "queue"}, 1)
	v := run.Run(running, engine.Call{Request: r, Direct: true})
	switch {
	case v.Result != nil:
		return v.Result, false, nil
	case v.Action == engine.Refuse:
		return nil, false, v.Err
	case v.Action != engine.Release:
		return nil, false, nil
	case v.Reason == engine.ReasonBusy:
		return nil, false, busy{max(v.After, time.Second)}
	}
	if v.Defer != nil { // before the send: a worker that gets the message must not find it held
		v.Defer(context.WithoutCancel(ctx))
	}
	if ctx.Err() != nil {
		return nil, false, unsent{llmq.Errorf(llmq.CodeQueueUnavailable, "the call ended before it could be run").Because(context.Cause(ctx))}
	}
	if err := c.send(ctx, r, m, v.After); err != nil {
		return nil, false, unsent{llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached, and the call could not be run without it (%s)", v.Reason).After(max(v.After, time.Second)).Because(err)}
	}
	return nil, true, nil
}
