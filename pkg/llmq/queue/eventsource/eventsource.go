// Package eventsource changes the event source mappings of AWS Lambda that feed llmq's queues
// to its workers.
package eventsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Client is queue.Sources on AWS Lambda. It is safe for concurrent use.
type Client struct{ api *lambda.Client }

var _ queue.Sources = (*Client)(nil)

// New is a client that asks api. Each change is tried once, however often api tries other
// requests: the SDK would wait for a source that is busy for a minute.
func New(api *lambda.Client) *Client { return &Client{api: api} }

// List implements queue.Sources. A hundred sources are one request.
func (c *Client) List(ctx context.Context, function string) ([]queue.Source, error) {
	var all []queue.Source
	pages := lambda.NewListEventSourceMappingsPaginator(c.api, &lambda.ListEventSourceMappingsInput{FunctionName: aws.String(function)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("list the event sources of "+function, err)
		}
		for _, m := range page.EventSourceMappings {
			all = append(all, source(m))
		}
	}
	return all, nil
}

// SetMaxConcurrency implements queue.Sources.
func (c *Client) SetMaxConcurrency(ctx context.Context, id string, most int) (queue.Source, error) {
	return c.update(ctx, &lambda.UpdateEventSourceMappingInput{
		UUID: aws.String(id), ScalingConfig: &types.ScalingConfig{MaximumConcurrency: aws.Int32(int32(most))},
	})
}

// SetEnabled implements queue.Sources.
func (c *Client) SetEnabled(ctx context.Context, id string, enabled bool) (queue.Source, error) {
	return c.update(ctx, &lambda.UpdateEventSourceMappingInput{UUID: aws.String(id), Enabled: aws.Bool(enabled)})
}

func (c *Client) update(ctx context.Context, in *lambda.UpdateEventSourceMappingInput) (queue.Source, error) {
	out, err := c.api.UpdateEventSourceMapping(ctx, in, func(o *lambda.Options) { o.RetryMaxAttempts = 1 })
	if err != nil {
		return queue.Source{}, explain("change the event source "+*in.UUID, err)
	}
	return source(types.EventSourceMappingConfiguration{
		UUID: out.UUID, EventSourceArn: out.EventSourceArn, State: out.State, ScalingConfig: out.ScalingConfig,
		BatchSize: out.BatchSize, LastModified: out.LastModified,
	}), nil
}

func source(m types.EventSourceMappingConfiguration) queue.Source {
	arn := aws.ToString(m.EventSourceArn)
	s := queue.Source{
		ID: aws.ToString(m.UUID), Queue: queue.Name(arn[strings.LastIndex(arn, ":")+1:]), State: queue.SourceState(aws.ToString(m.State)),
		BatchSize: int(aws.ToInt32(m.BatchSize)), Changed: aws.ToTime(m.LastModified),
	}
	if m.ScalingConfig != nil {
		s.MaxConcurrency = int(aws.ToInt32(m.ScalingConfig.MaximumConcurrency))
	}
	if !s.Changed.IsZero() {
		s.Changed = s.Changed.Round(time.Millisecond).UTC() // it is written as a float of seconds
	}
	return s
}

// explain tells the errors that pass by themselves from all others. A conflict is what a source
// that is being deleted or made answers.
func explain(doing string, err error) error {
	for _, kind := range []struct {
		is  bool
		err error
	}{
		{is[*types.ResourceInUseException](err) || is[*types.ResourceConflictException](err), queue.ErrBusy},
		{is[*types.TooManyRequestsException](err), queue.ErrThrottled},
		{is[*types.ResourceNotFoundException](err), queue.ErrNoSource},
	} {
		if kind.is {
			return fmt.Errorf("%s: %w (%w)", doing, kind.err, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
