package sqs_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// BenchmarkSendReceiveDelete moves messages of 512 bytes through a queue in batches of ten, 8 clients at once, over loopback HTTP.
// One operation is one message sent, received and deleted; SQS requests a message are told beside the time.
func BenchmarkSendReceiveDelete(b *testing.B) {
	server, client := serve(b, sqs.Options{})
	queue := createQueue(b, client, "calls", nil)
	entries := make([]types.SendMessageBatchRequestEntry, 10)
	for i := range entries {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(strings.Repeat("x", 512))}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for left.Add(-10) > -10 {
				if err := turn(b, client, queue, entries); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var requests int64
	for _, n := range server.Stats().Requests {
		requests += n
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
}

// turn sends ten messages, and receives and deletes up to ten.
func turn(b *testing.B, client *awssqs.Client, queue string, entries []types.SendMessageBatchRequestEntry) error {
	ctx := b.Context()
	if _, err := client.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: &queue, Entries: entries}); err != nil {
		return err
	}
	got, err := client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10})
	if err != nil || len(got.Messages) == 0 {
		return err
	}
	deletes := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
	for i, m := range got.Messages {
		deletes[i] = types.DeleteMessageBatchRequestEntry{Id: entries[i].Id, ReceiptHandle: m.ReceiptHandle}
	}
	_, err = client.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &queue, Entries: deletes})
	return err
}
