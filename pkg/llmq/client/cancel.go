package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Cancelled is what a cancellation has done.
type Cancelled struct {
	// Over means that the request had ended otherwise before; nothing is changed.
	Over bool
	// Running means that a worker runs it and has been told to stop. Its result will say that it was
	// cancelled, whatever its provider still answers.
	Running bool
	// Known means that it was submitted or taken before. One that is not is refused if it comes later, since
	// its message may be under way.
	Known bool
}

// Cancel ends a tenant's request for everybody who waits for it: their error is [llmq.CodeCancelled]. One
// that is queued is never run. One that runs is stopped, and its slot given back, a few round trips later.
// A repeat changes nothing more. Every error is an [*llmq.Error].
func (c *Client) Cancel(ctx context.Context, tenant, id string) (Cancelled, error) {
	if err := llmq.CheckTenant(tenant); err != nil {
		return Cancelled{}, err
	}
	if err := llmq.CheckID("id", id); err != nil {
		return Cancelled{}, err
	}
	why := llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")
	why.Meta = llmq.Meta{RequestID: id}
	stored, err := llmq.EncodeResult(llmq.Result{RID: llmq.NewRID(tenant, id), Tenant: tenant, Err: why}, nil)
	if err != nil {
		return Cancelled{}, llmq.AsError(err)
	}
	var b luascript.Batch
	cancels := c.Claims.Cancel(&b, tenant, id, stored)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return Cancelled{}, err
	}
	got, err := cancels()
	if err != nil {
		return Cancelled{}, err
	}
	return Cancelled{Over: got.State == claims.CancelLate, Running: got.State == claims.CancelTold, Known: got.Known}, nil
}

// giveUpWithin bounds the cancellation that a cancelled context asks for: its caller wants to go.
const giveUpWithin = 2 * time.Second

// giveUp cancels the request of a caller who has cancelled its context. Where that can't be done, why stands: the
// request runs on until its deadline, or until a store that is lost is back and hears of it.
func (c *Client) giveUp(ctx context.Context, r llmq.Request, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
	defer cancel()
	got, err := c.Cancel(ctx, r.Tenant, r.ID)
	switch {
	case errors.Is(err, llmq.CodeQueueUnavailable):
		c.Log.Warn("not cancelled yet", "request_id", r.ID, "error", err)
		c.replays.add(replay{r.Tenant, r.ID, r.Deadline})
		return why
	case err != nil:
		c.Log.Warn("not cancelled", "request_id", r.ID, "error", err)
		return why
	case got.Over:
		return why // it has ended, and the same id gives its result
	}
	return llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")
}
