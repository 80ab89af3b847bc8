package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	space "github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// replier tells a producer how its request ended.
type replier interface {
	Reply(ctx context.Context, r llmq.Request, to queue.Reply) error
}

// Replies tell producers how their requests ended (FEATURES A13): the stored result, as it is stored, on a queue of theirs (but for
// [llmq.Carriable]) or in the data bucket. All fields are required.
type Replies struct {
	Valkey  redis.UniversalClient
	Space   space.Space
	Results *results.Store
	Queue   interface {
		Send(ctx context.Context, q queue.Name, m queue.Outgoing) error
	}
	Bodies interface {
		Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
	}
}

// AttrRequestID is the attribute of a reply that holds its request's id.
const AttrRequestID = "llmq_request_id"

// ReplyKey is where a reply lies in the data bucket. Its producer can tell it from its own request: the tenant's hash, the alias, the id's hash.
func ReplyKey(tenant, alias string, rid llmq.RID) string {
	return "res/" + llmq.TenantHash(tenant) + "/reply-" + alias + "-" + string(rid)
}

// repliedFor is how long it is known that a producer was told: longer than its message can come back.
const repliedFor = 5 * 24 * time.Hour

// Reply tells a producer the end of r, which is stored, unless that is known to be done. In the bucket a second time puts the same
// under the same name. On a queue a reply comes twice only where a process ended between its sending and the note of it, or where the
// send's answer was lost.
func (x *Replies) Reply(ctx context.Context, r llmq.Request, to queue.Reply) error {
	mark := x.Space.Replied(r.Tenant, r.RID(), to.Alias)
	var b luascript.Batch
	told, look := b.Command("GET", mark), x.Results.Look(&b, r)
	if err := b.Run(ctx, x.Valkey); err != nil {
		return err
	}
	if _, done, err := told.Text(); err != nil || done {
		return err
	}
	stored, err := look()
	if err != nil {
		return err
	}
	if stored == nil { // it ended long ago
		gone := llmq.Errorf(llmq.CodeResultExpired, "the request %s has ended and its result is no longer stored", r.ID)
		gone.Meta = llmq.Meta{RequestID: r.ID, Lane: r.Lane}
		if stored, err = llmq.EncodeResult(llmq.Result{RID: r.RID(), Tenant: r.Tenant, Err: gone}, nil); err != nil {
			return err
		}
	}
	if to.Queue == "" {
		_, err = x.Bodies.Put(ctx, ReplyKey(r.Tenant, to.Alias, r.RID()), stored)
	} else {
		err = x.Queue.Send(ctx, to.Queue, queue.Outgoing{
			Body: llmq.Carriable(stored), Group: llmq.TenantHash(r.Tenant), Attributes: map[string]string{AttrRequestID: r.ID, "llmq_rid": string(r.RID())},
		})
	}
	if err != nil {
		x.keep(ctx, r)
		return err
	}
	var note luascript.Batch
	noted := note.Command("SET", mark, 1, "PX", repliedFor.Milliseconds())
	if err := note.Run(ctx, x.Valkey); err != nil {
		return nil //nolint:nilerr // it was told; a copy of the message may tell it again
	}
	_, _, err = noted.Text()
	return err
}

// keep keeps a result that could not be told for as long as that is tried, and for the redrive of its message. Where that fails too the
// result lives as long as any, and afterwards its producer is told that it is gone.
func (x *Replies) keep(ctx context.Context, r llmq.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var b luascript.Batch
	b.Command("PEXPIREAT", x.Space.Call(r.Tenant, r.RID()).Result, r.Deadline.Add(replyKept).UnixMilli(), "GT")
	_ = b.Run(ctx, x.Valkey) // see above
}

const (
	replyWithin = 5 * time.Second // for one reply
	replyAgain  = 30 * time.Second
	// replyFor is how long after its deadline a message is kept whose producer can't be told.
	replyFor = time.Hour
	// replyKept is how long after its deadline a result lives that could not be told: as long as its done mark.
	replyKept = 24 * time.Hour
	notTold   = "reply_not_sent"
)

// tell tells the message's producer how its request ended, if it asked for that, before the message is acknowledged. Where that can't be
// done the message is kept, and tried again until an hour after its deadline; then it is a dead letter, and its redrive tells.
func (w *Worker) tell(ctx context.Context, log *slog.Logger, m *delivery, r llmq.Request, out Outcome, settle func()) Outcome {
	if m.reply == nil || w.Replies == nil {
		return out
	}
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyWithin)
	defer cancel()
	err := w.Replies.Reply(telling, r, *m.reply)
	if err == nil {
		return out
	}
	m.body = "" // the message goes on
	settle()
	log.Warn("producer not told", "reply_to", m.reply.Alias, "error", err)
	if time.Since(r.Deadline) < replyFor {
		w.release(ctx, log, m, replyAgain, notTold)
		return Outcome{m.ID, Keep, notTold}
	}
	why := llmq.Errorf(llmq.CodeConfiguration, "the call has ended, and its end could not be told to the reply target %s", m.reply.Alias).At("reply_to")
	if err := w.deadLetter(ctx, log, m.Message, r.Tenant, engine.Letter{Why: why}); err != nil {
		log.Error("not dead-lettered", "reason", string(why.Code), "error", err)
		w.release(ctx, log, m, replyAgain, notTold)
		return Outcome{m.ID, Keep, notTold}
	}
	return Outcome{m.ID, Ack, string(why.Code)}
}
