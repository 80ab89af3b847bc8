package sqstest

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func visibilityChecks() []check {
	return []check{
		{"change visibility: 0, longer, and over the limit", func(s *suite) {
			url := s.queue("VisibilityTimeout", "1")
			s.send(url, "x")
			m := s.one(url)
			if err := s.change(url, m.ReceiptHandle, 0); err != nil {
				s.Fatal(err)
			}
			m = s.one(url, waiting(0))
			began := time.Now()
			if err := s.change(url, m.ReceiptHandle, 2); err != nil {
				s.Fatal(err)
			}
			s.code(s.change(url, m.ReceiptHandle, 43201), "InvalidParameterValue")
			s.code(s.change(url, m.ReceiptHandle, -1), "InvalidParameterValue")
			s.one(url, waiting(5))
			s.took(began, 2*time.Second, 2*time.Second+soon)
		}},
		{"change visibility batch: one bad entry", func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			out, err := s.client.ChangeMessageVisibilityBatch(s.Context(), &sqs.ChangeMessageVisibilityBatchInput{
				QueueUrl: &url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
					{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0},
					{Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense"), VisibilityTimeout: 5},
				},
			})
			if err != nil || len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 {
				s.Fatalf("got %+v, %v", out, err)
			}
			if f := out.Failed[0]; *f.Id != "bad" || *f.Code != "ReceiptHandleIsInvalid" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			s.one(url, waiting(0))
		}},
		{"change visibility of a message not in flight", func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			if err := s.change(url, m.ReceiptHandle, 0); err != nil {
				s.Fatal(err)
			}
			err := s.change(url, m.ReceiptHandle, 10)
			typed[*types.MessageNotInflight](s, err)
			s.code(err, "AWS.SimpleQueueService.MessageNotInflight")
		}},
		{"stale handle: delete succeeds and the message stays", func(s *suite) {
			url := s.queue()
			stale := staleHandle(s, url)
			s.delete(url, stale)
			s.counts(url, "0", "1", "0")
		}},
		{"stale handle: cannot change the new holder's timeout", func(s *suite) {
			url := s.queue()
			stale := staleHandle(s, url)
			if err := s.change(url, stale, 0); err != nil {
				s.code(err, "InvalidParameterValue")
			}
			s.nothing(url)
		}},
		{"the latest handle deletes after its timeout has ended, and twice", func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			if err := s.change(url, m.ReceiptHandle, 0); err != nil {
				s.Fatal(err)
			}
			s.delete(url, m.ReceiptHandle)
			s.delete(url, m.ReceiptHandle)
			s.counts(url, "0", "0", "0")
		}},
		{"delete batch: one bad handle", func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			out, err := s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{
					{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle},
					{Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense")},
				},
			})
			if err != nil || len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 {
				s.Fatalf("got %+v, %v", out, err)
			}
			if f := out.Failed[0]; *f.Id != "bad" || *f.Code != "ReceiptHandleIsInvalid" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			s.counts(url, "0", "0", "0")
		}},
		{"a bad handle is a typed error", func(s *suite) {
			url := s.queue()
			_, err := s.client.DeleteMessage(s.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: aws.String("nonsense")})
			typed[*types.ReceiptHandleIsInvalid](s, err)
			typed[*types.ReceiptHandleIsInvalid](s, s.change(url, aws.String("nonsense"), 5))
		}},
	}
}

// staleHandle returns the first handle of a message that has been received again and is in flight.
func staleHandle(s *suite, url string) *string {
	s.Helper()
	s.send(url, "x")
	m := s.one(url)
	if err := s.change(url, m.ReceiptHandle, 0); err != nil {
		s.Fatal(err)
	}
	s.one(url)
	return m.ReceiptHandle
}
