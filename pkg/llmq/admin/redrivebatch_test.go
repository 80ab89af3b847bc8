package admin

import (
	"context"
	"testing"
	"time"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B14: ten dead letters are one request to the queue; no send of a single one is needed.
func TestRedrive_SendsInBatches(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 30)
		defer r.server.Inject(local.Fault{Kind: local.Refuse, Op: "SendMessage"})()
		if out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg", MaxRate: 100}); out.Moved != 30 || out.Failed != 0 {
			t.Errorf("answer = %+v, want all moved", out)
		}
	})
}

// choosy is a queue that does not take the first message of a request.
type choosy struct{ queue.Operator }

func (c choosy) SendAll(ctx context.Context, q queue.Name, ms []queue.Outgoing) []error {
	refused := []error{llmq.Errorf(llmq.CodeQueueUnavailable, "the queue did not take it").Because(queue.ErrRefused)}
	return append(refused, c.Operator.SendAll(ctx, q, ms[1:])...)
}

// B14: of a request that the queue takes in part, what was taken is deleted and counted as moved, and the rest is left.
func TestRedrive_PartlyTakenBatchIsToldApart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 10)
		r.deps.Queue = choosy{r.queue}
		out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		sent := len(r.drain(t, source))
		time.Sleep(hideFor) // in the bubble
		if left := len(r.drain(t, dlq)); out.Moved != 9 || out.Failed != 1 || sent != 9 || left != 1 {
			t.Errorf("answer = %+v, %d came and %d are left; want 9 moved and 1 left", out, sent, left)
		}
	})
}
