// Package client is the caller's side of llmq: it submits a request under its id,
// sends it to its queue, and waits for the result without polling.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// Config is what a client knows about the deployment it calls.
type Config struct {
	Names          queue.Names
	Catalogue      llmq.Catalogue
	InlineMaxBytes int // bodies up to this many bytes travel inside the message
	// CancelWithContext makes the end of a caller's wait by a cancelled context cancel its request, for everybody who
	// waits for it (FEATURES A5). It is for Go programs that call models. The door leaves it off: a connection that
	// is lost says nothing about what its caller wants.
	CancelWithContext bool
}

// bodies puts large bodies aside.
type bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
}

// Deps are the client's collaborators; all but Background are required.
type Deps struct {
	Valkey redis.UniversalClient
	Queue  queue.Queue
	// Background carries what nobody waits for at once, bg and bulk: a [queue.Batcher] in programs that
	// run on. Nil is Queue.
	Background queue.Queue
	Claims     *claims.Store
	Results    *results.Store
	Hub        *results.Hub
	Bodies     bodies
	Log        *slog.Logger
}

// Client calls models through the queue. It is safe for concurrent use.
type Client struct {
	cfg Config
	Deps
}

// New checks its input and lists every fault at once.
func New(cfg Config, d Deps) (*Client, error) {
	var faults []error
	for _, need := range []struct {
		ok   bool
		what string
	}{
		{cfg.Names.Prefix != "", "Config.Names"},
		{cfg.InlineMaxBytes > 0, "a positive Config.InlineMaxBytes"},
		{d.Valkey != nil, "Deps.Valkey"},
		{d.Queue != nil, "Deps.Queue"},
		{d.Claims != nil, "Deps.Claims"},
		{d.Results != nil, "Deps.Results"},
		{d.Hub != nil, "Deps.Hub"},
		{d.Bodies != nil, "Deps.Bodies"},
		{d.Log != nil, "Deps.Log"},
	} {
		if !need.ok {
			faults = append(faults, fmt.Errorf("client: %s is required", need.what))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if d.Background == nil {
		d.Background = d.Queue
	}
	return &Client{cfg: cfg, Deps: d}, nil
}

// Do sends a request and waits for its reply. A request whose id is known is not sent
// again: Do takes up the one that runs, or returns its stored result.
//
// It waits until ctx ends, and not much longer than the request's deadline, or than that
// of a known request, whichever is first: no result comes later. Every error
// is an [*llmq.Error]. When the wait ends first it is [llmq.CodeTimeout]; the
// request runs on until its own deadline, and the same id takes it up again.
func (c *Client) Do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	ctx, cancel := context.WithDeadline(ctx, r.Deadline.Add(grace))
	defer cancel()
	reply, err := c.do(ctx, r)
	if err == nil {
		return reply, nil
	}
	if c.cfg.CancelWithContext && errors.Is(ctx.Err(), context.Canceled) && cutOff(err) {
		err = c.giveUp(ctx, r, err)
	}
	if u, ok := errors.AsType[unsent](err); ok {
		err = u.error // nothing runs, and another try may go well
	} else if ctx.Err() != nil && cutOff(err) {
		err = llmq.Errorf(llmq.CodeTimeout, "no reply came in time; request %s goes on until its deadline, and the same Idempotency-Key takes it up again", r.ID).Because(err)
	}
	e := llmq.AsError(err)
	if e.Meta.RequestID == "" {
		e.Meta.RequestID, e.Meta.Lane = r.ID, r.Lane
	}
	return nil, e
}

// unsent is why a request was not sent, as far as this caller knows of it.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// cutOff reports whether err may come of a context that ended: a verdict of any other
// kind was reached before.
func cutOff(err error) bool {
	e, ok := errors.AsType[*llmq.Error](err)
	return !ok || e.Code == llmq.CodeQueueUnavailable || errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled)
}

// grace is how long past its deadline a request's own verdict on it is waited for.
const grace = 2 * time.Second

// check refuses what every worker would: its message would end in the dead-letter queue,
// and its caller wait in vain.
func check(r llmq.Request) error {
	if err := llmq.CheckID("id", r.ID); err != nil {
		return err
	}
	if err := llmq.CheckTenant(r.Tenant); err != nil {
		return err
	}
	if !slices.Contains(llmq.Lanes(), r.Lane) {
		return llmq.Errorf(llmq.CodeInvalidRequest, "lane %q is unknown; use rt, bg or bulk", llmq.Clip(string(r.Lane), 40)).At("lane")
	}
	if r.Deadline.IsZero() {
		return llmq.Errorf(llmq.CodeInvalidRequest, "the request has no deadline").At("deadline")
	}
	if len(r.Body) == 0 {
		return llmq.Errorf(llmq.CodeInvalidRequest, "the request has no body").At("body")
	}
	if r.Op.Wire() == llmq.WireOpenAI && gjson.GetBytes(r.Body, "stream").Type == gjson.True {
		return llmq.Errorf(llmq.CodeUnsupported, "stream: true is not served by this release; leave it out or set it to false").At("stream")
	}
	return nil
}

func (c *Client) do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	model, _, err := c.cfg.Catalogue.Resolve(r.Model, r.Op.Wire())
	if err != nil {
		return nil, err
	}
	hash := claims.BodyHash(r)
	sub, err := c.submit(ctx, r, hash)
	if err != nil {
		return nil, err
	}
	stored, err := c.await(ctx, r, model, sub)
	if err != nil {
		return nil, err
	}
	res, err := c.Results.Decode(ctx, r, stored)
	if err != nil {
		return nil, err
	}
	if res.BodyHash != "" && res.BodyHash != hash {
		// What came over a queue has no submission record that could tell before the send.
		return nil, llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id %q was used before for another body, model or operation", r.ID)
	}
	if res.Err != nil {
		if sub.Known {
			res.Err.Final = true
			res.Err.Message += "; this is the stored end of the id, a new try needs a new one"
		}
		return nil, res.Err
	}
	return res.Reply, nil
}

// await sends the request where it is not known to be sent, and waits for its result's
// stored form.
func (c *Client) await(ctx context.Context, r llmq.Request, m llmq.Model, sub claims.Submission) ([]byte, error) {
	end := sub.Deadline.Add(grace)
	if sub.Sent && !time.Now().Before(end) {
		return c.ended(ctx, r, sub) // nothing is left to wait for
	}
	waiter, err := c.Hub.Subscribe(ctx, r)
	if err != nil {
		return nil, err
	}
	defer waiter.Close() //nolint:contextcheck // a wait that has ended must still be undone
	if !sub.Sent {
		if err := c.send(ctx, r, m); err != nil {
			return nil, err
		}
	}
	stored, err := c.look(ctx, r, sub)
	if errors.Is(err, llmq.CodeQueueUnavailable) {
		// The message is on its queue: an error now would make the caller send, and pay for,
		// another. The waiter reads the result once the store answers again.
		c.Log.Warn("result not looked for; waiting for its wake", "request_id", r.ID, "error", err)
	} else if err != nil || stored != nil {
		return stored, err
	}
	if !sub.Sent || !sub.Deadline.Before(r.Deadline) {
		return waiter.Result(ctx)
	}
	// What runs ends by the deadline that it was sent with, however long this caller would wait.
	waiting, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	stored, err = waiter.Result(waiting)
	if err == nil || ctx.Err() != nil {
		return stored, err
	}
	return c.ended(ctx, r, sub)
}

// ended looks for the result of a request whose deadline has passed.
func (c *Client) ended(ctx context.Context, r llmq.Request, sub claims.Submission) ([]byte, error) {
	stored, err := c.look(ctx, r, sub)
	if err == nil && stored == nil {
		err = llmq.Errorf(llmq.CodeExpired, "the request %s ended without a stored result by its deadline; send it again under a new id", r.ID)
	}
	return stored, err
}

func (c *Client) submit(ctx context.Context, r llmq.Request, hash string) (claims.Submission, error) {
	var b luascript.Batch
	submitted := c.Claims.Submit(&b, r, hash)
	if err := b.Run(ctx, c.Valkey); err != nil {
		return claims.Submission{}, err
	}
	return submitted()
}

// send puts the request on its queue. A send that failed may have reached it all the
// same; sent again under the same id it runs once, since the claim is one.
func (c *Client) send(ctx context.Context, r llmq.Request, m llmq.Model) error {
	env := llmq.Envelope{
		ID: r.ID, Op: r.Op, Model: r.Model.String(), Lane: r.Lane, Fallback: r.Fallback, Deadline: r.Deadline,
		Tenant: r.Tenant, KeyID: r.KeyID, User: r.User, Session: r.Session, Trace: r.Trace, Params: r.Body,
	}
	if len(r.Body) > c.cfg.InlineMaxBytes {
		ref, err := c.Bodies.Put(ctx, "off/"+llmq.TenantHash(r.Tenant)+"/"+string(r.RID()), r.Body)
		if err != nil {
			return unsent{err}
		}
		env.Params, env.Ref = nil, &ref
	}
	body, err := env.Encode()
	if err != nil {
		return err
	}
	carrier := c.Background
	if r.Lane == llmq.LaneRT {
		carrier = c.Queue
	}
	// Half of what is left is for the run: a message that comes too late for it is paid for in vain.
	ctx, cancel := context.WithTimeout(ctx, time.Until(r.Deadline)/2)
	defer cancel()
	err = carrier.Send(ctx, c.cfg.Names.Model(m.Alias, m.Queue(r.Lane)), queue.Outgoing{
		Body: body, Group: llmq.TenantHash(r.Tenant),
		Attributes: map[string]string{"llmq_v": "1", "llmq_op": string(r.Op), "llmq_lane": string(r.Lane), "llmq_rid": string(r.RID())},
	})
	if errors.Is(err, queue.ErrNotSent) {
		return unsent{err}
	}
	return err
}

// look reads the result once after the send, in case it came before the subscription
// stood, and notes the send. A request may have ended long ago: a claim can outlive its
// submission record, and one that came over a queue never had any.
func (c *Client) look(ctx context.Context, r llmq.Request, sub claims.Submission) ([]byte, error) {
	var b luascript.Batch
	var marked luascript.Pending[bool]
	if !sub.Sent {
		marked = c.Claims.MarkSent(&b, r)
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
	if err != nil || body != nil {
		return body, err
	}
	ended, err := done()
	if err == nil && ended {
		err = llmq.Errorf(llmq.CodeResultExpired, "the request %s has ended and its result is no longer stored", r.ID)
	}
	return nil, err
}
