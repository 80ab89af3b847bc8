// Package client is the caller's side of llmq: it submits a request under its id,
// sends it to its queue, and waits for the result without polling.
//
// A Go program gets its client from package wiring, by Open, and calls models by [Client.Chat], [Client.Embed],
// [Client.Converse] and their streams. Every error is an [*llmq.Error]: errors.Is tells its code, and its Meta what a
// reply's tells. Who cancels the context of a call cancels the call (FEATURES A5).
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// Config is what a client knows about the deployment it calls.
type Config struct {
	Names          queue.Names
	Catalogue      llmq.Catalogue
	InlineMaxBytes int // bodies up to this many bytes travel inside the message
	Program        Program
	// CancelWithContext makes the end of a caller's wait by a cancelled context cancel its request, for everybody who
	// waits for it (FEATURES A5). It is for Go programs that call models. The door leaves it off: a connection that
	// is lost says nothing about what its caller wants.
	CancelWithContext bool

	// StoreWait is how long the state store may fail before a call that was not sent yet is run without it (FEATURES
	// D11), or fails. 0: it fails at once.
	StoreWait time.Duration
	// OutlastStore makes such a call that can't be run without the store wait on for it, until the call's deadline, in place of
	// failing (FEATURES D14). It is for programs that run on; a door's function is paid for meanwhile.
	OutlastStore bool

	// The rest is for calls that are run here; it needs Deps.Direct.

	// SilentSends is how many sends of a model's calls may get no answer within a minute before its calls are
	// run here for DirectFor; a send that is refused counts for all of them (FEATURES D10).
	SilentSends int
	DirectFor   time.Duration
	// SendTimeout is after how long Deps.Queue gives a send up. One that ended much later tells of this process, which did not run
	// meanwhile, and not of the queue. 0 is unknown.
	SendTimeout time.Duration
	// Callers is how many processes as this one may run at once, each with a call: what is known of a target's limit is
	// shared among them while nobody counts. It is a door's. 0: nothing is run without the state store, but as Caller says.
	Callers int
	// Caller names this process among the programs that share what bounds a target while nobody counts (FEATURES C9); no other
	// has its name. It needs Deps.Capacity. "": it is none of them.
	Caller string
}

// bodies puts large bodies aside.
type bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
}

// Deps are the client's collaborators. Those up to Log are required, but for Background.
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

	// Forecast tells how long a queued call will wait for its start, and has bg and bulk calls refused that can't start in
	// time (FEATURES A16). Nil: nothing is forecast.
	Forecast *forecast.Store

	// Direct makes what runs calls here when they can't be queued. It is asked at the first such call and may be asked again. Nil:
	// there is none, and they fail.
	Direct   func() (Runner, error)
	Space    keys.Space          // with Direct: the names that its processes share
	Capacity *capacity.Gate      // with Direct: tells of limits while it can. Nil: they are as configured
	Metrics  *telemetry.Recorder // nil: nothing is counted
	Store    *telemetry.Store    // nil: nobody knows for how long the state store is lost
	Traces   *tracing.Tracer     // nil: nothing is traced, and a trace that is given goes on all the same

	// Rules are those that hold now; the answer may take a look at the state store. Nil: all is queued, and Config.Catalogue
	// holds for good.
	Rules func(ctx context.Context) Rules
}

// Rules are what may change while a client runs. The models and their targets stay the same.
type Rules struct {
	Catalogue llmq.Catalogue
	Routing   routing.Rules
}

// Client calls models through the queue. It is safe for concurrent use.
type Client struct {
	cfg Config
	Deps
	failover *failover     // nil without Direct
	limits   *limits       // nil without Direct
	callers  *callers      // nil but for a program
	alone    chan struct{} // capacity 1: a token for whoever runs without the state store at a door
	replays  *replays      // cancellations that are to be said again
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
	faults = append(faults, cfg.Program.faults()...)
	if d.Direct != nil && (cfg.SilentSends < 1 || cfg.DirectFor <= 0 || cfg.StoreWait < 0 || cfg.Callers < 0) {
		faults = append(faults, errors.New("client: with Deps.Direct, positive Config.SilentSends and DirectFor are required, and StoreWait and Callers not below 0"))
	}
	if cfg.Caller != "" && (d.Direct == nil || d.Capacity == nil || cfg.Callers > 0) {
		faults = append(faults, errors.New("client: with Config.Caller, Deps.Direct and Capacity are required and Config.Callers is 0"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if d.Background == nil {
		d.Background = d.Queue
	}
	if d.Rules == nil {
		fixed := Rules{Catalogue: cfg.Catalogue}
		d.Rules = func(context.Context) Rules { return fixed }
	}
	c := &Client{cfg: cfg, Deps: d, alone: make(chan struct{}, 1)}
	c.replays = newReplays(func(ctx context.Context, tenant, id string) error {
		_, err := c.Cancel(ctx, tenant, id)
		return err
	})
	if d.Direct != nil {
		c.failover = &failover{
			valkey: d.Valkey, keys: d.Space, silent: cfg.SilentSends, lasts: cfg.DirectFor, bound: cfg.SendTimeout, log: d.Log, metrics: d.Metrics, models: map[string]*outage{},
		}
		c.limits = &limits{gate: d.Capacity, of: uncounted, asked: map[string]time.Time{}, heard: map[string]capacity.Learned{}}
	}
	if cfg.Caller != "" {
		c.limits.of = func(llmq.Target) bool { return true }
		c.callers = &callers{valkey: d.Valkey, gate: d.Capacity, name: cfg.Caller, limits: c.limits, log: d.Log, flying: map[string]*flight{}, quit: make(chan struct{})}
	}
	return c, nil
}

// Close ends what the client does by itself: it says that it lives, where it is one of the callers that may run calls without the state store,
// and says cancellations again that a lost one did not hear. Those that are left are forgotten. No call may be under way.
func (c *Client) Close() {
	c.replays.close()
	if c.callers != nil {
		c.callers.close()
	}
}

// Do sends a request and waits for its reply. A request whose id is known is not sent
// again: Do takes up the one that runs, or returns its stored result.
//
// It waits until ctx ends, and not much longer than the request's deadline, or than that
// of a known request, whichever is first: no result comes later. Every error
// is an [*llmq.Error]. When ctx ends first it is [llmq.CodeTimeout]; the
// request runs on until its own deadline, and the same id takes it up again. Past that
// deadline it is the stored end; where there is none, [llmq.CodeTimeout] if somebody had begun it, else [llmq.CodeExpired].
func (c *Client) Do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	ctx, cancel := context.WithDeadline(ctx, r.Deadline.Add(grace))
	defer cancel()
	began := time.Now()
	reply, err := c.do(ctx, r)
	if err == nil {
		c.traceAnswered(ctx, r, began, reply.Meta, nil)
		return reply, nil
	}
	if c.cfg.CancelWithContext && errors.Is(ctx.Err(), context.Canceled) && cutOff(err) {
		err = c.giveUp(ctx, r, err)
	}
	failure := c.explain(ctx, r, err)
	c.traceAnswered(ctx, r, began, failure.Meta, failure)
	return nil, failure
}

// explain makes an error one for the caller.
func (c *Client) explain(ctx context.Context, r llmq.Request, err error) *llmq.Error {
	if u, ok := errors.AsType[unsent](err); ok {
		err = u.error // nothing runs, and another try may go well
	} else if ctx.Err() != nil && cutOff(err) {
		err = cutShort(r, err)
	}
	e := llmq.AsError(err)
	if e.Meta.Eta == nil {
		e.Meta.Eta = etaOf(err)
	}
	if e.Code == llmq.CodeQueueUnavailable && e.RetryAfter == 0 {
		e.RetryAfter = retryDown
	}
	if e.Meta.RequestID == "" {
		e.Meta.RequestID, e.Meta.Lane = r.ID, r.Lane
	}
	return e
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

// cutShort is what a caller is told whose wait was cut off by err: whether its request goes on.
func cutShort(r llmq.Request, err error) error {
	if isLost(err) {
		return llmq.Errorf(llmq.CodeTimeout, "the wait ended before the request %s was sent; send it again", r.ID).Because(err)
	}
	if !time.Now().Before(r.Deadline) {
		return llmq.Errorf(llmq.CodeTimeout, "no reply came by the deadline of request %s, and how it ended can't be told for now; the same Idempotency-Key tells", r.ID).Because(err)
	}
	return llmq.Errorf(llmq.CodeTimeout, "no reply came in time; request %s goes on until its deadline, and the same Idempotency-Key takes it up again", r.ID).Because(err)
}

// grace is how long past its deadline a request's own verdict on it is waited for.
const grace = 2 * time.Second

// check refuses what every worker would: its message would end in the dead-letter queue,
// and its caller wait in vain.
func (c *Client) check(r llmq.Request) error {
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
	asks, err := opbody.Stream(r.Op, r.Body)
	if err != nil {
		return err
	}
	if asks != r.Stream {
		return llmq.Errorf(llmq.CodeInvalidRequest, "operation and body ask for a stream or for none, and the request says otherwise").At("stream")
	}
	if err := r.Op.CheckHeaders(r.Headers); err != nil {
		return err
	}
	if len(r.Headers) > 0 && c.cfg.Program.Tenant != "" {
		name := slices.Sorted(maps.Keys(r.Headers))[0]
		return llmq.Errorf(llmq.CodeUnsupported, "%s can't go with a program's own message; leave it out, or call the door over HTTPS", name).At(name)
	}
	return opbody.Check(r.Op, r.Body)
}

func (c *Client) do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	if err := c.check(r); err != nil {
		return nil, err
	}
	if r.Stream {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "the reply is wanted while it comes; call Stream").At("stream")
	}
	model, _, err := c.Rules(ctx).Catalogue.Resolve(r.Model, r.Op.Wire())
	if err != nil {
		return nil, err
	}
	hash := claims.BodyHash(r)
	sub, res, err := c.run(ctx, r, model, hash)
	if err != nil {
		return nil, err
	}
	if res.BodyHash != "" && res.BodyHash != hash {
		// The other body came over a queue, and no claim told of it yet when this one was recorded.
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
