package worker

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
)

// leastLoad is how long a body is waited for whatever its request's deadline.
const leastLoad = 10 * time.Second

// load fetches the body that lies at ref, where there is one, and checks what the envelope's check could
// not: inside it, the body's own names were too deep to be guarded. It gives up at the request's deadline or the limit, after
// which a body would come too late; zero is no limit. isStored says that the body is gone because its request has ended.
func (w *Worker) load(ctx context.Context, m *delivery, r *llmq.Request, ref *llmq.Ref, limit time.Time) (isStored bool, err error) {
	field := "params"
	if ref != nil {
		field = "ref"
		end := time.Now().Add(leastLoad) // one whose deadline has passed is told so under its body's hash
		if r.Deadline.After(end) {
			end = r.Deadline
		}
		if !limit.IsZero() && limit.Before(end) {
			end = limit
		}
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		r.Body, err = w.Bodies.Get(ctx, *ref)
		if errors.Is(err, fs.ErrNotExist) || isLost(err, m, *r, ref) {
			return w.isStored(ctx, *r, err)
		}
		if err != nil {
			return false, err
		}
	}
	if err := strictjson.Check(r.Body, strictjson.For(r.Op)); err != nil {
		return false, llmq.Errorf(llmq.CodeBadEnvelope, "%s: %s", field, llmq.AsError(err).Message).At(field)
	}
	r.Stream, err = readStream(*r)
	return false, err
}

// ownBody reports whether a message's body lay where llmq puts that of its own id: the door, a redrive, and a Go program, each after the
// id was found to stand for this body. The place is named after tenant and id, and the sender told whose tenant that is, so no
// message can speak for another tenant's request (ADR 0017). What a producer puts aside itself lies below in/, and several messages may
// name it.
func ownBody(r llmq.Request, ref *llmq.Ref) bool { return ref != nil && r.OwnsBody(ref.Key) }

// isLost reports whether a message's request can't be run any more, by why its body was not had, so that its caller is told: the body
// that llmq put aside is gone, or is another. Not every sender's message ends a request so: see [queue.Sender.Ends].
func isLost(err error, m *delivery, r llmq.Request, ref *llmq.Ref) bool {
	return m.ends && ownBody(r, ref) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, llmq.ErrBodySwapped))
}

// isStored tells a message that came once more, after its end and its body's, from one that can't be run.
func (w *Worker) isStored(ctx context.Context, r llmq.Request, missing error) (bool, error) {
	ended, err := w.Engine.Ended(ctx, r)
	if err != nil {
		return false, llmq.Errorf(llmq.CodeQueueUnavailable, "nobody can tell whether the request has ended").Because(errors.Join(err, missing))
	}
	if !ended {
		return false, missing
	}
	return true, nil
}
