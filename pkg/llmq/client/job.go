package client

import (
	"context"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// SendJob leaves a job (FEATURES A6) and returns where it stands: payload is a JSON object that the function of that name gets on
// one of the queue's workers. Its end is kept for 24 h under the call's ID; [Client.Find], [Client.Wait] and
// [Client.Cancel] take it. Whether a worker has such a function nobody knows before one gets the job: where none
// has, it ends as [llmq.CodeUnknownJob].
//
// A job runs at least once. Sent again under its Options.ID it runs no second time. Its deadline is the queue's own where the
// options give none; what they say of a lane must be bulk or nothing.
func (c *Client) SendJob(ctx context.Context, queue, function string, payload []byte, o Options) (llmq.Call, error) {
	unhurried := context.WithoutCancel(ctx) // whose end is that of the sending, and not the job's
	r, err := c.NewRequest(unhurried, llmq.OpJob, jobOf(queue, function), payload, o)
	if err != nil {
		return llmq.Call{}, err
	}
	return c.Submit(ctx, r)
}

// RunJob sends a job and waits for its result. [Client.Do] says how it ends.
func (c *Client) RunJob(ctx context.Context, queue, function string, payload []byte, o Options) (*llmq.Reply, error) {
	return c.call(ctx, llmq.OpJob, jobOf(queue, function), payload, o)
}

func jobOf(queue, function string) string {
	return llmq.ModelRef{Alias: queue, Target: function}.String()
}
