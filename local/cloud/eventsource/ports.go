package eventsource

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// invoker runs a function; *lambda.Host is one.
type invoker interface {
	Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error)
}

// queueClient is what the loop needs of SQS; *sqs.Client is one.
type queueClient interface {
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
}

// queueDirectory is what the service needs of SQS besides; *sqs.Client is one.
type queueDirectory interface {
	queueClient
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
}

var (
	_ invoker        = (*lambda.Host)(nil)
	_ queueDirectory = (*sqs.Client)(nil)
)
