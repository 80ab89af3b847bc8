package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

func TestMain(m *testing.M) {
	serveFunction() // the test binary is the function, as the bench is
	goleak.VerifyTestMain(m)
}

func TestPipeline_GivesEveryRate(t *testing.T) {
	t.Parallel()
	var steps, table bytes.Buffer
	p, err := measurePipeline(t.Context(), 400, &steps)
	if err != nil {
		t.Fatal(err)
	}
	for name, rate := range map[string]float64{
		"bare, in process": p.BareInProcess, "loop, in process": p.LoopInProcess, "bare": p.Bare, "loop": p.Loop, "processes": p.Processes,
	} {
		if rate <= 0 {
			t.Errorf("%s: %v", name, rate)
		}
	}
	pipelineTable(&table, p)
	if p.Messages != 400 || strings.Count(steps.String(), "\n") != 5*rounds || strings.Count(table.String(), "\n") != 6 {
		t.Errorf("%d messages\n%s%s", p.Messages, &steps, &table)
	}
}

// A measurement in which a message is lost, or comes twice, is none.
func TestPipeline_LossAndRepeatsFail(t *testing.T) {
	t.Parallel()
	server := sqs.New(sqs.Options{Region: benchRegion, AccountID: benchAccount})
	defer server.Close()
	client := benchClient("http://sqs.test", server.Transport())
	loses := func(ctx context.Context, r *tally) error {
		out, err := r.Client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &r.url}) // and tells nobody
		if err != nil || len(out.Messages) != 1 {
			return errors.Join(err, errors.New("no message"))
		}
		if _, err := r.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &r.url, ReceiptHandle: out.Messages[0].ReceiptHandle}); err != nil {
			return err
		}
		r.mu.Lock()
		r.want-- // else it would wait for the message
		r.mu.Unlock()
		return bareLoop(ctx, r)
	}
	twice := func(ctx context.Context, r *tally) error {
		_, err := r.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &r.url, MessageBody: aws.String("7")})
		return errors.Join(err, bareLoop(ctx, r))
	}
	if _, err := timed(t.Context(), 40, "lost", client, loses); err == nil || !strings.Contains(err.Error(), " 1 were lost") {
		t.Errorf("got %v", err)
	}
	if _, err := timed(t.Context(), 40, "twice", client, twice); err == nil || !strings.Contains(err.Error(), "of 40 messages 0 were lost") {
		t.Errorf("got %v", err)
	}
}
