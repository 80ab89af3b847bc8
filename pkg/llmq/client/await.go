package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
)

// await has the request run where it is not known to be under way, and waits for how it ends. moved says that its
// model's queue takes nothing for now.
func (c *Client) await(ctx context.Context, r llmq.Request, m llmq.Model, sub claims.Submission, moved bool) (llmq.Result, error) {
	way, why := c.way(ctx, r, m, moved)
	if sub.Sent && !time.Now().Before(sub.Deadline.Add(grace)) {
		return c.ended(ctx, r, sub.Known) // nothing is left to wait for
	}
	underWay, sent := sub.Sent, false
	var other busy
	if !underWay && way != routing.Queue {
		res, queued, err := c.runHere(ctx, r, m, way, why)
		if !errors.As(err, &other) && (res != nil || err != nil) {
			return own(res), err
		}
		underWay, sent = true, queued
	}
	waiter, err := c.Hub.Subscribe(ctx, r)
	if err != nil {
		if !underWay {
			err = storeLost{err}
		}
		return llmq.Result{}, err
	}
	defer waiter.Close() //nolint:contextcheck // a wait that has ended must still be undone
	if !underWay {
		res, queued, err := c.start(ctx, r, m)
		if !errors.As(err, &other) && (res != nil || err != nil) {
			return own(res), err
		}
		sent = queued
	}
	res, err := c.look(ctx, r, sent)
	if errors.Is(err, llmq.CodeQueueUnavailable) {
		// The message is on its queue: an error now would make the caller send, and pay for,
		// another. The waiter reads the result once the store answers again.
		c.Log.Warn("result not looked for; waiting for its wake", "request_id", r.ID, "error", err)
	} else if err != nil || res != nil {
		return own(res), err
	}
	if other.lease > 0 {
		return c.shadow(ctx, r, m, sub, waiter, other.lease)
	}
	return c.wait(ctx, r, sub, waiter)
}

// shadow waits for a request that another process runs, perhaps without a message of it on any queue: should that process die,
// nobody would take the request up. So whenever its lease should have ended, it is tried here again.
func (c *Client) shadow(ctx context.Context, r llmq.Request, m llmq.Model, sub claims.Submission, w waiter, lease time.Duration) (llmq.Result, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, lease)
		stored, err := w.Result(waiting)
		cancel()
		if err == nil {
			return c.Results.Decode(ctx, r, stored)
		}
		if ctx.Err() != nil {
			return llmq.Result{}, err
		}
		var other busy
		res, queued, err := c.runHere(ctx, r, m, routing.Direct, causeQueue)
		if errors.As(err, &other) {
			lease = other.lease
			continue
		}
		if res == nil && err == nil {
			res, err = c.look(ctx, r, queued)
		}
		if res != nil || err != nil {
			return own(res), err
		}
		return c.wait(ctx, r, sub, w)
	}
}

// own is the result that r points at, if at any.
func own(r *llmq.Result) llmq.Result {
	if r == nil {
		return llmq.Result{}
	}
	return *r
}

// waiter is who waits for a stored result.
type waiter interface {
	Result(ctx context.Context) ([]byte, error)
}

// wait waits for the result of a request that is under way.
func (c *Client) wait(ctx context.Context, r llmq.Request, sub claims.Submission, w waiter) (llmq.Result, error) {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if sub.Sent && sub.Deadline.Before(r.Deadline) {
		// What runs ends by the deadline that it was sent with, however long this caller would wait.
		waiting, cancel = context.WithDeadline(ctx, sub.Deadline.Add(grace))
	}
	defer cancel()
	stored, err := w.Result(waiting)
	if err == nil {
		return c.Results.Decode(ctx, r, stored)
	}
	runsUntil := r.Deadline
	if sub.Sent {
		runsUntil = sub.Deadline
	}
	if time.Now().Before(runsUntil) {
		return llmq.Result{}, err
	}
	looking, stop := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer stop()
	return c.ended(looking, r, sub.Known)
}

// lastLook bounds the look for a result that nobody waits for any more.
const lastLook = time.Second

// ended looks for the result of a request whose deadline has passed. known says that it is asked for by its id.
func (c *Client) ended(ctx context.Context, r llmq.Request, known bool) (llmq.Result, error) {
	res, err := c.look(ctx, r, false)
	if err == nil && res == nil {
		err = c.unanswered(ctx, r, known)
	}
	return own(res), err
}

// unanswered is why nothing is stored of a request whose deadline has passed: nobody began it, or whoever did is still to be heard of, or dead.
// Asked for by its id, that is final: the id is never run any more (DS27).
func (c *Client) unanswered(ctx context.Context, r llmq.Request, known bool) error {
	var b luascript.Batch
	begun := c.Claims.Begun(&b, r)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return err
	}
	switch tried, err := begun(); {
	case err != nil:
		return err
	default:
		e := unheard(r.ID, tried)
		e.Final = known
		return e
	}
}

// unheard is the end of a request of which nothing is stored by its deadline.
func unheard(id string, begun bool) *llmq.Error {
	if begun {
		return llmq.Errorf(llmq.CodeTimeout, "the request %s was begun and has no stored result by its deadline; its provider may have been called; a new try needs a new id", id)
	}
	return llmq.Errorf(llmq.CodeExpired, "the request %s ended without a stored result by its deadline; send it again under a new id", id)
}

// look reads the result once after the send, in case it came before the subscription
// stood, and notes the send where there was one. A request may have ended long ago: a claim can outlive its
// submission record, and one that came over a queue never had any.
func (c *Client) look(ctx context.Context, r llmq.Request, sent bool) (*llmq.Result, error) {
	var b luascript.Batch
	var marked luascript.Pending[bool]
	if sent {
		marked = c.markSent(&b, r)
	}
	done := c.Claims.Done(&b, r) // before the result: one that ends in between must not look expired
	stored := c.Results.Look(&b, r)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return nil, err
	}
	if marked != nil {
		if ok, err := marked(); err != nil || !ok {
			c.Log.Warn("send not noted; a repeat sends again", "request_id", r.ID, "error", err)
		}
	}
	body, err := stored()
	if err != nil {
		return nil, err
	}
	if body != nil {
		res, err := c.Results.Decode(ctx, r, body)
		return &res, err
	}
	ended, err := done()
	if err == nil && ended {
		err = llmq.Errorf(llmq.CodeResultExpired, "the request %s has ended and its result is no longer stored", r.ID)
	}
	return nil, err
}
