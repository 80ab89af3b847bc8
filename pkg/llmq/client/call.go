package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// Program is whose calls [Client.Chat] and its like are, and what holds for them. The zero value is for those who call
// [Client.Do] and [Client.Stream] alone, whose requests say all of it.
type Program struct {
	Tenant   string
	Timeouts map[llmq.Lane]Timeouts // one of each lane
	// HashID names a user or a session: no other form of them leaves the process (FEATURES E14). An empty id stays
	// empty.
	HashID func(id string) string
}

// Timeouts are a lane's deadlines, counted from a call's begin.
type Timeouts struct {
	Default time.Duration // when the call names none
	Max     time.Duration // the longest that a call may ask for
}

func (p Program) faults() []error {
	if p.Tenant == "" && p.Timeouts == nil && p.HashID == nil {
		return nil
	}
	var faults []error
	if err := llmq.CheckTenant(p.Tenant); err != nil {
		faults = append(faults, fmt.Errorf("client: Config.Program.Tenant: %w", err))
	}
	if p.HashID == nil {
		faults = append(faults, errors.New("client: Config.Program needs a HashID"))
	}
	for _, l := range llmq.Lanes() {
		if t := p.Timeouts[l]; t.Default <= 0 || t.Max < t.Default {
			faults = append(faults, fmt.Errorf("client: Config.Program.Timeouts[%s] must be positive and Max not below Default, is %s and %s", l, t.Default, t.Max))
		}
	}
	return faults
}

// Options steer one call (FEATURES A2). The zero value is a call that somebody waits for now.
type Options struct {
	Lane     llmq.Lane           // "" is [llmq.LaneRT]
	Fallback llmq.FallbackPolicy // "" is [llmq.FallbackChain]
	// Timeout is how long the call may take in all, its time in the queue too; 0 is its lane's. Deadline says the same
	// as a time; at most one of them may be given. A context that ends before shortens both: nothing goes on that
	// nobody waits for.
	Timeout  time.Duration
	Deadline time.Time
	// ID names the call: the same id never runs twice, but takes up the call that runs or has ended; with another body it
	// is [llmq.CodeIdempotencyMismatch]. "" is a new one.
	ID      string
	User    string // the end user, at most [llmq.MaxLabelBytes]; "" is that of [llmq.WithUser]
	Session string // the session, the same of [llmq.WithSession]
}

// Chat makes a chat completion: body is OpenAI's request, whose model is an alias, alias@target or a provider's own name, and
// the reply's body is the provider's answer, byte for byte. [Client.Do] says how it ends.
func (c *Client) Chat(ctx context.Context, body []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpChat, "", body, o)
}

// ChatStream is [Client.Chat] of a body that asks for a stream. [Client.Stream] says how it ends.
func (c *Client) ChatStream(ctx context.Context, body []byte, o Options) (llmq.Stream, error) {
	return c.callStream(ctx, llmq.OpChat, "", body, o)
}

// Embed makes embeddings: body is OpenAI's request.
func (c *Client) Embed(ctx context.Context, body []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpEmbeddings, "", body, o)
}

// Respond makes a call of OpenAI's Responses: body is its request, which keeps nothing at the provider.
func (c *Client) Respond(ctx context.Context, body []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpResponses, "", body, o)
}

// RespondStream is [Client.Respond] of a body that asks for a stream.
func (c *Client) RespondStream(ctx context.Context, body []byte, o Options) (llmq.Stream, error) {
	return c.callStream(ctx, llmq.OpResponses, "", body, o)
}

// Converse makes a call in Bedrock's dialect: body is Converse's request, which names no model.
func (c *Client) Converse(ctx context.Context, model string, body []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpConverse, model, body, o)
}

// ConverseStream is [Client.Converse] whose reply comes in frames of an event stream.
func (c *Client) ConverseStream(ctx context.Context, model string, body []byte, o Options) (llmq.Stream, error) {
	return c.callStream(ctx, llmq.OpConverseStream, model, body, o)
}

// InvokeModel makes a call whose body and reply are the model's own JSON.
func (c *Client) InvokeModel(ctx context.Context, model string, body []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpInvoke, model, body, o)
}

// InvokeModelStream is [Client.InvokeModel] whose reply comes in frames of an event stream.
func (c *Client) InvokeModelStream(ctx context.Context, model string, body []byte, o Options) (llmq.Stream, error) {
	return c.callStream(ctx, llmq.OpInvokeStream, model, body, o)
}

func (c *Client) call(ctx context.Context, op llmq.Op, model string, body []byte, o Options) (*llmq.Reply, error) {
	r, err := c.NewRequest(ctx, op, model, body, o)
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, r)
}

func (c *Client) callStream(ctx context.Context, op llmq.Op, model string, body []byte, o Options) (llmq.Stream, error) {
	r, err := c.NewRequest(ctx, op, model, body, o)
	if err != nil {
		return nil, err
	}
	return c.Stream(ctx, r)
}

// NewRequest makes a request of the program's for [Client.Do] or [Client.Stream], and refuses what can't work before
// anything is sent (FEATURES A3): an unknown model or target, the wrong wire, a deadline that its lane doesn't have, a body
// that is no JSON. On OpenAI's wire model is "", and the body names it. Every error is an [*llmq.Error].
func (c *Client) NewRequest(ctx context.Context, op llmq.Op, model string, body []byte, o Options) (llmq.Request, error) {
	r, err := c.newRequest(ctx, op, model, body, o)
	if err != nil {
		e := llmq.AsError(err)
		e.Meta.RequestID, e.Meta.Lane = o.ID, o.Lane
		return llmq.Request{}, e
	}
	return r, nil
}

func (c *Client) newRequest(ctx context.Context, op llmq.Op, model string, body []byte, o Options) (llmq.Request, error) {
	p := c.cfg.Program
	if p.Tenant == "" {
		return llmq.Request{}, llmq.Errorf(llmq.CodeConfiguration, "the client knows no tenant to call for: open it as a program's")
	}
	r := llmq.Request{ID: o.ID, Tenant: p.Tenant, Op: op, Body: body, Trace: tracing.FromContext(ctx), OneOff: o.ID == ""}
	if r.OneOff {
		r.ID = llmq.NewID()
	}
	var err error
	if r.Lane, err = op.ParseLane(string(o.Lane)); err != nil {
		return r, err
	}
	if r.Fallback, err = llmq.ParseFallback(string(o.Fallback)); err != nil {
		return r, err
	}
	if err := strictjson.Check(body, strictjson.For(op)); err != nil {
		return r, fmt.Errorf("check the body: %w", err)
	}
	if r.Stream, err = opbody.Stream(op, body); err != nil {
		return r, err
	}
	if op.Wire() == llmq.WireOpenAI {
		model = gjson.GetBytes(body, "model").String()
	}
	if r.Model, err = llmq.ParseModelRef(model); err != nil {
		return r, err
	}
	m, _, err := c.cfg.Catalogue.Resolve(r.Model, op.Wire())
	if err != nil {
		return r, err
	}
	bounds := p.Timeouts[r.Lane]
	bounds.Default = cmp.Or(c.Rules(ctx).Catalogue.Timeout(m.Alias, op, r.Lane), bounds.Default)
	if r.Deadline, err = deadline(ctx, o, r.Lane, bounds); err != nil {
		return r, err
	}
	if r.User, err = p.hash("user", o.User, llmq.UserFrom(ctx)); err != nil {
		return r, err
	}
	r.Session, err = p.hash("session", o.Session, llmq.SessionFrom(ctx))
	return r, err
}

// hash is what is kept of an end user or a session.
func (p Program) hash(field, said, inherited string) (string, error) {
	if said == "" {
		said = inherited
	}
	if len(said) > llmq.MaxLabelBytes {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "%s holds at most %d bytes, has %d", field, llmq.MaxLabelBytes, len(said)).At(field)
	}
	return p.HashID(said), nil
}

// deadline is when a call's answer is of no use any more, in whole milliseconds, as messages carry it.
func deadline(ctx context.Context, o Options, lane llmq.Lane, bounds Timeouts) (time.Time, error) {
	now := time.Now()
	end := now.Add(bounds.Default)
	switch {
	case o.Timeout != 0 && !o.Deadline.IsZero():
		return end, llmq.Errorf(llmq.CodeInvalidRequest, "timeout and deadline are both given; give one").At("deadline")
	case o.Timeout != 0:
		end = now.Add(o.Timeout)
	case !o.Deadline.IsZero():
		end = o.Deadline
	}
	switch {
	case !end.After(now):
		return end, llmq.Errorf(llmq.CodeInvalidRequest, "the deadline lies in the past").At("deadline")
	case end.Sub(now) > bounds.Max:
		return end, llmq.Errorf(llmq.CodeInvalidRequest, "the deadline may lie at most %s ahead on lane %s", bounds.Max, lane).At("deadline")
	}
	if waits, bounded := ctx.Deadline(); bounded && waits.Before(end) {
		end = waits
	}
	return time.UnixMilli(end.UnixMilli()), nil
}
