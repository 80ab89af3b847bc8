package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

const (
	// lookForOwner is how soon after its begin, and after each doubt, the owner of a stream is looked for. While it
	// lives, it is looked for when its lease would end: so its death is noticed when nobody else may go on.
	lookForOwner = 10 * time.Second
	// lapseSlack is what is added to a lease's end, so that it has passed when the store is asked.
	lapseSlack = 20 * time.Millisecond
	// readAgain is the pause after a read that the state store did not answer.
	readAgain = 500 * time.Millisecond
)

// Stream sends a request whose reply is wanted while it comes, and returns once it is under way. A request whose id is known
// is not sent again: its reply is read from its begin, whether it still comes or has ended.
//
// What is known at once is an error of Stream, an [*llmq.Error], what comes later one of the stream's. The stream waits
// no longer than ctx does, and not much longer than the request's deadline. A JSON call under the id of a stream has
// another body, or another operation, and so does a stream under the id of a JSON call: both are
// [llmq.CodeIdempotencyMismatch].
func (c *Client) Stream(ctx context.Context, r llmq.Request) (llmq.Stream, error) {
	began := time.Now()
	s, err := c.stream(ctx, r)
	if err != nil {
		failure := c.explain(ctx, r, err)
		c.traceAnswered(ctx, r, began, failure.Meta, failure)
		return nil, failure
	}
	s.began = began
	return s, nil
}

func (c *Client) stream(ctx context.Context, r llmq.Request) (*stream, error) {
	if err := c.check(r); err != nil {
		return nil, err
	}
	if !r.Stream {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "the request asks for no stream").At("stream")
	}
	model, _, err := c.cfg.Catalogue.Resolve(r.Model, r.Op.Wire())
	if err != nil {
		return nil, err
	}
	s := &stream{client: c, ctx: ctx, r: r, hash: claims.BodyHash(r), end: r.Deadline.Add(grace), owner: time.Now().Add(lookForOwner)}
	var sub submitted
	ours := false // an earlier try has recorded it
	err = c.outlast(ctx, r, func() error {
		if sub, err = c.submit(ctx, r, model, s.hash); err != nil {
			return err
		}
		sub.Known = sub.Known && !ours
		ours = !sub.Known
		if s.follower, err = c.Hub.Follow(ctx, r, 0); err != nil && !sub.Sent {
			err = storeLost{err}
		}
		return err
	}, func(lost error) error { return lost })
	if err != nil {
		return nil, err
	}
	s.known, s.eta = sub.Known, sub.eta
	if sub.Sent && sub.Deadline.Before(r.Deadline) {
		s.end = sub.Deadline.Add(grace) // what runs ends by the deadline that it was sent with
	}
	if !sub.Sent {
		if err := c.send(ctx, r, model, 0); err != nil {
			s.follower.Close() //nolint:contextcheck // a wait that has ended must still be undone
			return nil, err
		}
		c.noteSent(ctx, r)
	}
	return s, nil
}

// noteSent notes that the message is on its queue: a repeat then sends no other.
func (c *Client) noteSent(ctx context.Context, r llmq.Request) {
	var b luascript.Batch
	marked := c.markSent(&b, r)
	err := b.Run(ctx, c.Valkey)
	if err == nil {
		_, err = marked()
	}
	if err != nil {
		c.Log.Warn("send not noted; a repeat sends again", "request_id", r.ID, "error", err)
	}
}

// stream is one reply on its way to its reader.
type stream struct {
	client   *Client
	ctx      context.Context // of the call: it bounds all reading
	r        llmq.Request
	hash     string // "" is not known
	known    bool   // the id was submitted before
	eta      *time.Duration
	follower *results.Follower
	end      time.Time // nothing comes later
	owner    time.Time // when its owner is to be looked for
	over     error     // what Next returns from now on; nil while there is more
	began    time.Time
	meta     llmq.Meta // of the stored end, once that was read
	ended    bool      // it is known to have ended, and its end is to be read
	closed   bool
}

var _ llmq.Stream = (*stream)(nil)

// Eta is how long the call was expected to wait for its start; nil where nobody knows.
func (s *stream) Eta() *time.Duration { return s.eta }

// Next is that of [llmq.Stream].
func (s *stream) Next(ctx context.Context) ([]byte, error) {
	for s.over == nil {
		if err := errors.Join(s.ctx.Err(), ctx.Err()); err != nil {
			return nil, err
		}
		piece, err := s.read(ctx)
		if len(piece) > 0 {
			return piece, nil
		}
		if err != nil {
			s.over = err
			break
		}
		if s.over == nil {
			s.wait(ctx)
		}
	}
	return nil, s.over
}

// read looks once for what there is: a piece, or the end, which it notes.
func (s *stream) read(ctx context.Context) ([]byte, error) {
	now := time.Now()
	news, err := s.follower.Read(ctx)
	switch {
	case err != nil && ctx.Err() == nil && now.Before(s.end):
		s.client.Log.Debug("stream not read", "request_id", s.r.ID, "error", err)
		rest(ctx, readAgain)
		return nil, nil // it is on its way all the same, and read again
	case err != nil && ctx.Err() != nil:
		return nil, nil //nolint:nilerr // Next tells of the context's end
	case news.Piece != nil:
		s.owner = later(s.owner, now.Add(lookForOwner))
		return news.Piece, nil
	case news.Stored != nil:
		return s.finish(ctx, news.Stored)
	case !now.Before(s.end):
		return nil, s.fail(s.missing(ctx))
	case !now.Before(s.owner):
		return nil, s.look(ctx)
	}
	return nil, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// finish reads the stored end, and gives what of the reply its reader does not have.
func (s *stream) finish(ctx context.Context, stored []byte) ([]byte, error) {
	res, err := s.client.Results.DecodeFrom(ctx, s.r, stored, s.follower.At())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil //nolint:nilerr // Next tells of the context's end
	case err != nil:
		return nil, s.fail(err)
	case res.BodyHash != "" && s.hash != "" && res.BodyHash != s.hash:
		// What came over a queue has no submission record that could tell before the send.
		return nil, s.fail(llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id %q was used before for another body, model or operation", s.r.ID))
	case res.Err != nil:
		s.meta = res.Err.Meta
		if s.known {
			res.Err.Final = true
			res.Err.Message += "; this is the stored end of the id, a new try needs a new one"
		}
		return nil, s.fail(res.Err)
	}
	s.over, s.meta = io.EOF, res.Reply.Meta
	if !res.Reply.Stream {
		return nil, nil // it was followed by its id, and has no events
	}
	return res.Reply.Body, nil
}

// missing is why nothing came by the time at which there must have been an end.
func (s *stream) missing(ctx context.Context) error {
	var b luascript.Batch
	done := s.client.Claims.Done(&b, s.r)
	err := b.Run(ctx, s.client.Valkey)
	if err == nil {
		var ended bool
		if ended, err = done(); err == nil && ended {
			return llmq.Errorf(llmq.CodeResultExpired, "the request %s has ended and its result is no longer stored", s.r.ID)
		}
	}
	if err != nil {
		return err
	}
	return s.client.unanswered(ctx, s.r, s.known)
}

// look ends the stream where its owner has died in its midst, and notes when to look again.
func (s *stream) look(ctx context.Context) error {
	s.owner = time.Now().Add(lookForOwner)
	why := claims.StreamBroken()
	why.Meta = llmq.Meta{RequestID: s.r.ID, Model: s.r.Model.Alias, Lane: s.r.Lane}
	stored, err := llmq.EncodeResult(llmq.Result{RID: s.r.RID(), Tenant: s.r.Tenant, BodyHash: s.hash, Err: why}, nil)
	if err != nil {
		return s.fail(err)
	}
	var b luascript.Batch
	breaks := s.client.Claims.Break(&b, s.r, stored)
	if b.Run(ctx, s.client.Valkey) != nil {
		return nil //nolint:nilerr // the next look tells
	}
	got, err := breaks()
	switch {
	case err != nil:
		s.client.Log.Warn("owner of a stream not looked for", "request_id", s.r.ID, "error", err)
	case got.State == claims.Alive:
		s.owner = time.Now().Add(got.Wait + lapseSlack)
	case got.State == claims.OverBefore && s.ended:
		return s.fail(s.missing(ctx)) // and the read in between found nothing
	case got.State == claims.OverBefore:
		s.ended, s.owner = true, time.Now() // what there is of it is read next
	case got.State == claims.Broken:
		s.owner = time.Now()
		s.client.Log.Warn("stream_broken", "request_id", s.r.ID)
	}
	return nil
}

// wait returns when there may be something to read, or something to look for.
func (s *stream) wait(ctx context.Context) {
	until := s.owner
	if s.end.Before(until) {
		until = s.end
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel) //nolint:contextcheck // a stream has two: its call's, and that of one read
	defer stop()
	_ = s.follower.Wait(ctx) // why it returned shows in what is read next
}

// fail is the end of the stream with an error.
func (s *stream) fail(err error) error { return s.client.explain(s.ctx, s.r, err) }

// Close is that of [llmq.Stream].
func (s *stream) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.follower.Close()
	s.traceEnd()
	if s.over == nil && s.client.cfg.CancelWithContext && errors.Is(s.ctx.Err(), context.Canceled) {
		_ = s.client.giveUp(s.ctx, s.r, nil) // it says in the log what it can't do
	}
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
