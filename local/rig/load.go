package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Numbered are n ids: first-0, first-1 ….
func Numbered(first string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = first + "-" + strconv.Itoa(i)
	}
	return ids
}

// ChatBody is a chat call that says text, which [Asked] finds again at the provider.
func ChatBody(model, text string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, text)
}

// Asked is the text that a provider call was made for: what its first message says, up to the first blank. It is "" for an
// embeddings call of several texts, and for a body that the provider's log has cut short.
func Asked(c server.Call) string {
	var body struct {
		Input    json.RawMessage // embeddings
		Messages []struct{ Content json.RawMessage }
	}
	if json.Unmarshal(c.Body, &body) != nil {
		return ""
	}
	said := body.Input
	if len(body.Messages) > 0 {
		said = body.Messages[0].Content
	}
	var text string
	var parts []struct{ Text string } // converse
	if json.Unmarshal(said, &text) != nil && json.Unmarshal(said, &parts) == nil && len(parts) > 0 {
		text = parts[0].Text
	}
	text, _, _ = strings.Cut(text, " ")
	return text
}

// Send puts a chat call for each id on a lane's queue, as a service does that knows the envelope only. The id is what the
// call says too. deadline is counted from now.
func (r *Rig) Send(ctx context.Context, model string, lane llmq.Lane, deadline time.Duration, ids []string) error {
	api := r.Client(cloud.Producer)
	url := r.queueURL(r.Config.Queues.Names().Model(model, lane))
	const most = 10 // entries of a batch
	for some := range slices.Chunk(ids, most) {
		entries := make([]types.SendMessageBatchRequestEntry, len(some))
		for i, id := range some {
			body, err := llmq.Envelope{ID: id, Op: llmq.OpChat, Model: model, Deadline: time.Now().Add(deadline), Params: ChatBody(model, id)}.Encode()
			if err != nil {
				return fmt.Errorf("send %s: %w", id, err)
			}
			entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body))}
		}
		out, err := api.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err != nil {
			return fmt.Errorf("send %s and %d more: %w", some[0], len(some)-1, err)
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("send %s and %d more: %d are refused: %s", some[0], len(some)-1, len(out.Failed), aws.ToString(out.Failed[0].Message))
		}
	}
	return nil
}

func (r *Rig) queueURL(q queue.Name) *string {
	return aws.String(r.Config.Queues.URLBase + "/" + string(q))
}

// Depth counts the messages on the queues of all models and lanes, hidden ones among them, and those on the dead-letter
// queues.
func (r *Rig) Depth(ctx context.Context) (waiting, dead int, err error) {
	for _, q := range r.Config.QueueNames() {
		n, err := r.QueueDepth(ctx, q)
		if err != nil {
			return 0, 0, err
		}
		d, err := r.QueueDepth(ctx, q.DLQ())
		if err != nil {
			return 0, 0, err
		}
		waiting, dead = waiting+n.Visible+n.InFlight+n.Delayed, dead+d.Visible+d.InFlight+d.Delayed
	}
	return waiting, dead, nil
}

// QueueDepth counts the messages of one queue.
func (r *Rig) QueueDepth(ctx context.Context, q queue.Name) (d queue.Depth, err error) {
	out, err := r.Client("an-operator").GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
		QueueUrl: r.queueURL(q), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return d, fmt.Errorf("depth of %s: %w", q, err)
	}
	for name, n := range map[types.QueueAttributeName]*int{
		types.QueueAttributeNameApproximateNumberOfMessages:           &d.Visible,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible: &d.InFlight,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed:    &d.Delayed,
	} {
		if *n, err = strconv.Atoi(out.Attributes[string(name)]); err != nil {
			return d, fmt.Errorf("depth of %s: %s: %w", q, name, err)
		}
	}
	return d, nil
}

// Poll asks until ok says so, ten times a second. Where ctx ends first the error says what was waited for.
func Poll(ctx context.Context, what string, ok func() bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// AwaitDrained waits until every message has been deleted and the provider answers nobody. SQS may fail meanwhile.
func (r *Rig) AwaitDrained(ctx context.Context) error {
	running, waiting := 0, 0
	err := Poll(ctx, "empty queues", func() bool {
		if running = r.Fake.InFlight(""); running > 0 {
			return false
		}
		n, _, err := r.Depth(ctx)
		if err == nil {
			waiting = n
		}
		return err == nil && n == 0
	})
	if err != nil {
		return fmt.Errorf("%d messages are left, and %d calls at the provider: %w", waiting, running, err)
	}
	return nil
}
