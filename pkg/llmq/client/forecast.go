package client

import (
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// foresee asks what is forecast of a model's calls, and answers with r's expected wait, nil where nobody knows, or with why r
// is refused. A forecast that can't be read is none.
func (c *Client) foresee(b *luascript.Batch, r llmq.Request, m llmq.Model) luascript.Pending[*time.Duration] {
	if c.Forecast == nil {
		return func() (*time.Duration, error) { return nil, nil }
	}
	look := c.Forecast.Look(b, m.Alias)
	return func() (*time.Duration, error) {
		outlook, err := look()
		if err != nil {
			c.Log.Warn("forecast not read", "model", m.Alias, "error", err)
			return nil, nil
		}
		lane, now := m.Queue(r.Lane), time.Now()
		start, known := outlook.Start(lane, now)
		if !known {
			return nil, nil
		}
		left := r.Deadline.Sub(now)
		after, refused := forecast.Refuses(lane, start, left)
		if !refused {
			return &start, nil
		}
		e := llmq.Errorf(llmq.CodeNoCapacity, "the call would start in about %s, and its deadline is in %s; it was not queued. Give it more time, or send it again later",
			start.Round(time.Second), left.Round(time.Second)).After(after)
		e.Meta = llmq.Meta{RequestID: r.ID, Lane: r.Lane, Eta: &start}
		return nil, unsent{e}
	}
}

// markSent notes that r's message is on its queue, for repeats and for what is forecast of the calls behind it.
func (c *Client) markSent(b *luascript.Batch, r llmq.Request) luascript.Pending[bool] {
	if c.Forecast != nil {
		if m, _, err := c.cfg.Catalogue.Resolve(r.Model, r.Op.Wire()); err == nil {
			c.Forecast.Sent(b, m.Alias, m.Queue(r.Lane), time.Now())
		}
	}
	return c.Claims.MarkSent(b, r)
}

// foretell adds what was forecast to how a request ended.
func foretell(res llmq.Result, eta *time.Duration) llmq.Result {
	switch {
	case eta == nil:
	case res.Err != nil:
		res.Err.Meta.Eta = eta
	case res.Reply != nil:
		res.Reply.Meta.Eta = eta
	}
	return res
}

// foretold adds it to an error that tells nothing of an end.
func foretold(err error, eta *time.Duration) error {
	if err == nil || eta == nil {
		return err
	}
	return expected{err, eta}
}

type expected struct {
	error
	eta *time.Duration
}

func (e expected) Unwrap() error { return e.error }

// etaOf is what was forecast of the call that err is of.
func etaOf(err error) *time.Duration {
	e, _ := errors.AsType[expected](err)
	return e.eta
}
