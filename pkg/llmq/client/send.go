package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// storeLost is why the state store could not be used before the request was sent.
type storeLost struct{ error }

func (s storeLost) Unwrap() error { return s.error }

// storePause lies between two tries at a store that does not answer.
const storePause = 200 * time.Millisecond

// outlast calls try, and again while that fails as storeLost, for as long as the state store may fail. Then it calls without,
// and where that returns the loss too, it fails or goes on with both until the request's deadline.
func (c *Client) outlast(ctx context.Context, r llmq.Request, try func() error, without func(lost error) error) error {
	began, given := time.Now(), false
	for tries := 1; ; tries++ {
		err := try()
		if !isLost(err) {
			return err
		}
		down := time.Since(began)
		if tries > 1 { // one failure may be that of a connection which died when the store did, and the store be back
			down = max(down, c.Store.DownFor())
		}
		if down+storePause > c.cfg.StoreWait {
			given = true
			if err = without(err); !isLost(err) {
				return err
			}
		}
		if given && !c.cfg.OutlastStore || time.Until(r.Deadline) <= storePause {
			return err
		}
		if rest(ctx, storePause); ctx.Err() != nil {
			return err
		}
	}
}

func isLost(err error) bool {
	_, lost := errors.AsType[storeLost](err)
	return lost
}

// run records the request, has it sent, and waits for how it ends.
func (c *Client) run(ctx context.Context, r llmq.Request, m llmq.Model, hash string) (sub claims.Submission, res llmq.Result, err error) {
	if c.callers != nil && c.mayRun(ctx, r) {
		c.callers.attend()
	}
	ours := false // an earlier try has recorded it
	var eta *time.Duration
	err = c.outlast(ctx, r, func() error {
		done, err := c.submit(ctx, r, m, hash)
		if err != nil {
			return err
		}
		sub, eta = done.Submission, done.eta
		sub.Known = sub.Known && !ours
		ours = !sub.Known
		res, err = c.await(ctx, r, m, sub, done.moved)
		return err
	}, func(lost error) error {
		res, err = c.runUnclaimed(ctx, r, m, lost)
		return err
	})
	return sub, foretell(res, eta), foretold(err, eta)
}

// submitted is what is known of a request once it is recorded.
type submitted struct {
	claims.Submission
	moved bool           // its model's calls are run here for now
	eta   *time.Duration // how long it is expected to wait for its start; nil: nobody knows
}

// submit records the request under its id, and asks whether its model's calls are run here for now and what is forecast of them. A
// call that can't be expected to start in time is refused.
func (c *Client) submit(ctx context.Context, r llmq.Request, m llmq.Model, hash string) (submitted, error) {
	var b luascript.Batch
	records := c.Claims.Submit(&b, r, hash)
	foresees := c.foresee(&b, r, m)
	var asked luascript.Pending[bool]
	heard := func() {}
	began := time.Now()
	if c.failover != nil {
		asked, heard = c.failover.add(&b, m.Alias), c.limits.add(&b, m)
	}
	ran := b.Run(ctx, c.Valkey)
	sub, err := records()
	switch {
	case ran != nil && err != nil:
		return submitted{}, storeLost{ran}
	case errors.Is(err, llmq.CodeQueueUnavailable): // it answers that it can't serve now
		return submitted{}, storeLost{err}
	case err != nil:
		return submitted{}, err
	}
	done := submitted{Submission: sub}
	if asked != nil {
		heard()
		there, err := asked() // unheard, it is as this process knows it
		done.moved = c.failover.moved(m.Alias, err == nil && there, began)
	}
	if !sub.Sent {
		done.eta, err = foresees()
	}
	return done, err
}

// queueDown is the error of a send that the queue itself is at fault for, or that was not made since it takes nothing.
type queueDown struct{ error }

func (d queueDown) Unwrap() error { return d.error }

// start sends the request. Where the queue does not take it, it is run here if that may be; the answer is runHere's.
func (c *Client) start(ctx context.Context, r llmq.Request, m llmq.Model) (res *llmq.Result, sent bool, err error) {
	err = c.send(ctx, r, m, 0)
	if _, down := errors.AsType[queueDown](err); down && ctx.Err() == nil && c.mayRun(ctx, r) {
		return c.runHere(ctx, r, m, routing.Direct, causeQueue)
	}
	return nil, err == nil, err
}

// send puts the request on its queue, hidden for delay. A send that failed may have reached it all the
// same; sent again under the same id it runs once, since the claim is one.
func (c *Client) send(ctx context.Context, r llmq.Request, m llmq.Model, delay time.Duration) error {
	if c.Rules(ctx).Routing.Killed {
		return unsent{killed()}
	}
	if c.failover != nil && !c.failover.tries(ctx, m.Alias) {
		return unavailable(m.Alias)
	}
	q := c.cfg.Names.Model(m.Alias, m.Queue(r.Lane))
	span := c.Traces.Send(string(q), r)
	bytes, err := c.post(ctx, r, m, q, span.Trace(r.Trace), delay)
	span.Sent(bytes, codeOf(err))
	return err
}

// codeOf is an error's code; "" of none.
func codeOf(err error) llmq.Code {
	if err == nil {
		return ""
	}
	return llmq.AsError(err).Code
}

// post puts the request's message on the queue, with its trace, and returns the message's size.
func (c *Client) post(ctx context.Context, r llmq.Request, m llmq.Model, q queue.Name, trace string, delay time.Duration) (bytes int, err error) {
	env := llmq.Envelope{
		ID: r.ID, Op: r.Op, Model: r.Model.String(), Lane: r.Lane, Fallback: r.Fallback, Deadline: r.Deadline,
		Tenant: r.Tenant, KeyID: r.KeyID, User: r.User, Session: r.Session, Trace: trace, Headers: r.Headers, Params: r.Body,
	}
	if len(r.Body) > c.cfg.InlineMaxBytes {
		ref, err := c.Bodies.Put(ctx, r.BodyKey(r.Body), r.Body)
		if err != nil {
			return 0, unsent{err}
		}
		env.Params, env.Ref = nil, &ref
	}
	body, err := env.Encode()
	if err != nil {
		return 0, err
	}
	carrier := c.Background
	if r.Lane == llmq.LaneRT {
		carrier = c.Queue
	}
	// Half of what is left is for the run: a message that comes too late for it is paid for in vain.
	began := time.Now()
	sending, cancel := context.WithTimeout(ctx, time.Until(r.Deadline)/2)
	defer cancel()
	attributes := map[string]string{"llmq_v": "1", "llmq_op": string(r.Op), "llmq_lane": string(r.Lane), "llmq_rid": string(r.RID())}
	if r.Op == llmq.OpJob {
		attributes["llmq_job"] = r.Model.Target
	}
	out := queue.Outgoing{Body: body, Group: llmq.TenantHash(r.Tenant), Delay: wholeSeconds(delay), Attributes: attributes, Trace: trace}
	err = carrier.Send(sending, q, out)
	c.countSend(m, r.Lane, err)
	c.traceSent(ctx, r, q, time.Since(began), err)
	switch {
	case err == nil && c.failover != nil:
		c.failover.completed(ctx, m.Alias)
	case errors.Is(err, queue.ErrNotSent):
		return out.Size(), unsent{err}
	case err != nil && c.failover != nil && c.failover.failed(ctx, m.Alias, began, err):
		return out.Size(), queueDown{err}
	}
	return out.Size(), err
}

// countSend tells the metrics how a send to a model's queue went.
func (c *Client) countSend(m llmq.Model, l llmq.Lane, err error) {
	if cause := atFault(err); cause != "" {
		c.Metrics.Count(telemetry.QueueErrors, telemetry.Labels{Model: m.Alias, Cause: cause}, 1)
	} else if err == nil {
		c.Metrics.Count(telemetry.Sent, telemetry.Labels{Model: m.Alias, Lane: string(m.Queue(l))}, 1)
	}
}

// atFault names how the queue is at fault for a send that failed; "" where the message or the deployment is.
func atFault(err error) string {
	switch {
	case errors.Is(err, queue.ErrRefused):
		return "refused"
	case errors.Is(err, queue.ErrUnanswered):
		return "timeout"
	}
	return ""
}

// wholeSeconds rounds up, for queues know no parts of a second.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
