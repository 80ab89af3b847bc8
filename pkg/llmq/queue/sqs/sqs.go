// Package sqs carries llmq's messages on Amazon SQS standard queues.
package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Limits of SQS (AWS-FACTS section 1).
const (
	MaxMessageBytes = 1 << 20          // body and attributes, of one message and of all in a request
	MaxDelay        = 15 * time.Minute // of a message
	MaxVisibility   = 12 * time.Hour   // of a receive
	batchEntries    = 10
)

// Client is a queue.Queue on SQS. It is safe for concurrent use.
type Client struct {
	api         *sqs.Client
	urlBase     string
	sendTimeout time.Duration
	maxBytes    int
}

var _ queue.Queue = (*Client)(nil)

// New is a client of the queues below urlBase, e.g.
// https://sqs.eu-west-1.amazonaws.com/111122223333: names are joined to it rather than
// looked up, which saves a request and a permission. A send takes at most sendTimeout, and has at most maxBytes:
// [MaxMessageBytes] of SQS, fewer of servers that still have its old limit (cases H05).
func New(api *sqs.Client, urlBase string, sendTimeout time.Duration, maxBytes int) *Client {
	return &Client{api: api, urlBase: strings.TrimRight(urlBase, "/"), sendTimeout: sendTimeout, maxBytes: maxBytes}
}

func (c *Client) url(q queue.Name) *string { return aws.String(c.urlBase + "/" + string(q)) }

// Send implements queue.Queue. A send that SQS refuses for the message's own sake is
// [llmq.CodeTooLarge] or [llmq.CodeInternal]; anything else is
// [llmq.CodeQueueUnavailable], and the message may be on the queue all the same. It is refused, as
// [queue.ErrRefused] has it, by a throttle, a server's fault and a connection that can't be had; a right
// that lacks and a queue that does not exist are faults of the deployment.
func (c *Client) Send(ctx context.Context, q queue.Name, m queue.Outgoing) error {
	if err := c.fits(m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.sendTimeout)
	defer cancel()
	in := &sqs.SendMessageInput{
		QueueUrl: c.url(q), MessageBody: aws.String(string(m.Body)), DelaySeconds: delay(m), MessageAttributes: attributes(m), MessageGroupId: group(m),
		MessageSystemAttributes: system(m),
	}
	if _, err := c.api.SendMessage(ctx, in); err != nil {
		if _, ok := errors.AsType[*types.InvalidMessageContents](err); ok {
			return badCharacter(err)
		}
		return unavailable("send to", q, err)
	}
	return nil
}

// SendAll implements queue.Queue by batches of ten messages and the client's maxBytes together, side
// by side; each takes at most the client's sendTimeout.
func (c *Client) SendAll(ctx context.Context, q queue.Name, ms []queue.Outgoing) []error {
	errs := make([]error, len(ms))
	var wg sync.WaitGroup
	var batch []int
	size := 0
	flush := func() {
		if full := batch; len(full) > 0 {
			wg.Go(func() { c.sendBatch(ctx, q, ms, full, errs) })
		}
		batch, size = nil, 0
	}
	for i, m := range ms {
		if errs[i] = c.fits(m); errs[i] != nil {
			continue
		}
		if len(batch) == batchEntries || size+m.Size() > c.maxBytes {
			flush()
		}
		batch, size = append(batch, i), size+m.Size()
	}
	flush()
	wg.Wait()
	return errs
}

// sendBatch sends those of ms that are named, and writes their results into errs.
func (c *Client) sendBatch(ctx context.Context, q queue.Name, ms []queue.Outgoing, named []int, errs []error) {
	if len(named) == 1 {
		errs[named[0]] = c.Send(ctx, q, ms[named[0]])
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.sendTimeout)
	defer cancel()
	in := &sqs.SendMessageBatchInput{QueueUrl: c.url(q)}
	for _, i := range named {
		m := ms[i]
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
			Id: entry(i), MessageBody: aws.String(string(m.Body)), DelaySeconds: delay(m), MessageAttributes: attributes(m), MessageGroupId: group(m),
			MessageSystemAttributes: system(m),
		})
	}
	b := batch{"send to", q, named, errs}
	out, err := c.api.SendMessageBatch(ctx, in)
	if err != nil {
		b.told(err, nil, nil)
		return
	}
	b.told(nil, ids(out.Successful, func(e types.SendMessageBatchResultEntry) *string { return e.Id }), out.Failed)
}

func (c *Client) fits(m queue.Outgoing) error {
	if size := m.Size(); size > c.maxBytes {
		return llmq.Errorf(llmq.CodeTooLarge, "the message has %d bytes with its attributes; a queue carries %d", size, c.maxBytes)
	}
	return nil
}

func badCharacter(err error) error {
	return llmq.Errorf(llmq.CodeInternal, "the message holds a character that SQS refuses").Because(err)
}

func delay(m queue.Outgoing) int32 { return int32(min(m.Delay, MaxDelay) / time.Second) }

func group(m queue.Outgoing) *string {
	if m.Group == "" {
		return nil
	}
	return &m.Group
}

func attributes(m queue.Outgoing) map[string]types.MessageAttributeValue {
	out := make(map[string]types.MessageAttributeValue, len(m.Attributes))
	for name, value := range m.Attributes {
		out[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
	}
	return out
}

// Extend implements queue.Queue by batches of ten.
func (c *Client) Extend(ctx context.Context, q queue.Name, leases []queue.Lease) []error {
	return tens("extend in", q, len(leases), func(b batch) {
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: c.url(q)}
		for _, i := range b.places {
			secs := (min(max(leases[i].For, 0), MaxVisibility) + time.Second - 1) / time.Second
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
				Id: entry(i), ReceiptHandle: aws.String(leases[i].Receipt), VisibilityTimeout: int32(secs),
			})
		}
		out, err := c.api.ChangeMessageVisibilityBatch(ctx, in)
		if err != nil {
			b.told(err, nil, nil)
			return
		}
		b.told(nil, ids(out.Successful, func(e types.ChangeMessageVisibilityBatchResultEntry) *string { return e.Id }), out.Failed)
	})
}

// Depth implements queue.Queue.
func (c *Client) Depth(ctx context.Context, q queue.Name) (queue.Depth, error) {
	out, err := c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: c.url(q), AttributeNames: []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}})
	if err != nil {
		return queue.Depth{}, unavailable("read the depth of", q, err)
	}
	var d queue.Depth
	for name, dst := range map[types.QueueAttributeName]*int{
		types.QueueAttributeNameApproximateNumberOfMessages:           &d.Visible,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible: &d.InFlight,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed:    &d.Delayed,
	} {
		if *dst, err = strconv.Atoi(out.Attributes[string(name)]); err != nil {
			return queue.Depth{}, fmt.Errorf("depth of %s: %s is no number", q, name)
		}
	}
	return d, nil
}
