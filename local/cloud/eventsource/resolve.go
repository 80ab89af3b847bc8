package eventsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// defaultBatchSize is what a mapping gets that names none.
const defaultBatchSize = 10

// resolve checks a mapping as Lambda does, and fills in what follows from its function and its queue.
func (r *Mappings) resolve(ctx context.Context, m Mapping) (Mapping, error) {
	if err := m.bounds(); err != nil {
		return m, err
	}
	var err error
	if m.Function, err = functionName(m.Function); err != nil {
		return m, err
	}
	var timeout time.Duration
	if r.opts.FunctionTimeout != nil {
		var exists bool
		if timeout, exists = r.opts.FunctionTimeout(m.Function); !exists {
			return m, invalid("Function does not exist")
		}
	}
	region, account, queue, err := queueOf(m.QueueARN)
	if err != nil {
		return m, err
	}
	m.Region = region
	if m.QueueURL == "" {
		out, err := r.opts.Queue.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(queue), QueueOwnerAWSAccountId: aws.String(account)})
		if err != nil {
			return m, queueError(err)
		}
		m.QueueURL = aws.ToString(out.QueueUrl)
	}
	visibility, err := readVisibility(ctx, r.opts.Queue, m.QueueURL, m.QueueARN)
	if err != nil {
		return m, queueError(err)
	}
	if visibility < timeout {
		return m, invalid(fmt.Sprintf("Queue visibility timeout: %d seconds is less than Function timeout: %d seconds",
			visibility/time.Second, timeout/time.Second))
	}
	return m, nil
}

// bounds checks the numbers: first each by itself, as AWS's own request validation does, then together.
func (m Mapping) bounds() error {
	if err := within("batchSize", m.BatchSize, 1, maxBatchSize); err != nil {
		return err
	}
	if err := within(windowName, int(m.Window/time.Second), 0, int(maxWindow/time.Second)); err != nil {
		return err
	}
	if m.MaximumConcurrency != 0 {
		if err := within(boundName, m.MaximumConcurrency, minConcurrency, maxConcurrency); err != nil {
			return err
		}
	}
	if m.BatchSize > receiveMax && m.Window == 0 {
		return invalid("Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10")
	}
	if m.Window%time.Second != 0 {
		return invalid("The maximum batch window is whole seconds.") // the wire has no way to say otherwise
	}
	return nil
}

// Settings as the API's messages name them.
const (
	windowName = "maximumBatchingWindowInSeconds"
	boundName  = "scalingConfig.maximumConcurrency"
)

// within checks a number as AWS's request validation does.
func within(name string, v, lo, top int) error {
	bound := ""
	switch {
	case v < lo:
		bound = fmt.Sprintf("greater than or equal to %d", lo)
	case v > top:
		bound = fmt.Sprintf("less than or equal to %d", top)
	default:
		return nil
	}
	return &Error{Code: CodeValidation, Message: fmt.Sprintf("1 validation error detected: Value '%d' at '%s' failed to satisfy constraint: "+
		"Member must have value %s", v, name, bound)}
}

// functionName takes the name out of any form that the API takes: name, ARN, partial ARN. Functions here have no versions
// and no aliases but $LATEST.
func functionName(s string) (string, error) {
	name := s
	if i := strings.LastIndex(s, "function:"); i >= 0 {
		name = s[i+len("function:"):]
	}
	name, qualifier, qualified := strings.Cut(name, ":")
	if name == "" || qualified && qualifier != "$LATEST" {
		return "", invalid("Function does not exist")
	}
	return name, nil
}

// queueOf takes a queue's ARN apart.
func queueOf(arn string) (region, account, name string, err error) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sqs" || parts[3] == "" || parts[5] == "" {
		return "", "", "", invalid("Unrecognized event source.")
	}
	if strings.HasSuffix(parts[5], ".fifo") {
		return "", "", "", invalid("FIFO queues are not supported by this Lambda.")
	}
	return parts[3], parts[4], parts[5], nil
}

// queueError says that the queue can't be read.
func queueError(err error) error {
	if _, missing := errors.AsType[*types.QueueDoesNotExist](err); missing {
		return invalid("Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. " +
			"SQS Error Message: The specified queue does not exist.")
	}
	return &Error{Code: CodeService, Message: "The queue can't be read: " + err.Error()}
}
