package sqs_test

import (
	"testing"

	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	_, client := serve(t, sqs.Options{})
	sqstest.Exercise(t, client)
}
