package worker

import (
	"context"
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// keys says what a key may use at the moment. Implementations are safe for concurrent use.
type keys interface {
	// Allowed fails with [llmq.CodeKeyRevoked], with [llmq.CodeBadEnvelope] for a key of another tenant, and with
	// [llmq.CodeQueueUnavailable] where nobody can tell.
	Allowed(ctx context.Context, kid, tenant string) (llmq.ModelSet, error)
}

// allow asks what the request's key may still use, before each take (SECURITY-DESIGN KT3, KT4). ends is how the request ends without
// an attempt: its key was revoked, or could not be read until its deadline was over. err keeps the message from being run.
func (w *Worker) allow(ctx context.Context, r *llmq.Request) (ends *llmq.Error, err error) {
	if r.KeyID == "" { // a producer's: its queue decides
		return nil, nil
	}
	r.Allowed, err = w.Keys.Allowed(ctx, r.KeyID, r.Tenant)
	switch {
	case errors.Is(err, llmq.CodeKeyRevoked):
		return llmq.AsError(err), nil
	case errors.Is(err, llmq.CodeQueueUnavailable) && !time.Now().Before(r.Deadline):
		return llmq.Errorf(llmq.CodeExpired, "the deadline passed before the key could be looked at").Because(err), nil
	}
	return nil, err
}
