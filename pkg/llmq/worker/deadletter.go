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
// it is, for a redrive. Where the message is too full for that, it gives up the hints first and
// the reason last.
func (w *Worker) deadLetter(ctx context.Context, log *slog.Logger, m queue.Message, tenant string, l engine.Letter) error {
	why := l.Why
	least := map[string]string{queue.AttrReason: string(why.Code)}
	if tenant != "" {
		least[queue.AttrTenant] = tenant
	}
	full := maps.Clone(least)
	full[queue.AttrError] = llmq.Clip(why.Message, 500)
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
	var err error
	for _, attrs := range []map[string]string{full, least, nil} {
		if err = w.Queue.Send(ctx, m.Queue.DLQ(), queue.Outgoing{Body: m.Body, Attributes: attrs}); !errors.Is(err, llmq.CodeTooLarge) {
			break
		}
	}
	if err != nil {
		return err
	}
	w.Metrics.Count(telemetry.DeadLetters, telemetry.Labels{Code: string(why.Code)}, 1)
	log.Warn("dead-lettered", "reason", string(why.Code), "attempts", l.Attempts, "class", l.Class, "field", ours(why.Field), "sender", m.SenderID)
	return nil
}

// ours is the part of a field's path that the envelope's form names: what is below it, or unknown, may be a prompt's text.
func ours(field string) string {
	name, _, _ := strings.Cut(field, ".")
	switch name {
	case "v", "id", "op", "model", "lane", "fallback", "deadline_ms", "tenant", "kid", "user", "session", "traceparent", "reply_to", "generation", "ref", "params":
		return name
	}
	return ""
}
