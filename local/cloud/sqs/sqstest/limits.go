package sqstest

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const mebibyte = 1 << 20

func sizeChecks() []check {
	return []check{
		{name: "1 MiB goes", run: func(s *suite) {
			url, body := s.queue(), strings.Repeat("x", mebibyte)
			s.send(url, body)
			if m := s.one(url); *m.Body != body {
				s.Fatalf("received %d bytes", len(*m.Body))
			}
		}},
		{name: "one byte more doesn't", run: func(s *suite) {
			_, err := s.sent(s.queue(), strings.Repeat("x", mebibyte+1))
			s.code(err, "InvalidParameterValue")
		}},
		{name: "attributes count: name, type and value", run: func(s *suite) {
			url, attribute := s.queue(), attributed(map[string]types.MessageAttributeValue{"ab": text("cde")}) // 2 + 6 + 3
			s.send(url, strings.Repeat("x", mebibyte-11), attribute)
			_, err := s.sent(url, strings.Repeat("x", mebibyte-10), attribute)
			s.code(err, "InvalidParameterValue")
		}},
		{name: "the trace header doesn't count", run: func(s *suite) {
			s.send(s.queue(), strings.Repeat("x", mebibyte), func(in *sqs.SendMessageInput) {
				in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
					"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
				}
			})
		}},
		{name: "the queue's MaximumMessageSize holds, in bytes", run: func(s *suite) {
			url := s.queue("MaximumMessageSize", "1024")
			s.send(url, strings.Repeat("x", 1024))
			_, err := s.sent(url, strings.Repeat("日", 342))
			s.code(err, "InvalidParameterValue")
		}},
		{name: "an empty body is refused", run: func(s *suite) {
			_, err := s.sent(s.queue(), "")
			s.code(err, "MissingParameter")
		}},
	}
}

func batchSizeChecks() []check {
	return []check{
		{name: "the sum fails the whole batch (H05)", run: func(s *suite) {
			url := s.queue()
			_, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{
				QueueUrl: &url, Entries: batchOf(10, strings.Repeat("x", 110_000)),
			})
			typed[*types.BatchRequestTooLong](s, err)
			s.code(err, "AWS.SimpleQueueService.BatchRequestTooLong")
			s.counts(url, "0", "0", "0")
		}},
		{name: "a sum of 1 MiB goes", run: func(s *suite) {
			if out := s.sendBatch(s.queue(), batchOf(8, strings.Repeat("x", mebibyte/8))); len(out.Successful) != 8 {
				s.Fatalf("%d of 8 were taken", len(out.Successful))
			}
		}},
		{name: "one entry over the queue's limit fails alone", run: func(s *suite) {
			url := s.queue("MaximumMessageSize", "1024")
			entries := batchOf(2, "x")
			entries[1].MessageBody = aws.String(strings.Repeat("x", 1025))
			out := s.sendBatch(url, entries)
			if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Id != *entries[1].Id || *out.Failed[0].Code != "InvalidParameterValue" {
				s.Fatalf("%+v", out)
			}
		}},
	}
}

// characterChecks are H06: what SQS does not carry is refused, and all the rest comes through.
func characterChecks() []check {
	forbidden := []string{"\x00", "\x07", "\x08", "\x0b", "\x0c", "\x0e", "\x1f", "\uFFFE", "\uFFFF"}
	return []check{
		{name: "in a body (H06)", run: func(s *suite) {
			url := s.queue()
			for _, bad := range forbidden {
				_, err := s.sent(url, "a"+bad+"b")
				typed[*types.InvalidMessageContents](s, err)
				s.code(err, "InvalidMessageContents")
			}
			s.counts(url, "0", "0", "0")
		}},
		{name: "in an attribute's value (H06)", run: func(s *suite) {
			for _, bad := range forbidden {
				s.refused(map[string]types.MessageAttributeValue{"label": text("a" + bad)})
			}
		}},
		{name: "in a batch entry, which fails alone (H06)", run: func(s *suite) {
			url := s.queue()
			entries := batchOf(3, "x")
			entries[1].MessageBody = aws.String("a\x01")
			out := s.sendBatch(url, entries)
			if len(out.Successful) != 2 || len(out.Failed) != 1 {
				s.Fatalf("%d successful, %d failed, want 2 and 1", len(out.Successful), len(out.Failed))
			}
			if f := out.Failed[0]; *f.Id != *entries[1].Id || *f.Code != "InvalidMessageContents" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
		}},
		{name: "all that are allowed come through, in a body and in an attribute (H06)", run: func(s *suite) {
			url := s.queue()
			good := "\t\n\r \x7f\u0085\u00a0\u2028\ud7ff\ue000\ufdd0\ufffd\U00010000\U0001ffff\U0010ffff"
			s.send(url, good, attributed(map[string]types.MessageAttributeValue{"label": text(good)}))
			m := s.one(url)
			if *m.Body != good || aws.ToString(m.MessageAttributes["label"].StringValue) != good {
				s.Fatalf("received %q and %q, want %q", *m.Body, aws.ToString(m.MessageAttributes["label"].StringValue), good)
			}
		}},
		{name: "a JSON escape of one is plain ASCII, and comes through as it is (H06)", run: func(s *suite) {
			url, escaped := s.queue(), `{"content":"a\ufffeb\uffffc\u0001"}`
			s.send(url, escaped)
			if m := s.one(url); *m.Body != escaped {
				s.Fatalf("received %q", *m.Body)
			}
		}},
	}
}

func entryIDChecks() []check {
	send := func(s *suite, url string, entries []types.SendMessageBatchRequestEntry) error {
		_, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		return err
	}
	return []check{
		{name: "not distinct", run: func(s *suite) {
			url, same := s.queue(), batchOf(2, "x")
			same[1].Id = same[0].Id
			err := send(s, url, same)
			typed[*types.BatchEntryIdsNotDistinct](s, err)
			s.code(err, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
			s.counts(url, "0", "0", "0")
		}},
		{name: "too many", run: func(s *suite) {
			url := s.queue()
			err := send(s, url, batchOf(11, "x"))
			typed[*types.TooManyEntriesInBatchRequest](s, err)
			s.code(err, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
			s.counts(url, "0", "0", "0")
		}},
		{name: "none", run: func(s *suite) {
			err := send(s, s.queue(), []types.SendMessageBatchRequestEntry{})
			typed[*types.EmptyBatchRequest](s, err)
			s.code(err, "AWS.SimpleQueueService.EmptyBatchRequest")
		}},
		{name: "malformed ids", run: func(s *suite) {
			url := s.queue()
			for _, id := range []string{"", "with space", "a:b", strings.Repeat("x", 81)} {
				bad := batchOf(1, "x")
				bad[0].Id = &id
				err := send(s, url, bad)
				typed[*types.InvalidBatchEntryId](s, err)
				s.code(err, "AWS.SimpleQueueService.InvalidBatchEntryId")
			}
			good := batchOf(1, "x")
			good[0].Id = aws.String(strings.Repeat("x", 76) + "-_A1")
			if err := send(s, url, good); err != nil {
				s.Fatal(err)
			}
		}},
		{name: "of deletes: not distinct, too many", run: func(s *suite) {
			url := s.queue()
			var entries []types.DeleteMessageBatchRequestEntry
			for i := range 11 {
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: aws.String("x")})
			}
			_, err := s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
			typed[*types.TooManyEntriesInBatchRequest](s, err)
			entries[1].Id = entries[0].Id
			_, err = s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries[:2]})
			typed[*types.BatchEntryIdsNotDistinct](s, err)
		}},
	}
}
