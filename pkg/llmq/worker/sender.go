package worker

import (
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// open reads a message's envelope, where its sender is one whose messages are taken, and
// tells whose it is (SECURITY-DESIGN MS1, MS2). Nothing of a stranger's is read.
func (w *Worker) open(m queue.Message) (env llmq.Envelope, from queue.Sender, tenant string, err error) {
	if from, err = w.cfg.Senders.Of(m); err != nil {
		return env, from, "", err
	}
	if err = strictjson.Check(m.Body, envelopeLimits()); err != nil {
		return env, from, "", llmq.Errorf(llmq.CodeBadEnvelope, "%s", llmq.AsError(err).Message).At(llmq.AsError(err).Field)
	}
	if env, err = llmq.DecodeEnvelope(m.Body); err != nil {
		return env, from, "", err
	}
	tenant, err = from.Tenant(env)
	return env, from, tenant, err
}
