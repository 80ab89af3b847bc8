package sqstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func redriveChecks() []check {
	return []check{
		{"redrive: id, attributes, time and source are kept", func(s *suite) {
			dead := s.queue()
			url := s.queue("RedrivePolicy", s.redrive(dead, "2"), "VisibilityTimeout", "0")
			sent := s.send(url, "poison", func(in *sqs.SendMessageInput) {
				in.MessageAttributes = map[string]types.MessageAttributeValue{"Foo": text("Bar")}
				in.MessageGroupId = aws.String("tenant")
			})
			first := s.one(url)
			s.one(url)
			s.nothing(url)
			m := s.one(dead)
			if *m.MessageId != *sent.MessageId || *m.Body != "poison" || aws.ToString(m.MessageAttributes["Foo"].StringValue) != "Bar" {
				s.Errorf("dead letter %+v", m)
			}
			for name, want := range map[string]string{
				"DeadLetterQueueSourceArn": s.arn(url), "SentTimestamp": first.Attributes["SentTimestamp"], "MessageGroupId": "tenant",
				"ApproximateReceiveCount": "3",
			} {
				if m.Attributes[name] != want {
					s.Errorf("%s = %q, want %q", name, m.Attributes[name], want)
				}
			}
		}},
		{"redrive: bad policies are refused", func(s *suite) {
			url := s.queue()
			arn := s.arn(url)
			for _, bad := range []string{
				`{"deadLetterTargetArn":"` + arn + `-none-such","maxReceiveCount":"3"}`,
				`{"deadLetterTargetArn":"dummy","maxReceiveCount":"3"}`,
				`{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"0"}`,
				`{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"1001"}`,
				`{"maxReceiveCount":"3"}`,
				`nonsense`,
			} {
				_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{
					QueueName: aws.String("llmq-no-dlq"), Attributes: map[string]string{"RedrivePolicy": bad},
				})
				s.code(err, "InvalidParameterValue")
			}
		}},
	}
}

func moveChecks() []check {
	return []check{
		{"move task: back to the source, as a new message", func(s *suite) {
			dead := s.queue()
			url := s.queue("RedrivePolicy", s.redrive(dead, "1"), "VisibilityTimeout", "0")
			sent := s.send(url, "poison")
			s.one(url)
			s.nothing(url)
			s.counts(dead, "1", "0", "0")
			source := s.arn(dead)
			if _, err := s.client.StartMessageMoveTask(s.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: &source}); err != nil {
				s.Fatal(err)
			}
			m := s.one(url, waiting(20))
			if *m.MessageId == *sent.MessageId || m.Attributes["ApproximateReceiveCount"] != "1" || *m.Body != "poison" {
				s.Errorf("moved message %+v", m)
			}
			task := s.move(source, "COMPLETED")
			if task.ApproximateNumberOfMessagesMoved != 1 || aws.ToInt64(task.ApproximateNumberOfMessagesToMove) != 1 ||
				task.TaskHandle != nil || task.DestinationArn != nil {
				s.Errorf("task %+v", task)
			}
		}},
		{"move task: one at a time, and it can be cancelled", func(s *suite) {
			dead := s.queue()
			s.queue("RedrivePolicy", s.redrive(dead, "1"))
			destination, source := s.arn(s.queue()), s.arn(dead)
			for i := range 5 {
				s.send(dead, fmt.Sprint(i))
			}
			in := &sqs.StartMessageMoveTaskInput{SourceArn: &source, DestinationArn: &destination, MaxNumberOfMessagesPerSecond: aws.Int32(1)}
			started, err := s.client.StartMessageMoveTask(s.Context(), in)
			if err != nil {
				s.Fatal(err)
			}
			_, err = s.client.StartMessageMoveTask(s.Context(), in)
			s.code(err, "InvalidParameterValue")
			if task := s.move(source, "RUNNING"); aws.ToString(task.TaskHandle) != *started.TaskHandle ||
				aws.ToInt32(task.MaxNumberOfMessagesPerSecond) != 1 || aws.ToString(task.DestinationArn) != destination {
				s.Errorf("task %+v", task)
			}
			if _, err := s.client.CancelMessageMoveTask(s.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: started.TaskHandle}); err != nil {
				s.Fatal(err)
			}
			s.move(source, "CANCELLED")
		}},
		{"move task: errors", func(s *suite) {
			dead, other := s.queue(), s.queue()
			s.queue("RedrivePolicy", s.redrive(dead, "1"))
			source, notDead := s.arn(dead), s.arn(other)
			start := func(source string, destination *string) error {
				_, err := s.client.StartMessageMoveTask(s.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: &source, DestinationArn: destination})
				return err
			}
			s.code(start(notDead, nil), "InvalidParameterValue")
			for _, err := range []error{start(source+"-none-such", nil), start(source, aws.String(notDead+"-none-such"))} {
				if !resourceNotFound(err) {
					s.Errorf("error %v, want ResourceNotFoundException", err)
				}
			}
			_, err := s.client.CancelMessageMoveTask(s.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("nonsense")})
			s.code(err, "InvalidParameterValue")
		}},
	}
}

// move waits until the latest task of a source has a status, and returns it.
func (s *suite) move(source, status string) types.ListMessageMoveTasksResultEntry {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	for {
		out, err := s.client.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &source})
		if err != nil {
			s.Fatalf("wait for a move task to be %s: %v", status, err)
		}
		if len(out.Results) == 1 && aws.ToString(out.Results[0].Status) == status {
			return out.Results[0]
		}
	}
}

func loadChecks() []check {
	return []check{{"8 consumers, 400 messages: none lost, none twice", func(s *suite) {
		const messages, consumers = 400, 8
		url := s.queue("VisibilityTimeout", "120")
		ctx, done := context.WithTimeout(s.Context(), 60*time.Second)
		defer done()
		var (
			mu   sync.Mutex
			seen = map[string]int{}
			wg   sync.WaitGroup
		)
		for range consumers {
			wg.Go(func() {
				for ctx.Err() == nil {
					n, err := consume(ctx, s.client, url, func(body string) {
						mu.Lock()
						defer mu.Unlock()
						seen[body]++
						if len(seen) == messages {
							done()
						}
					})
					if err != nil && !errors.Is(err, context.Canceled) {
						s.Errorf("consume, after %d messages: %v", n, err)
						return
					}
				}
			})
		}
		for batch := range messages / 10 {
			entries := batchOf(10, "")
			for i := range entries {
				entries[i].MessageBody = aws.String(fmt.Sprint("message ", batch*10+i))
			}
			if _, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries}); err != nil {
				s.Errorf("send: %v", err)
				done()
			}
		}
		wg.Wait()
		var twice []string
		for body, n := range seen {
			if n > 1 {
				twice = append(twice, body)
			}
		}
		if len(seen) != messages || len(twice) > 0 {
			s.Fatalf("%d of %d messages came, more than once: %s", len(seen), messages, strings.Join(twice, ", "))
		}
	}}}
}

// consume receives once and deletes what it got.
func consume(ctx context.Context, client *sqs.Client, url string, each func(body string)) (int, error) {
	out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20})
	if err != nil || len(out.Messages) == 0 {
		return 0, err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
	for i, m := range out.Messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle}
	}
	// Not under ctx: the message that ends the check must be deleted too.
	deleted, err := client.DeleteMessageBatch(context.WithoutCancel(ctx), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return 0, err
	}
	if len(deleted.Failed) > 0 {
		return 0, fmt.Errorf("delete: %s", aws.ToString(deleted.Failed[0].Code))
	}
	for _, m := range out.Messages {
		each(*m.Body)
	}
	return len(out.Messages), nil
}
