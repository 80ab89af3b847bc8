package sqs

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B12: a queue that has lost its dead-letter queue can bury nothing: that is made, and the queue stays as it is.
func TestCreate_DeadLetterQueueThatIsMissing(t *testing.T) {
	t.Parallel()
	c, api, _ := setup(t) // its queue has none
	made, err := c.Create(t.Context(), name, queue.Shape{Visibility: time.Minute, MaxReceives: 10, Retention: time.Hour})
	if err != nil || made {
		t.Fatalf("made %t, %v", made, err)
	}
	if _, err := api.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(string(name.DLQ()))}); err != nil {
		t.Error(err)
	}
}
