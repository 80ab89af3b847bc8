package sqstest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func sendChecks() []check {
	return []check{
		{"send: attributes of all types come back, with AWS's checksum", func(s *suite) {
			url := s.queue()
			sent := s.send(url, "msg", func(in *sqs.SendMessageInput) {
				in.MessageAttributes = map[string]types.MessageAttributeValue{
					"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi"),
				}
			})
			const onAWS = "4c360f3fdafd970e05fae2f149d997f5" // recorded there for these three
			if got := aws.ToString(sent.MD5OfMessageAttributes); got != onAWS {
				s.Fatalf("MD5OfMessageAttributes = %s, want %s", got, onAWS)
			}
			if m := s.one(url); aws.ToString(m.MD5OfMessageAttributes) != onAWS || len(m.MessageAttributes) != 3 {
				s.Fatalf("received %v, checksum %s", m.MessageAttributes, aws.ToString(m.MD5OfMessageAttributes))
			}
		}},
		{"send: labels, 38 digits, binary and non-ASCII values (H31)", func(s *suite) {
			url := s.queue()
			want := map[string]types.MessageAttributeValue{
				"lane":  {DataType: aws.String("String.label"), StringValue: aws.String("bg")},
				"tries": {DataType: aws.String("Number.int"), StringValue: aws.String("2")},
				"blob":  {DataType: aws.String("Binary.gz"), BinaryValue: []byte{0x1f, 0x8b, 0, 0xff}},
				"big":   {DataType: aws.String("Number"), StringValue: aws.String("12345678901234567890123456789012345678")},
				"odd":   {DataType: aws.String("String"), StringValue: aws.String("Tür – 日本")},
			}
			sent := s.send(url, "x", func(in *sqs.SendMessageInput) { in.MessageAttributes = want })
			m := s.one(url)
			for name, v := range want {
				got := m.MessageAttributes[name]
				if aws.ToString(got.DataType) != *v.DataType || aws.ToString(got.StringValue) != aws.ToString(v.StringValue) ||
					!bytes.Equal(got.BinaryValue, v.BinaryValue) {
					s.Errorf("%s came back as %+v", name, got)
				}
			}
			if aws.ToString(m.MD5OfMessageAttributes) != aws.ToString(sent.MD5OfMessageAttributes) {
				s.Error("the checksums of send and receive differ")
			}
		}},
		{"send batch: each entry's answer and attributes", func(s *suite) {
			url := s.queue()
			out, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{
				{Id: aws.String("a"), MessageBody: aws.String("one"), MessageAttributes: map[string]types.MessageAttributeValue{"Foo": text("Bar")}},
				{Id: aws.String("b"), MessageBody: aws.String("two\x01")},
				{Id: aws.String("c"), MessageBody: aws.String("three")},
			}})
			if err != nil {
				s.Fatal(err)
			}
			if len(out.Successful) != 2 || len(out.Failed) != 1 {
				s.Fatalf("%d successful, %d failed, want 2 and 1", len(out.Successful), len(out.Failed))
			}
			if f := out.Failed[0]; *f.Id != "b" || *f.Code != "InvalidMessageContents" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			const onAWS = "ae7155c6026991b6d54b11589678bf9c"
			if a := out.Successful[0]; *a.Id != "a" || aws.ToString(a.MD5OfMessageAttributes) != onAWS || aws.ToString(a.MessageId) == "" {
				s.Fatalf("successful: %+v", a)
			}
			if got := s.receive(url); len(got) != 2 {
				s.Fatalf("received %d messages, want the 2 that were taken", len(got))
			}
		}},
		{"delay: of a message, a batch entry and the queue, and a poll wakes as it ends", func(s *suite) {
			plain, slow := s.queue(), s.queue("DelaySeconds", "1")
			for name, send := range map[string]func() string{
				"message": func() string {
					s.send(plain, "x", func(in *sqs.SendMessageInput) { in.DelaySeconds = 1 })
					return plain
				},
				"batch entry": func() string {
					_, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &plain, Entries: []types.SendMessageBatchRequestEntry{
						{Id: aws.String("a"), MessageBody: aws.String("x"), DelaySeconds: 1},
					}})
					if err != nil {
						s.Fatal(err)
					}
					return plain
				},
				"queue": func() string { s.send(slow, "x"); return slow },
			} {
				began := time.Now()
				url := send()
				s.counts(url, "0", "0", "1")
				m := s.one(url, waiting(5))
				if d := time.Since(began); d < time.Second || d > time.Second+soon {
					s.Errorf("delay of %s: woke after %v, want 1s", name, d)
				}
				s.delete(url, m.ReceiptHandle)
			}
		}},
		{"MessageGroupId on a standard queue is given back", func(s *suite) {
			url := s.queue()
			s.send(url, "x", func(in *sqs.SendMessageInput) { in.MessageGroupId = aws.String("tenant-1!") })
			if got := s.one(url).Attributes["MessageGroupId"]; got != "tenant-1!" {
				s.Fatalf("MessageGroupId = %q", got)
			}
			for _, bad := range []string{"with space", "bücher", strings.Repeat("x", 129)} {
				_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x"), MessageGroupId: &bad})
				s.code(err, "InvalidParameterValue")
			}
		}},
	}
}

func limitChecks() []check {
	return []check{
		{"size: 1 MiB goes, one byte more doesn't, attributes count", func(s *suite) {
			url := s.queue()
			body := strings.Repeat("x", 1<<20)
			s.send(url, body)
			if m := s.one(url); len(*m.Body) != 1<<20 {
				s.Fatalf("received %d bytes", len(*m.Body))
			}
			_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body + "x")})
			s.code(err, "InvalidParameterValue")
			_, err = s.client.SendMessage(s.Context(), &sqs.SendMessageInput{
				QueueUrl: &url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{"a": text("b")},
			})
			s.code(err, "InvalidParameterValue")
		}},
		{"size: the queue's MaximumMessageSize, in bytes", func(s *suite) {
			url := s.queue("MaximumMessageSize", "1024")
			s.send(url, strings.Repeat("x", 1024))
			_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(strings.Repeat("日", 342))})
			s.code(err, "InvalidParameterValue")
		}},
		{"size: a batch over 1 MiB fails whole (H05)", func(s *suite) {
			url := s.queue()
			entries := batchOf(10, strings.Repeat("x", 110_000))
			_, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
			typed[*types.BatchRequestTooLong](s, err)
			s.code(err, "AWS.SimpleQueueService.BatchRequestTooLong")
			s.counts(url, "0", "0", "0")
		}},
		{"characters SQS does not carry are refused (H06)", func(s *suite) {
			url := s.queue()
			for _, bad := range []string{"\x00", "a\x07", "\uFFFE", "\uFFFF", "\x1f"} {
				_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &bad})
				typed[*types.InvalidMessageContents](s, err)
			}
			_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{
				QueueUrl: &url, MessageBody: aws.String("x"), MessageAttributes: map[string]types.MessageAttributeValue{"a": text("\x07")},
			})
			s.code(err, "InvalidParameterValue")
			good := "\t\n\r \x7f\u00a0\ud7ff\ue000\ufffd\U00010000\U0010ffff"
			s.send(url, good)
			if got := *s.one(url).Body; got != good {
				s.Fatalf("received %q, want %q", got, good)
			}
		}},
		{"message attributes: number, names, types and values are checked", func(s *suite) {
			url := s.queue()
			eleven := map[string]types.MessageAttributeValue{}
			for i := range 11 {
				eleven[fmt.Sprint("a", i)] = text("x")
			}
			one := func(name, kind, value string) map[string]types.MessageAttributeValue {
				return map[string]types.MessageAttributeValue{name: {DataType: &kind, StringValue: &value}}
			}
			for _, bad := range []map[string]types.MessageAttributeValue{
				eleven,
				one("AWS.x", "String", "x"), one("a b", "String", "x"), one(".a", "String", "x"), one("a..b", "String", "x"),
				one("a", "Text", "x"), one("a", "String", ""), one("a", "Number", "1x"), one("a", "Number", strings.Repeat("1", 39)),
				one("a", "Binary", "x"), // its value is missing
			} {
				_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x"), MessageAttributes: bad})
				s.code(err, "InvalidParameterValue")
			}
		}},
		{"an empty body and a delay over 900 s are refused", func(s *suite) {
			url := s.queue()
			_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("")})
			s.code(err, "MissingParameter")
			_, err = s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x"), DelaySeconds: 901})
			s.code(err, "InvalidParameterValue")
		}},
		{"batch ids: distinct, at most ten, at least one, well formed", func(s *suite) {
			url := s.queue()
			send := func(entries []types.SendMessageBatchRequestEntry) error {
				_, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
				return err
			}
			same := batchOf(2, "x")
			same[1].Id = same[0].Id
			err := send(same)
			typed[*types.BatchEntryIdsNotDistinct](s, err)
			s.code(err, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
			err = send(batchOf(11, "x"))
			typed[*types.TooManyEntriesInBatchRequest](s, err)
			s.code(err, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
			err = send([]types.SendMessageBatchRequestEntry{})
			typed[*types.EmptyBatchRequest](s, err)
			for _, id := range []string{"", "with space", "a:b", strings.Repeat("x", 81)} {
				bad := batchOf(1, "x")
				bad[0].Id = &id
				err = send(bad)
				typed[*types.InvalidBatchEntryId](s, err)
			}
			s.counts(url, "0", "0", "0")
		}},
	}
}

func batchOf(n int, body string) []types.SendMessageBatchRequestEntry {
	entries := make([]types.SendMessageBatchRequestEntry, n)
	for i := range entries {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint("id-", i)), MessageBody: &body}
	}
	return entries
}
