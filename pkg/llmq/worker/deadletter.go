package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// maxAttributes is how many SQS takes.
const maxAttributes = 10

// deadLetter moves a message to its dead-letter queue with its reason, how it was tried, and the tenant whose
// it is, for a redrive. Where the message is too full for that, its body is put aside; where that can't be, it gives up the
// hints first and the reason last.
func (w *Worker) deadLetter(ctx context.Context, log *slog.Logger, m queue.Message, tenant string, l engine.Letter) error {
	why := l.Why
	least := map[string]string{queue.AttrReason: string(why.Code)}
	if tenant != "" {
		least[queue.AttrTenant] = tenant
	}
	full := maps.Clone(least)
	if said := llmq.Clip(carriable(why.Message), 500); said != "" { // SQS takes no empty one
		full[queue.AttrError] = said
	}
	if l.Attempts > 0 {
		full[queue.AttrAttempts] = strconv.Itoa(l.Attempts)
	}
	if l.Class != "" {
		full[queue.AttrClass] = l.Class
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if len(full) < maxAttributes && !queue.TellsOfDeath(name) { // of an earlier one, or forged
			full[name] = m.Attributes[name]
		}
	}
	send := func(body []byte, attrs map[string]string) error {
		return w.Queue.Send(ctx, m.Queue.DLQ(), queue.Outgoing{Body: body, Attributes: attrs})
	}
	err := send(m.Body, full)
	if errors.Is(err, llmq.CodeTooLarge) {
		if small, ok := w.small(ctx, log, m, tenant, why.Code); ok {
			err = send(small, full)
		}
	}
	for _, attrs := range []map[string]string{least, nil} {
		if errors.Is(err, llmq.CodeTooLarge) {
			err = send(m.Body, attrs)
		}
	}
	if err != nil {
		return err
	}
	w.Metrics.Count(telemetry.DeadLetters, telemetry.Labels{Code: string(why.Code)}, 1)
	log.Warn("dead-lettered", "reason", string(why.Code), "attempts", l.Attempts, "class", l.Class, "field", ours(why.Field), "sender", m.SenderID)
	return nil
}

// carriable is text without the characters that SQS takes in no attribute, for a letter must not be lost over a provider's words.
func carriable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, text)
}

// small is a message that names its body instead of holding it. It reports false where that can't be: the message is no envelope,
// or it is not known to be the one under its id, for the body of another lies where this one's would.
func (w *Worker) small(ctx context.Context, log *slog.Logger, m queue.Message, tenant string, why llmq.Code) ([]byte, bool) {
	env, err := llmq.DecodeEnvelope(m.Body)
	if err != nil || env.Ref != nil || tenant == "" || why == llmq.CodeIdempotencyMismatch {
		return nil, false
	}
	ref, err := w.Bodies.Put(ctx, llmq.Request{ID: env.ID, Tenant: tenant}.BodyKey(env.Params), env.Params)
	if err != nil {
		log.Warn("body of a dead letter not put aside", "error", err)
		return nil, false
	}
	env.Params, env.Ref = nil, &ref
	body, err := env.Encode()
	return body, err == nil
}

// ours is the part of a field's path that the envelope's form names: what is below it, or unknown, may be a prompt's text.
func ours(field string) string {
	name, _, _ := strings.Cut(field, ".")
	switch name {
	case "v", "id", "op", "model", "lane", "fallback", "deadline_ms", "tenant", "kid", "user", "session", "traceparent", "reply_to", "generation", "ref", "headers", "params":
		return name
	}
	return ""
}
