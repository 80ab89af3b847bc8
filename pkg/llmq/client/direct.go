package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// Runner runs a request in this process: package engine's Engine.
type Runner interface {
	Run(ctx context.Context, c engine.Call) engine.Verdict
	RunUnclaimed(ctx context.Context, r llmq.Request, admit engine.Admit) (llmq.Result, bool)
}

// Why a call is run here, for its metric.
const (
	causeQueue   = "queue"   // its queue takes nothing
	causeRouting = "routing" // its model's rule says so, or the kill switch is on
)

// way is how a request is to reach its provider, and why, where that is not by the queue. moved says that its model's queue takes nothing.
func (c *Client) way(ctx context.Context, r llmq.Request, m llmq.Model, moved bool) (way routing.Way, why string) {
	may := c.mayRun(ctx, r)
	if moved && may {
		return routing.Direct, causeQueue
	}
	way = c.Rules(ctx).Routing.Decide(routing.Call{Model: m.Alias, May: may, Session: r.Session, ID: r.ID})
	if !may {
		way = routing.Queue // with the kill switch on, what sends it says so
	}
	return way, causeRouting
}

// killed refuses what could only be queued.
func killed() *llmq.Error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the kill switch is on and nothing is queued: only live calls that no stream is asked of are served, while a slot is free").After(retryKilled)
}

// retryKilled is what callers are advised while the kill switch is on: about as long as it takes to be heard of everywhere.
const retryKilled = 30 * time.Second

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
func (c *Client) runHere(ctx context.Context, r llmq.Request, m llmq.Model, way routing.Way, why string) (res *llmq.Result, sent bool, err error) {
	run, err := c.Direct()
	if err != nil && why == causeRouting && way != routing.DirectOnly {
		c.Log.Error("calls can't be run here and are queued", "error", err)
		err = c.send(ctx, r, m, 0)
		return nil, err == nil, err
	}
	if err != nil {
		return nil, false, unsent{err}
	}
	running := ctx
	if !c.cfg.CancelWithContext { // a lost connection does not cancel; the deadline ends it
		running = context.WithoutCancel(ctx)
	}
	v := run.Run(running, engine.Call{Request: r, Direct: true, AtOnce: way == routing.Auto})
	switch {
	case v.Result != nil:
		c.Metrics.Count(telemetry.DirectCalls, telemetry.Labels{Model: m.Alias, Cause: why}, 1)
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
	if way == routing.DirectOnly {
		return nil, false, unsent{killed().After(max(v.After, time.Second))}
	}
	if err := c.send(ctx, r, m, v.After); err != nil {
		if _, down := errors.AsType[queueDown](err); down && way == routing.Auto && v.After == 0 && ctx.Err() == nil {
			return c.runHere(ctx, r, m, routing.Direct, causeQueue) // neither took it: it is tried at its whole chain
		}
		return nil, false, unsent{llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached, and the call could not be run without it (%s)", v.Reason).After(max(v.After, time.Second)).Because(err)}
	}
	return nil, true, nil
}
