package worker

import (
	"cmp"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
)

// envelopeLimits leaves room for the envelope around a body that the door let in.
func envelopeLimits() strictjson.Limits {
	l := strictjson.Default()
	l.Depth++
	l.Members += 32
	return l
}

// decode reads a message as a request, whose body is still to be loaded where it lies at ref. What it refuses
// is an *llmq.Error whose code says what is to become of the message; the request has a tenant even then, once
// it is known whose the message is.
func (w *Worker) decode(m *delivery) (llmq.Request, *llmq.Ref, error) {
	env, from, tenant, err := w.open(m.Message)
	if err != nil {
		return llmq.Request{}, nil, err
	}
	m.ends = from.Ends()
	req := llmq.Request{
		ID: env.ID, Tenant: tenant, KeyID: env.KeyID, Op: env.Op, Fallback: cmp.Or(env.Fallback, llmq.FallbackChain),
		Body: env.Params, Headers: env.Headers, User: env.User, Session: env.Session, Trace: traceOf(env, m), Generation: env.Generation,
	}
	here, ok := w.homes[m.Queue]
	if !ok {
		// A newer deployment's queue, read by a process of the one before.
		return req, nil, llmq.Errorf(llmq.CodeModelNotConfigured, "the queue %s belongs to no configured model", m.Queue)
	}
	if req.Model, err = llmq.ParseModelRef(env.Model); err != nil {
		return req, nil, err
	}
	if env.ReplyTo != "" {
		to, err := w.cfg.Senders.Reply(env.ReplyTo, from, tenant)
		if err != nil {
			return req, nil, err
		}
		m.reply = &to
	}
	if req.Lane, err = w.checkHome(here, req.Model, env); err != nil {
		return req, nil, err
	}
	req.Deadline = w.deadline(env, here.alias, req.Lane, m.SentAt)
	if env.Ref != nil && !w.cfg.Senders.MayPointAt(env.Ref.Key, from, tenant) {
		return req, nil, llmq.Errorf(llmq.CodeBadEnvelope, "ref points at what is not the tenant's").At("ref")
	}
	return req, env.Ref, nil
}

// readStream reads whether the reply is wanted while it comes, and refuses what the door refuses.
func readStream(r llmq.Request) (bool, error) {
	stream, err := opbody.Stream(r.Op, r.Body)
	if err == nil {
		err = opbody.Check(r.Op, r.Body)
	}
	if e := llmq.AsError(err); e != nil && e.Code == llmq.CodeInvalidRequest {
		return false, llmq.Errorf(llmq.CodeBadEnvelope, "%s", e.Message).At(e.Field)
	}
	return stream, err
}

// checkHome compares the model and lane that a message names with those of the queue
// it came on: the queue decides what it may spend (SECURITY-DESIGN MS3). A model that
// this worker lacks passes, by a new name or as a new target of the queue's own; the
// engine hands it back.
func (w *Worker) checkHome(here home, ref llmq.ModelRef, env llmq.Envelope) (llmq.Lane, error) {
	model, _, err := w.cfg.Catalogue.Resolve(ref, env.Op.Wire())
	known := !errors.Is(err, llmq.CodeModelNotFound)
	alias := model.Alias
	if ref.Target != "" { // then it can be no vendor's name
		alias = ref.Alias
	}
	if (known || ref.Target != "") && alias != here.alias {
		return "", llmq.Errorf(llmq.CodeWrongQueue, "the message names the model %q, its queue belongs to %q", ref, here.alias).At("model")
	}
	lane := env.Lane
	if lane == "" {
		lane = here.lane
	}
	fits := lane == here.lane || (here.lane == llmq.LaneBG && lane == llmq.LaneBulk) // an unknown model may lack a bulk queue
	if known {
		fits = model.Queue(lane) == here.lane
	}
	if !fits {
		return "", llmq.Errorf(llmq.CodeWrongQueue, "the message names the lane %s, its queue is %s's", lane, here.lane).At("lane")
	}
	return lane, nil
}

// deadline is the envelope's, or the default of its model or lane, and never past the lane's longest
// (SECURITY-DESIGN MS3).
func (w *Worker) deadline(env llmq.Envelope, alias string, lane llmq.Lane, sentAt time.Time) time.Time {
	t := w.cfg.Timeouts[lane]
	if env.Deadline.IsZero() {
		if w.Timeout != nil {
			t.Default = cmp.Or(w.Timeout(alias, env.Op, lane), t.Default)
		}
		return sentAt.Add(t.Default)
	}
	if last := sentAt.Add(t.Max); env.Deadline.After(last) {
		return last
	}
	return env.Deadline
}
