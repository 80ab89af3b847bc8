package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Submit sends a request for a caller who comes back for its end by the id, and returns where it stands: its end is kept for
// 24 h. It waits for nothing but the send. A request whose id is known is not sent again; under another body it is
// [llmq.CodeIdempotencyMismatch].
//
// Nobody waits, so that nothing is run here when the queue takes nothing: that is [llmq.CodeQueueUnavailable]. Every error
// is an [*llmq.Error], and none of them leaves open whether a repeat runs twice: it does not.
func (c *Client) Submit(ctx context.Context, r llmq.Request) (llmq.Call, error) {
	r.Kept, r.OneOff = true, false
	began := time.Now()
	call, err := c.leave(ctx, r)
	if err != nil {
		failure := c.explain(ctx, r, err)
		c.traceAnswered(ctx, r, began, failure.Meta, failure)
		return llmq.Call{}, failure
	}
	c.traceOutcome(ctx, r, began, llmq.Meta{Attempts: call.Attempts}, string(call.State))
	return call, nil
}

func (c *Client) leave(ctx context.Context, r llmq.Request) (llmq.Call, error) {
	if err := c.check(r); err != nil {
		return llmq.Call{}, err
	}
	model, _, err := c.cfg.Catalogue.Resolve(r.Model, r.Op.Wire())
	if err != nil {
		return llmq.Call{}, err
	}
	hash := claims.BodyHash(r)
	var sub submitted
	err = c.outlast(ctx, r, func() error {
		sub, err = c.submit(ctx, r, model, hash)
		return err
	}, func(lost error) error { return lost })
	if err != nil {
		return llmq.Call{}, err
	}
	if !sub.Sent {
		if err := c.send(ctx, r, model, 0); err != nil {
			return llmq.Call{}, err
		}
	}
	var b luascript.Batch
	marked := func() (bool, error) { return true, nil }
	if !sub.Sent {
		marked = c.markSent(&b, r)
	}
	found := c.lookUp(&b, r.Tenant, r.ID)
	if err := b.Run(ctx, c.Valkey); err != nil {
		c.Log.Warn("submitted; where it stands can't be told", "request_id", r.ID, "error", err)
		return llmq.Call{ID: r.ID, State: llmq.StateQueued, Created: time.Now(), Deadline: sub.Deadline, Eta: sub.eta}, nil
	}
	if ok, err := marked(); err != nil || !ok {
		c.Log.Warn("send not noted; a repeat sends again", "request_id", r.ID, "error", err)
	}
	call, of, err := found(ctx)
	call.Eta = sub.eta
	if err == nil && of != "" && of != hash {
		// The other body came over a queue, and no claim told of it yet when this one was recorded.
		err = llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id %q was used before for another body, model or operation", r.ID)
	}
	return call, err
}

// Find returns where a tenant's call stands, with its reply or error where it has ended. An id that is not known is
// [llmq.CodeCallNotFound], one whose end is no longer stored [llmq.CodeResultExpired]. Every error is an [*llmq.Error].
func (c *Client) Find(ctx context.Context, tenant, id string) (llmq.Call, error) {
	call, err := c.find(ctx, tenant, id)
	if err != nil {
		return llmq.Call{}, lookupFailed(err)
	}
	return call, nil
}

// lookupFailed makes an error of a look-up one for the caller.
func lookupFailed(err error) error {
	e := llmq.AsError(err)
	if e.Code == llmq.CodeQueueUnavailable && e.RetryAfter == 0 {
		e.RetryAfter = retryDown
	}
	return e
}

func (c *Client) find(ctx context.Context, tenant, id string) (llmq.Call, error) {
	if err := errors.Join(llmq.CheckTenant(tenant), llmq.CheckID("id", id)); err != nil {
		return llmq.Call{}, err
	}
	var b luascript.Batch
	found := c.lookUp(&b, tenant, id)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return llmq.Call{}, err
	}
	call, _, err := found(ctx)
	return call, err
}

// lookUp asks where a call stands, as part of a batch. What it returns is to be called once that has run: it fetches a body that
// lies elsewhere, and tells the hash of the request that ended so, where it has ended.
func (c *Client) lookUp(b *luascript.Batch, tenant, id string) func(context.Context) (call llmq.Call, hash string, err error) {
	r := llmq.Request{Tenant: tenant, ID: id}
	stands := c.Claims.Standing(b, tenant, id) // before the result: one that ends in between must not look expired
	looked := c.Results.Look(b, r)
	return func(ctx context.Context) (llmq.Call, string, error) {
		st, err := stands()
		if err != nil {
			return llmq.Call{}, "", err
		}
		stored, err := looked()
		if err != nil {
			return llmq.Call{}, "", err
		}
		call := llmq.Call{ID: id, Created: st.Created, Deadline: st.Deadline, Attempts: st.Attempts}
		if stored == nil {
			err := place(&call, st, time.Now())
			return call, "", err
		}
		res, err := c.Results.Decode(ctx, r, stored)
		if err != nil {
			return llmq.Call{}, "", err
		}
		ended(&call, res, st.Dead)
		return call, res.BodyHash, nil
	}
}

// ended notes the stored end of a call.
func ended(call *llmq.Call, res llmq.Result, dead bool) {
	call.Attempts = max(call.Attempts, res.Meta().Attempts)
	if res.Err == nil {
		call.State, call.Reply = llmq.StateDone, res.Reply
		return
	}
	res.Err.Final = true
	call.Err = res.Err
	switch {
	case dead:
		call.State = llmq.StateDead
	case res.Err.Code == llmq.CodeCancelled:
		call.State = llmq.StateCancelled
	case res.Err.Code == llmq.CodeExpired:
		call.State = llmq.StateExpired
	default:
		call.State = llmq.StateFailed
	}
}

// place notes where a call stands that has no stored end.
func place(call *llmq.Call, st claims.Standing, now time.Time) error {
	over := func(s llmq.State, code llmq.Code, format string, args ...any) {
		call.State, call.Err = s, llmq.Errorf(code, format, args...)
		call.Err.Final, call.Err.Meta = true, llmq.Meta{RequestID: call.ID, Attempts: st.Attempts}
	}
	switch {
	case !st.Known:
		return llmq.Errorf(llmq.CodeCallNotFound, "no call %q is known", call.ID).At("id")
	case st.Cancelled: // told to whoever runs it, or ended so long ago
		over(llmq.StateCancelled, llmq.CodeCancelled, "the request was cancelled")
	case st.Done:
		return llmq.Errorf(llmq.CodeResultExpired, "the request %s has ended and its result is no longer stored", call.ID)
	case st.LeaseEnds.After(now):
		call.State = llmq.StateRunning
	case !st.Deadline.IsZero() && now.After(st.Deadline.Add(grace)):
		why := unheard(call.ID, st.Begun)
		over(llmq.StateExpired, why.Code, "%s", why.Message)
		if st.Begun {
			call.State = llmq.StateFailed
		}
	default: // one whose worker has died waits for the next
		call.State = llmq.StateQueued
		if st.Next.After(now) {
			call.Next = st.Next
		}
	}
	return nil
}

// Wait is [Client.Find], but of a call that has not ended it waits for the end. When ctx ends first it returns where the call
// stands then.
func (c *Client) Wait(ctx context.Context, tenant, id string) (llmq.Call, error) {
	call, err := c.find(ctx, tenant, id)
	if err != nil || call.State.Over() {
		return call, orNil(err)
	}
	waiter, err := c.Hub.Subscribe(ctx, llmq.Request{Tenant: tenant, ID: id})
	if err != nil {
		if ctx.Err() != nil {
			return call, nil
		}
		return llmq.Call{}, lookupFailed(err)
	}
	defer waiter.Close() //nolint:contextcheck // a wait that has ended must still be undone
	waiting := ctx
	if !call.Deadline.IsZero() {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, call.Deadline.Add(2*grace)) // nothing comes later
		defer cancel()
	}
	// It may have ended before the subscription stood.
	if found, err := c.find(ctx, tenant, id); err != nil || found.State.Over() {
		return found, orNil(err)
	}
	if _, err := waiter.Result(waiting); err == nil || ctx.Err() == nil {
		return c.Find(ctx, tenant, id)
	}
	looking, stop := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer stop()
	if found, err := c.find(looking, tenant, id); err == nil {
		call = found
	}
	return call, nil
}

func orNil(err error) error {
	if err == nil {
		return nil
	}
	return lookupFailed(err)
}

// Withdraw is [Client.Cancel] of a call that is known, and returns where it stands then, without a reply: one that had ended for good is as
// it was. An id that is not known is [llmq.CodeCallNotFound] and leaves no trace.
func (c *Client) Withdraw(ctx context.Context, tenant, id string) (llmq.Call, error) {
	call, err := c.find(ctx, tenant, id)
	if err == nil && (!call.State.Over() || call.State == llmq.StateDead) {
		if _, err = c.Cancel(ctx, tenant, id); err == nil {
			call, err = c.find(ctx, tenant, id)
		}
	}
	call.Reply = nil
	return call, orNil(err)
}
