package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// The door's part of the trace of one call at DEBUG, under the request's id; the rest is the engine's (FEATURES E8).

func (c *Client) traceSent(ctx context.Context, r llmq.Request, to queue.Name, took time.Duration, err error) {
	if !c.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	outcome := "ok"
	if err != nil {
		outcome = string(llmq.AsError(err).Code)
	}
	c.Log.LogAttrs(ctx, slog.LevelDebug, "call_sent", slog.String("request_id", r.ID), slog.String("lane", string(r.Lane)),
		slog.String("queue", string(to)), slog.String("outcome", outcome), slog.Int64("send_ms", took.Milliseconds()))
}

// traceAnswered tells what the caller is told; a wait that ended before the call is one of it.
func (c *Client) traceAnswered(ctx context.Context, r llmq.Request, began time.Time, meta llmq.Meta, failure *llmq.Error) {
	outcome := "ok"
	if failure != nil {
		outcome = string(failure.Code)
	}
	c.traceOutcome(ctx, r, began, meta, outcome)
}

// traceEnd tells how far a reader of a stream has come: to its end, or to where he left it.
func (s *stream) traceEnd() {
	switch failure, failed := errors.AsType[*llmq.Error](s.over); {
	case failed:
		s.client.traceAnswered(s.ctx, s.r, s.began, s.meta, failure)
	case s.over == nil:
		s.client.traceOutcome(s.ctx, s.r, s.began, s.meta, "left")
	default:
		s.client.traceAnswered(s.ctx, s.r, s.began, s.meta, nil)
	}
}

// traceOutcome is traceAnswered in words: of a call that was left, the state that it is in.
func (c *Client) traceOutcome(ctx context.Context, r llmq.Request, began time.Time, meta llmq.Meta, outcome string) {
	if !c.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.Log.LogAttrs(ctx, slog.LevelDebug, "call_answered", slog.String("request_id", r.ID), slog.String("lane", string(r.Lane)), slog.String("outcome", outcome),
		slog.Int("attempts", meta.Attempts), slog.String("worker", meta.Worker), slog.Int64("total_ms", time.Since(began).Milliseconds()))
}
