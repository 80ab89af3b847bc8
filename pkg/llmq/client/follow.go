package client

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Follow reads a tenant's call from byte at of its reply on, while it comes and after its end; a call that was not asked to be
// passed on while it comes gives nothing but its end. Where a reader has come is told by the bytes that [llmq.Stream]
// gave, so that another can go on from there: an offset that nothing was given up to is [llmq.CodeInvalidRequest].
//
// What is known at once is an error of Follow, as [Client.Find] has them, what comes later one of the stream's.
func (c *Client) Follow(ctx context.Context, tenant, id string, at int64) (llmq.Stream, error) {
	s, err := c.follow(ctx, tenant, id, at)
	if err != nil {
		return nil, lookupFailed(err)
	}
	return s, nil
}

func (c *Client) follow(ctx context.Context, tenant, id string, at int64) (*stream, error) {
	if err := errors.Join(llmq.CheckTenant(tenant), llmq.CheckID("id", id)); err != nil {
		return nil, err
	}
	r := llmq.Request{Tenant: tenant, ID: id}
	var b luascript.Batch
	stands, looked := c.Claims.Standing(&b, tenant, id), c.Results.Look(&b, r)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return nil, err
	}
	st, err := stands()
	if err != nil {
		return nil, err
	}
	stored, err := looked()
	if err != nil {
		return nil, err
	}
	most := st.Streamed
	if stored == nil {
		call := llmq.Call{ID: id}
		if err := place(&call, st, time.Now()); err != nil {
			return nil, err
		}
		if call.Err != nil {
			return nil, call.Err
		}
	} else if most, err = size(stored, r, most); err != nil {
		return nil, err
	}
	if at < 0 || at > most {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "the stream of %s has not come to offset %d", id, at)
	}
	r.Deadline = st.Deadline
	s := &stream{client: c, ctx: ctx, r: r, known: true, end: time.Now().Add(claims.Keep), owner: time.Now().Add(lookForOwner)}
	if !st.Deadline.IsZero() {
		s.end = st.Deadline.Add(grace)
	}
	if s.follower, err = c.Hub.Follow(ctx, r, at); err != nil {
		return nil, err
	}
	return s, nil
}

// size is how many bytes of a reply can have been given: the whole of it, where it has ended in one, or else what was passed on.
func size(stored []byte, r llmq.Request, passed int64) (int64, error) {
	res, ref, err := llmq.DecodeResult(stored, r.RID(), r.Tenant)
	switch {
	case err != nil:
		return 0, llmq.Errorf(llmq.CodeInternal, "the stored result can't be read").Because(err)
	case res.Reply == nil || !res.Reply.Stream:
		return passed, nil
	case ref != nil:
		return max(passed, ref.Bytes), nil
	}
	return max(passed, int64(len(res.Reply.Body))), nil
}
