package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// Queue is where a model's calls of a lane wait.
func (c *Core) Queue(alias string, l llmq.Lane) queue.Name {
	return c.Config.Queues.Names().Model(alias, l)
}

// URL is a queue's.
func (c *Core) URL(q queue.Name) *string {
	return aws.String(c.Config.Queues.URLBase + "/" + string(q))
}

const most = 10 // messages that one request to SQS carries

// Send puts a chat call of a model on a lane's queue for each id.
func (c *Core) Send(ctx context.Context, alias string, l llmq.Lane, ids []string) error {
	url := c.URL(c.Queue(alias, l))
	for first := 0; first < len(ids); first += most {
		in := &awssqs.SendMessageBatchInput{QueueUrl: url}
		for i, id := range ids[first:min(first+most, len(ids))] {
			body, err := envelope(alias, id)
			if err != nil {
				return err
			}
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body))})
		}
		out, err := c.SQS.SendMessageBatch(ctx, in)
		if err != nil || len(out.Failed) > 0 {
			return fmt.Errorf("send %d messages: %w", len(in.Entries), errors.Join(err, errNotAll))
		}
	}
	return nil
}

var errNotAll = errors.New("not all were taken")

func envelope(alias, id string) ([]byte, error) {
	body, err := llmq.Envelope{
		ID: id, Op: llmq.OpChat, Model: alias, Tenant: tenant, Deadline: time.Now().Add(5 * time.Minute), Params: []byte(`{"messages":[]}`),
	}.Encode()
	if err != nil {
		return nil, fmt.Errorf("message of %s: %w", id, err)
	}
	return body, nil
}

// Message is one that a worker gets, of a call that nobody has sent.
func (c *Core) Message(alias string, l llmq.Lane, id string) (queue.Message, error) {
	body, err := envelope(alias, id)
	return queue.Message{ID: id, Receipt: id, Queue: c.Queue(alias, l), Body: body, ReceiveCount: 1, SentAt: time.Now(), SenderID: sender}, err
}

// noQueue keeps every lease and deletes whatever it is told to.
type noQueue struct{}

var errNoQueue = errors.New("there is no queue")

func (noQueue) Send(context.Context, queue.Name, queue.Outgoing) error { return errNoQueue }

func (noQueue) Extend(_ context.Context, _ queue.Name, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

func (noQueue) Delete(_ context.Context, _ queue.Name, receipts []string) []error {
	return make([]error, len(receipts))
}

// Receive asks a lane's queue once, for up to ten messages, and waits for the first for as long as SQS lets one.
func (c *Core) Receive(ctx context.Context, alias string, l llmq.Lane) ([]queue.Message, error) {
	q := c.Queue(alias, l)
	out, err := c.SQS.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
		QueueUrl: c.URL(q), MaxNumberOfMessages: most, WaitTimeSeconds: 20, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	messages := make([]queue.Message, len(out.Messages))
	for i, m := range out.Messages {
		sent, err := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("a message's time: %w", err)
		}
		messages[i] = queue.Message{
			ID: aws.ToString(m.MessageId), Receipt: aws.ToString(m.ReceiptHandle), Queue: q, Body: []byte(aws.ToString(m.Body)),
			ReceiveCount: 1, SentAt: time.UnixMilli(sent), SenderID: m.Attributes["SenderId"],
		}
	}
	return messages, nil
}

// Delete deletes messages, as an event source does with what its function has dealt with.
func (c *Core) Delete(ctx context.Context, alias string, l llmq.Lane, messages []queue.Message) error {
	for first := 0; first < len(messages); first += most {
		in := &awssqs.DeleteMessageBatchInput{QueueUrl: c.URL(c.Queue(alias, l))}
		for i, m := range messages[first:min(first+most, len(messages))] {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(m.Receipt)})
		}
		out, err := c.SQS.DeleteMessageBatch(ctx, in)
		if err != nil || len(out.Failed) > 0 {
			return fmt.Errorf("delete %d messages: %w", len(in.Entries), errors.Join(err, errNotAll))
		}
	}
	return nil
}

// Work is the loop that an event source is, at its barest: it receives, has the worker handle what came, and deletes, one batch
// after the other, until ctx ends.
func (c *Core) Work(ctx context.Context, alias string, l llmq.Lane) error {
	for ctx.Err() == nil {
		messages, err := c.Receive(ctx, alias, l)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case err != nil:
			return err
		case len(messages) == 0:
			continue
		}
		for _, out := range c.Worker.Handle(ctx, messages) {
			if out.Action != worker.Ack && ctx.Err() == nil {
				return fmt.Errorf("a message was handed back: %s", out.Reason)
			}
		}
		if err := c.Delete(context.WithoutCancel(ctx), alias, l, messages); err != nil {
			return err
		}
	}
	return nil
}
