package sqstest

import (
	"bytes"
	"crypto/md5" // the API's checksum, not a protection
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func sendChecks() []check {
	return []check{
		{name: "they come back, with AWS's checksum", run: func(s *suite) {
			url := s.queue()
			sent := s.send(url, "msg", attributed(map[string]types.MessageAttributeValue{
				"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi"),
			}))
			const onAWS = "4c360f3fdafd970e05fae2f149d997f5" // recorded there for these three
			if got := aws.ToString(sent.MD5OfMessageAttributes); got != onAWS {
				s.Fatalf("MD5OfMessageAttributes = %s, want %s", got, onAWS)
			}
			if m := s.one(url); aws.ToString(m.MD5OfMessageAttributes) != onAWS || len(m.MessageAttributes) != 3 {
				s.Fatalf("received %v, checksum %s", m.MessageAttributes, aws.ToString(m.MD5OfMessageAttributes))
			}
		}},
		{name: "labelled types, 38 digits, binary and non-ASCII values (H31)", run: labels},
		{name: "the checksum is over the whole type, its label too (H31)", run: func(s *suite) {
			url := s.queue()
			for _, a := range []types.MessageAttributeValue{labelled("Number.seconds", "5"), labelled("String.json", "{}"), {
				DataType: aws.String("Binary.gz"), BinaryValue: []byte{0x1f, 0x8b},
			}} {
				attributes := map[string]types.MessageAttributeValue{"a": a}
				sent := s.send(url, "x", attributed(attributes))
				if got, want := aws.ToString(sent.MD5OfMessageAttributes), checksum(attributes); got != want {
					s.Errorf("%s: checksum %s, want %s", *a.DataType, got, want)
				}
			}
		}},
		{name: "a batch: each entry's answer, and one bad entry", run: func(s *suite) {
			url := s.queue()
			out := s.sendBatch(url, []types.SendMessageBatchRequestEntry{
				{Id: aws.String("a"), MessageBody: aws.String("one"), MessageAttributes: map[string]types.MessageAttributeValue{"Foo": text("Bar")}},
				{Id: aws.String("b"), MessageBody: aws.String("two"), DelaySeconds: 901},
				{Id: aws.String("c"), MessageBody: aws.String("three")},
			})
			if len(out.Successful) != 2 || len(out.Failed) != 1 {
				s.Fatalf("%d successful, %d failed, want 2 and 1", len(out.Successful), len(out.Failed))
			}
			if f := out.Failed[0]; *f.Id != "b" || *f.Code != "InvalidParameterValue" || !f.SenderFault {
				s.Fatalf("failed: %+v", f)
			}
			const onAWS = "ae7155c6026991b6d54b11589678bf9c"
			if a := out.Successful[0]; *a.Id != "a" || aws.ToString(a.MD5OfMessageAttributes) != onAWS || aws.ToString(a.MessageId) == "" {
				s.Fatalf("successful: %+v", a)
			}
			s.all(url, 2)
		}},
		{name: "the trace header comes back, with a checksum of its own", run: func(s *suite) {
			url := s.queue()
			trace := map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
			}
			sent := s.send(url, "x", func(in *sqs.SendMessageInput) { in.MessageSystemAttributes = trace })
			want := checksum(map[string]types.MessageAttributeValue{"AWSTraceHeader": text(*trace["AWSTraceHeader"].StringValue)})
			if got := aws.ToString(sent.MD5OfMessageSystemAttributes); got != want {
				s.Errorf("MD5OfMessageSystemAttributes = %q, want %q", got, want)
			}
			if got := s.one(url).Attributes["AWSTraceHeader"]; got != *trace["AWSTraceHeader"].StringValue {
				s.Errorf("AWSTraceHeader = %q", got)
			}
		}},
		{name: "over ten are refused", run: func(s *suite) {
			attributes := map[string]types.MessageAttributeValue{}
			for i := range 10 {
				attributes[fmt.Sprint("a", i)] = text("x")
			}
			url := s.queue()
			s.send(url, "x", attributed(attributes))
			attributes["a10"] = text("x")
			_, err := s.sent(url, "x", attributed(attributes))
			s.code(err, "InvalidParameterValue")
		}},
		{name: "bad names are refused", run: func(s *suite) {
			s.refused(map[string]types.MessageAttributeValue{
				"AWS.x": text("x"), "amazon.x": text("x"), "a b": text("x"), ".a": text("x"), "a.": text("x"), "a..b": text("x"),
				strings.Repeat("a", 257): text("x"),
			})
		}},
		{name: "types that are none, and values that are not of their type, are refused", run: func(s *suite) {
			for _, bad := range []types.MessageAttributeValue{
				labelled("Text", "x"), labelled("string", "x"), labelled("String", ""), labelled("Number", "1x"),
				labelled("Number", strings.Repeat("1", 39)), labelled("Binary", "x"),
			} {
				s.refused(map[string]types.MessageAttributeValue{"a": bad})
			}
		}},
	}
}

// refused checks that a message is refused with each of the attributes alone.
func (s *suite) refused(attributes map[string]types.MessageAttributeValue) {
	s.Helper()
	url := s.queue()
	for name, value := range attributes {
		_, err := s.sent(url, "x", attributed(map[string]types.MessageAttributeValue{name: value}))
		s.code(err, "InvalidParameterValue")
	}
}

func labels(s *suite) {
	url := s.queue()
	want := map[string]types.MessageAttributeValue{
		"lane":  labelled("String.label", "bg"),
		"tries": labelled("Number.int", "2"),
		"blob":  {DataType: aws.String("Binary.gz"), BinaryValue: []byte{0x1f, 0x8b, 0, 0xff}},
		"big":   labelled("Number", "12345678901234567890123456789012345678"),
		"odd":   text("Tür – 日本"),
	}
	sent := s.send(url, "x", attributed(want))
	m := s.one(url)
	for name, v := range want {
		got := m.MessageAttributes[name]
		if aws.ToString(got.DataType) != *v.DataType || aws.ToString(got.StringValue) != aws.ToString(v.StringValue) ||
			!bytes.Equal(got.BinaryValue, v.BinaryValue) {
			s.Errorf("%s came back as %+v", name, got)
		}
	}
	if got := checksum(want); aws.ToString(sent.MD5OfMessageAttributes) != got || aws.ToString(m.MD5OfMessageAttributes) != got {
		s.Errorf("checksums %s and %s, want %s", aws.ToString(sent.MD5OfMessageAttributes), aws.ToString(m.MD5OfMessageAttributes), got)
	}
}

// checksum is MD5OfMessageAttributes as the developer guide describes it, written for this suite alone.
func checksum(attributes map[string]types.MessageAttributeValue) string {
	h := md5.New() // see the import
	part := func(p []byte) {
		_ = binary.Write(h, binary.BigEndian, int32(len(p))) // short; a hash never fails
		h.Write(p)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		part([]byte(name))
		part([]byte(*a.DataType))
		if strings.HasPrefix(*a.DataType, "Binary") {
			h.Write([]byte{2})
			part(a.BinaryValue)
			continue
		}
		h.Write([]byte{1})
		part([]byte(*a.StringValue))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func delayChecks() []check {
	// after checks that a message sent just now is delayed by a second, and ends a poll then.
	after := func(s *suite, url string, began time.Time) {
		s.Helper()
		if s.Lag == 0 {
			s.counts(url, "0", "0", "1")
		}
		s.one(url, waiting(10))
		s.took(began, time.Second)
	}
	return []check{
		{name: "of a message", run: func(s *suite) {
			url, began := s.queue(), time.Now()
			s.send(url, "x", delayed(1))
			after(s, url, began)
		}},
		{name: "of a batch entry, and only of it", run: func(s *suite) {
			url, began := s.queue(), time.Now()
			entries := batchOf(2, "x")
			entries[0].DelaySeconds = 1
			s.sendBatch(url, entries)
			m := s.one(url)
			s.delete(url, m.ReceiptHandle)
			after(s, url, began)
		}},
		{name: "of the queue", run: func(s *suite) {
			url, began := s.queue("DelaySeconds", "1"), time.Now()
			s.send(url, "x")
			after(s, url, began)
		}},
		{name: "of the queue, for a batch", run: func(s *suite) {
			url, began := s.queue("DelaySeconds", "1"), time.Now()
			s.sendBatch(url, batchOf(1, "x"))
			after(s, url, began)
		}},
		{name: "of a message overrides the queue's", run: func(s *suite) {
			url, began := s.queue("DelaySeconds", "900"), time.Now()
			s.send(url, "x", delayed(1))
			after(s, url, began)
		}},
		{name: "of the queue, changed: not for what is there", run: func(s *suite) {
			url, began := s.queue("DelaySeconds", "1"), time.Now()
			s.send(url, "x")
			if err := s.set(url, "DelaySeconds", "900"); err != nil {
				s.Fatal(err)
			}
			after(s, url, began)
		}},
		{name: "over 900 s is refused", run: func(s *suite) {
			_, err := s.sent(s.queue(), "x", delayed(901))
			s.code(err, "InvalidParameterValue")
		}},
	}
}

func groupChecks() []check {
	return []check{
		{name: "of a message", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x", grouped("tenant-1!"))
			if got := s.one(url).Attributes["MessageGroupId"]; got != "tenant-1!" {
				s.Fatalf("MessageGroupId = %q", got)
			}
		}},
		{name: "of a batch entry", run: func(s *suite) {
			url, longest := s.queue(), strings.Repeat("x", 128)
			entries := batchOf(1, "x")
			entries[0].MessageGroupId = &longest
			s.sendBatch(url, entries)
			if got := s.one(url).Attributes["MessageGroupId"]; got != longest {
				s.Fatalf("MessageGroupId = %q", got)
			}
		}},
		{name: "none is told of a message without", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			if got, ok := s.one(url).Attributes["MessageGroupId"]; ok {
				s.Fatalf("MessageGroupId = %q", got)
			}
		}},
		{name: "spaces, non-ASCII letters and over 128 characters are refused", run: func(s *suite) {
			url := s.queue()
			for _, bad := range []string{"with space", "bücher", strings.Repeat("x", 129)} {
				_, err := s.sent(url, "x", grouped(bad))
				s.code(err, "InvalidParameterValue")
			}
		}},
	}
}
