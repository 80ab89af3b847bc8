package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

var _ queue.Creator = (*Client)(nil)

const (
	// deadRetention is how long dead letters are kept: the longest that SQS offers.
	deadRetention = 14 * 24 * time.Hour
	// longPoll is how long a receive waits for a message unless it says otherwise.
	longPoll = 20 * time.Second
	// reuseAfter is how long the name of a deleted queue is taken.
	reuseAfter = time.Minute
)

// Create implements queue.Creator. [llmq.CodeRateLimited] means that a queue of that name was deleted in the last minute.
func (c *Client) Create(ctx context.Context, q queue.Name, s queue.Shape) (made bool, err error) {
	// First, for a queue whose dead-letter queue has gone can bury nothing.
	if err := c.create(ctx, q.DLQ(), map[types.QueueAttributeName]string{types.QueueAttributeNameMessageRetentionPeriod: whole(deadRetention)}); err != nil {
		return false, err
	}
	_, err = c.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(string(q))})
	if err == nil {
		return false, nil
	}
	if _, missing := errors.AsType[*types.QueueDoesNotExist](err); !missing {
		return false, unavailable("look for", q, err)
	}
	dead, err := c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: c.url(q.DLQ()), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return false, unavailable("look for", q.DLQ(), err)
	}
	policy, err := json.Marshal(map[string]any{
		"deadLetterTargetArn": dead.Attributes[string(types.QueueAttributeNameQueueArn)], "maxReceiveCount": s.MaxReceives,
	})
	if err != nil {
		return false, llmq.Errorf(llmq.CodeInternal, "%s can't be made", q).Because(err)
	}
	err = c.create(ctx, q, map[types.QueueAttributeName]string{
		types.QueueAttributeNameMessageRetentionPeriod:        whole(s.Retention),
		types.QueueAttributeNameVisibilityTimeout:             whole(s.Visibility),
		types.QueueAttributeNameReceiveMessageWaitTimeSeconds: whole(longPoll),
		types.QueueAttributeNameRedrivePolicy:                 string(policy),
	})
	return err == nil, err
}

// create makes one queue. One of that name with other attributes will do.
func (c *Client) create(ctx context.Context, q queue.Name, attributes map[types.QueueAttributeName]string) error {
	in := &sqs.CreateQueueInput{QueueName: aws.String(string(q)), Attributes: map[string]string{}}
	for name, value := range attributes {
		in.Attributes[string(name)] = value
	}
	_, err := c.api.CreateQueue(ctx, in)
	if _, there := errors.AsType[*types.QueueNameExists](err); err == nil || there {
		return nil
	}
	if _, recently := errors.AsType[*types.QueueDeletedRecently](err); recently {
		return llmq.Errorf(llmq.CodeRateLimited, "%s was deleted less than %s s ago, and SQS makes no new queue of that name sooner", q, whole(reuseAfter)).After(reuseAfter).Because(err)
	}
	return unavailable("create", q, err)
}

func whole(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
