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

func fairChecks() []check {
	// busy is a queue of which one group has many messages in flight and many more waiting.
	busy := func(s *suite) string {
		s.Helper()
		url := s.queue("VisibilityTimeout", "900")
		for range 10 {
			entries := batchOf(10, "noisy")
			for i := range entries {
				entries[i].MessageGroupId = aws.String("noisy")
			}
			s.sendBatch(url, entries)
		}
		for range 5 {
			s.all(url, 10)
		}
		return url
	}
	// before counts how many messages of the busy group come until that of another does.
	before := func(s *suite, url, body string) int {
		s.Helper()
		for n := range 50 {
			if *s.one(url).Body == body {
				return n
			}
		}
		s.Fatalf("the whole backlog came before %q", body)
		return 0
	}
	return []check{
		{name: "a quiet group's message goes before a noisy one's backlog", run: func(s *suite) {
			url := busy(s)
			s.send(url, "quiet", grouped("quiet"))
			if n := before(s, url, "quiet"); s.Lag == 0 && n > 0 || n > 25 {
				s.Fatalf("%d messages of the noisy group came first", n)
			}
		}},
		{name: "a message without a group is a group of its own", run: func(s *suite) {
			url := busy(s)
			s.send(url, "alone")
			if n := before(s, url, "alone"); s.Lag == 0 && n > 0 || n > 25 {
				s.Fatalf("%d messages of the noisy group came first", n)
			}
		}},
		{name: "the noisy group is served when nobody else is there", run: func(s *suite) {
			url := busy(s)
			s.all(url, 10)
		}},
	}
}

func loadChecks() []check {
	return []check{{name: "sent in batches", run: func(s *suite) {
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
