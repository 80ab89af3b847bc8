package sqs

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

var _ queue.Operator = (*Client)(nil)

// purgeEvery is how often SQS lets a queue be purged.
const purgeEvery = time.Minute

// Receive implements queue.Operator.
func (c *Client) Receive(ctx context.Context, q queue.Name, f queue.Fetch) ([]queue.Message, error) {
	out, err := c.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: c.url(q), MaxNumberOfMessages: int32(min(max(f.Max, 1), batchEntries)),
		VisibilityTimeout: int32((min(max(f.Hide, 0), MaxVisibility) + time.Second - 1) / time.Second), WaitTimeSeconds: int32(f.Wait / time.Second),
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		return nil, unavailable("receive from", q, err)
	}
	msgs := make([]queue.Message, len(out.Messages))
	for i, m := range out.Messages {
		msgs[i] = message(q, m)
	}
	return msgs, nil
}

func message(q queue.Name, m types.Message) queue.Message {
	out := queue.Message{
		ID: aws.ToString(m.MessageId), Receipt: aws.ToString(m.ReceiptHandle), Queue: q, Body: []byte(aws.ToString(m.Body)),
		SenderID: m.Attributes[string(types.MessageSystemAttributeNameSenderId)],
	}
	// SQS writes both as whole numbers; what is none stays zero, as for a message without it.
	out.ReceiveCount, _ = strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if sent, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		out.SentAt = time.UnixMilli(sent)
	}
	for name, v := range m.MessageAttributes {
		if v.StringValue == nil {
			continue
		}
		if out.Attributes == nil {
			out.Attributes = make(map[string]string, len(m.MessageAttributes))
		}
		out.Attributes[name] = *v.StringValue
	}
	return out
}

// Delete implements queue.Operator by batches of ten.
func (c *Client) Delete(ctx context.Context, q queue.Name, receipts []string) []error {
	return tens("delete from", q, len(receipts), func(b batch) {
		in := &sqs.DeleteMessageBatchInput{QueueUrl: c.url(q)}
		for _, i := range b.places {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: entry(i), ReceiptHandle: aws.String(receipts[i])})
		}
		out, err := c.api.DeleteMessageBatch(ctx, in)
		if err != nil {
			b.told(err, nil, nil)
			return
		}
		b.told(nil, ids(out.Successful, func(e types.DeleteMessageBatchResultEntry) *string { return e.Id }), out.Failed)
	})
}

// Purge implements queue.Operator.
func (c *Client) Purge(ctx context.Context, q queue.Name) error {
	_, err := c.api.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: c.url(q)})
	if _, again := errors.AsType[*types.PurgeQueueInProgress](err); again {
		return llmq.Errorf(llmq.CodeRateLimited, "%s was purged less than %d s ago, and SQS purges a queue no more often; what was sent since then is still there",
			q, int(purgeEvery.Seconds())).After(purgeEvery).Because(err)
	}
	if err != nil {
		return unavailable("purge", q, err)
	}
	return nil
}
