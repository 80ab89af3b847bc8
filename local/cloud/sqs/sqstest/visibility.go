package sqstest

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

func changeChecks() []check {
	return []check{
		{name: "0 gives the message back at once", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			s.giveBack(url, s.one(url))
			s.one(url)
		}},
		{name: "longer counts from the call, not from the receive", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "2")
			s.send(url, "x")
			m := s.one(url)
			pause(time.Second)
			began := time.Now()
			if err := s.change(url, m.ReceiptHandle, 2); err != nil {
				s.Fatal(err)
			}
			s.one(url, waiting(10))
			s.took(began, 2*time.Second)
		}},
		{name: "shorter counts from the call too", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			began := time.Now()
			if err := s.change(url, m.ReceiptHandle, 1); err != nil {
				s.Fatal(err)
			}
			s.one(url, waiting(10))
			s.took(began, time.Second)
		}},
		{name: "is not remembered: the next receive gets the queue's", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "1")
			s.send(url, "x")
			m := s.one(url)
			if err := s.change(url, m.ReceiptHandle, 900); err != nil {
				s.Fatal(err)
			}
			s.giveBack(url, m)
			began := time.Now()
			s.one(url)
			s.one(url, waiting(10))
			s.took(began, time.Second)
		}},
		{name: "over 43,200 and below 0 are refused", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			s.code(s.change(url, m.ReceiptHandle, 43201), "InvalidParameterValue")
			s.code(s.change(url, m.ReceiptHandle, -1), "InvalidParameterValue")
			s.nothing(url) // nor did they change anything
		}},
		{name: "over 12 h in all since the receive is refused", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			pause(2 * time.Second)
			s.code(s.change(url, m.ReceiptHandle, 43200), "InvalidParameterValue")
			if err := s.change(url, m.ReceiptHandle, 43200-60); err != nil {
				s.Fatal(err)
			}
		}},
	}
}

func changeBatchChecks() []check {
	change := func(s *suite, url string, entries ...types.ChangeMessageVisibilityBatchRequestEntry) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
		return s.client.ChangeMessageVisibilityBatch(s.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url, Entries: entries})
	}
	return []check{
		{name: "a good entry and a bad one", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			out, err := change(
				s, url,
				types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0},
				types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense"), VisibilityTimeout: 5},
			)
			if err != nil || len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 {
				s.Fatalf("got %+v, %v", out, err)
			}
			if f := out.Failed[0]; *f.Id != "bad" || *f.Code != "ReceiptHandleIsInvalid" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			s.one(url)
		}},
		{name: "a timeout over the limit fails its entry alone", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			out, err := change(
				s, url, types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String("a"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 43201},
			)
			if err != nil || len(out.Successful) != 0 || len(out.Failed) != 1 || *out.Failed[0].Code != "InvalidParameterValue" {
				s.Fatalf("got %+v, %v", out, err)
			}
		}},
		{name: "ids are distinct", run: func(s *suite) {
			e := types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String("a"), ReceiptHandle: aws.String("x")}
			_, err := change(s, s.queue(), e, e)
			typed[*types.BatchEntryIdsNotDistinct](s, err)
		}},
	}
}

func notInFlightChecks() []check {
	refused := func(s *suite, err error) {
		s.Helper()
		typed[*types.MessageNotInflight](s, err)
		s.code(err, "AWS.SimpleQueueService.MessageNotInflight")
	}
	return []check{
		{name: "after a timeout set to 0", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			s.giveBack(url, m)
			refused(s, s.change(url, m.ReceiptHandle, 10))
		}},
		{name: "after a timeout that has ended", run: func(s *suite) {
			if s.Lag > 0 {
				s.Skip("AWS has been seen to accept the call for a while")
			}
			url := s.queue()
			s.send(url, "x")
			m := s.one(url, hiding(1))
			pause(time.Second + s.Slack)
			refused(s, s.change(url, m.ReceiptHandle, 10))
			s.one(url) // and it is still there for others
		}},
	}
}

// staleHandle returns the first handle of a message that has been received again and is in flight, and the second.
func staleHandle(s *suite, url string) (stale, latest *string) {
	s.Helper()
	s.send(url, "x")
	m := s.one(url)
	s.giveBack(url, m)
	return m.ReceiptHandle, s.one(url).ReceiptHandle
}

func staleDeleteChecks() []check {
	return []check{
		{name: "while another holds it", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			stale, latest := staleHandle(s, url)
			s.delete(url, stale)
			s.counts(url, "0", "1", "0")
			if err := s.change(url, latest, 0); err != nil {
				s.Fatalf("the holder's message is gone: %v", err)
			}
			s.one(url)
		}},
		{name: "the latest handle deletes, also after its timeout", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			s.giveBack(url, m)
			s.delete(url, m.ReceiptHandle)
			s.counts(url, "0", "0", "0")
		}},
		{name: "a second delete succeeds too", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			s.delete(url, m.ReceiptHandle)
			s.delete(url, m.ReceiptHandle)
			s.counts(url, "0", "0", "0")
		}},
	}
}

// mayRefuse checks that a call either succeeded or was refused. Which of the two, and how, AWS's reference leaves open for the handle
// of an earlier receive.
func (s *suite) mayRefuse(err error) {
	s.Helper()
	if _, answered := errors.AsType[smithy.APIError](err); err != nil && !answered {
		s.Fatal(err)
	}
}

func staleChangeChecks() []check {
	return []check{
		{name: "to 0", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			stale, _ := staleHandle(s, url)
			s.mayRefuse(s.change(url, stale, 0))
			s.nothing(url)
			s.counts(url, "0", "1", "0")
		}},
		{name: "to longer", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "2")
			stale, _ := staleHandle(s, url)
			began := time.Now()
			s.mayRefuse(s.change(url, stale, 900))
			s.one(url, waiting(10))
			if d := time.Since(began); d > 2*time.Second+s.Slack {
				s.Fatalf("the message came back after %v", d)
			}
		}},
	}
}

func deleteBatchChecks() []check {
	remove := func(s *suite, url string, handles ...*string) *sqs.DeleteMessageBatchOutput {
		s.Helper()
		var entries []types.DeleteMessageBatchRequestEntry
		for i, h := range handles {
			entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(string(rune('a' + i))), ReceiptHandle: h})
		}
		out, err := s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err != nil {
			s.Fatal(err)
		}
		return out
	}
	return []check{
		{name: "it fails alone", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			m := s.one(url)
			out := remove(s, url, m.ReceiptHandle, aws.String("nonsense"))
			if len(out.Successful) != 1 || *out.Successful[0].Id != "a" || len(out.Failed) != 1 {
				s.Fatalf("got %+v", out)
			}
			if f := out.Failed[0]; *f.Id != "b" || *f.Code != "ReceiptHandleIsInvalid" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			s.counts(url, "0", "0", "0")
		}},
		{name: "a stale one counts as done, and its message stays", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			stale, _ := staleHandle(s, url)
			if out := remove(s, url, stale); len(out.Successful) != 1 || len(out.Failed) != 0 {
				s.Fatalf("got %+v", out)
			}
			s.counts(url, "0", "1", "0")
		}},
		{name: "ten at once", run: func(s *suite) {
			url := s.queue()
			s.sendBatch(url, batchOf(10, "x"))
			var handles []*string
			for _, m := range s.all(url, 10) {
				handles = append(handles, m.ReceiptHandle)
			}
			if out := remove(s, url, handles...); len(out.Successful) != 10 {
				s.Fatalf("got %+v", out)
			}
			s.counts(url, "0", "0", "0")
		}},
	}
}

func handleChecks() []check {
	refused := func(s *suite, url string, handle *string) {
		s.Helper()
		_, err := s.client.DeleteMessage(s.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: handle})
		typed[*types.ReceiptHandleIsInvalid](s, err)
		s.code(err, "ReceiptHandleIsInvalid")
		typed[*types.ReceiptHandleIsInvalid](s, s.change(url, handle, 5))
	}
	return []check{
		{name: "a handle that is none", run: func(s *suite) { refused(s, s.queue(), aws.String("nonsense")) }},
	}
}
