package eventsource

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
)

func render(t *testing.T, messages ...types.Message) []message {
	t.Helper()
	var out []message
	for _, m := range messages {
		msg, err := newMessage(m, newBench().mapping, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, msg)
	}
	return out
}

func fullMessage() types.Message {
	return types.Message{
		MessageId: aws.String("059f36b4-87a3-44ab-83d2-661975830a7d"), ReceiptHandle: aws.String("AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a..."),
		Body: aws.String("<b>café ☕ & \"x\"</b>"), MD5OfBody: aws.String("e4e68fb7bd0e697a0ae8f1bb342846b3"),
		MD5OfMessageAttributes: aws.String("00484c68e9b0ef6a4e3e2ea5bf26a8b2"),
		Attributes: map[string]string{
			"ApproximateReceiveCount": "2", "SentTimestamp": "1545082649183",
			"SenderId": "AIDAIENQZJOLO23YVJ4VO", "ApproximateFirstReceiveTimestamp": "1545082649185", "MessageGroupId": "t-1",
			"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793", "DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:000000000000:src",
		},
		MessageAttributes: map[string]types.MessageAttributeValue{
			"lane": {DataType: aws.String("String"), StringValue: aws.String("rt")},
			"n":    {DataType: aws.String("Number"), StringValue: aws.String("7")},
			"raw":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		},
	}
}

func TestEvent_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "event.json", append(event(render(t, fullMessage(), texts("bare")[0])), '\n'))
}

func TestEvent_IsWhatAWSLambdaGoReads(t *testing.T) {
	t.Parallel()
	var got events.SQSEvent
	if err := json.Unmarshal(event(render(t, fullMessage())), &got); err != nil {
		t.Fatal(err)
	}
	r := got.Records[0]
	if r.Body != "<b>café ☕ & \"x\"</b>" || r.EventSource != "aws:sqs" || r.AWSRegion != "eu-west-1" ||
		r.Attributes["ApproximateReceiveCount"] != "2" || *r.MessageAttributes["lane"].StringValue != "rt" {
		t.Errorf("got %+v", r)
	}
	if diff := cmp.Diff([]byte{0, 255}, r.MessageAttributes["raw"].BinaryValue); diff != "" {
		t.Error(diff)
	}
}

func TestCut_KeepsToNumberAndBytes(t *testing.T) {
	t.Parallel()
	one := render(t, texts("a")[0])[0]
	size := len(one.record) + 1
	base := len(eventHead) + len(eventTail) - 1
	tests := []struct {
		name                 string
		count, n, room, want int
	}{
		{"all fit", 3, 10, base + 3*size, 3},
		{"one byte short", 3, 10, base + 3*size - 1, 2},
		{"by number", 5, 2, 1 << 20, 2},
		{"first is too large", 2, 10, 1, 1},
	}
	for _, tt := range tests {
		messages := make([]message, tt.count)
		for i := range messages {
			messages[i] = one
		}
		batch, rest := cut(messages, tt.n, tt.room)
		if len(batch) != tt.want || len(rest) != tt.count-tt.want {
			t.Errorf("%s: %d and %d, want %d and %d", tt.name, len(batch), len(rest), tt.want, tt.count-tt.want)
		}
		if len(batch) > 1 && len(event(batch)) > tt.room {
			t.Errorf("%s: event of %d bytes is over %d", tt.name, len(event(batch)), tt.room)
		}
	}
}

func TestKept_EveryKindOfReply(t *testing.T) {
	t.Parallel()
	batch := render(t, texts("m1", "m2", "m3")...)
	tests := []struct {
		name, reply string
		want        string // ids kept, or "fails"
	}{
		{"empty body", ``, ""},
		{"blank body", " \n", ""},
		{"null", `null`, ""},
		{"empty object", `{}`, ""},
		{"empty list", `{"batchItemFailures":[]}`, ""},
		{"null list", `{"batchItemFailures":null}`, ""},
		{"other keys", `{"statusCode":200}`, ""},
		{"key in capitals is another key", `{"BatchItemFailures":[{"itemIdentifier":"m1"}]}`, ""},
		{"one id", `{"batchItemFailures":[{"itemIdentifier":"m2"}]}`, "m2"},
		{"two ids", `{"batchItemFailures":[{"itemIdentifier":"m3"},{"itemIdentifier":"m1"}]}`, "m1 m3"},
		{"id twice", `{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"m1"}]}`, "m1"},
		{"extra keys of an item", `{"batchItemFailures":[{"itemIdentifier":"m1","why":"x"}]}`, "m1"},
		{"invalid JSON", `{"batchItemFailures":[`, "fails"},
		{"text after JSON", `{"batchItemFailures":[]} x`, "fails"},
		{"a string", `"ok"`, "fails"},
		{"a list", `[]`, "fails"},
		{"list is a string", `{"batchItemFailures":"m1"}`, "fails"},
		{"list of strings", `{"batchItemFailures":["m1"]}`, "fails"},
		{"null item", `{"batchItemFailures":[null]}`, "fails"},
		{"empty id", `{"batchItemFailures":[{"itemIdentifier":""}]}`, "fails"},
		{"null id", `{"batchItemFailures":[{"itemIdentifier":null}]}`, "fails"},
		{"number as id", `{"batchItemFailures":[{"itemIdentifier":1}]}`, "fails"},
		{"no id", `{"batchItemFailures":[{}]}`, "fails"},
		{"id key in capitals", `{"batchItemFailures":[{"ItemIdentifier":"m1"}]}`, "fails"},
		{"unknown id", `{"batchItemFailures":[{"itemIdentifier":"m4"}]}`, "fails"},
		{"one known, one unknown", `{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"h-m1"}]}`, "fails"},
	}
	for _, tt := range tests {
		ids, err := kept([]byte(tt.reply), batch)
		var got []string
		for _, m := range batch {
			if ids[m.id] {
				got = append(got, m.id)
			}
		}
		if err != nil {
			got = []string{"fails"}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q (%v), want %q", tt.name, got, err, tt.want)
		}
	}
}

func FuzzKept(f *testing.F) {
	for _, seed := range []string{``, `null`, `{}`, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`, `{"batchItemFailures":[null]}`, `[`, `{"batchItemFailures":[{"itemIdentifier":"\u0000"}]}`} {
		f.Add([]byte(seed))
	}
	batch := []message{{id: "m1"}, {id: "m2"}}
	f.Fuzz(func(t *testing.T, reply []byte) {
		ids, err := kept(reply, batch)
		if err != nil && ids != nil {
			t.Errorf("both ids %v and %v", ids, err)
		}
		for id := range ids {
			if id != "m1" && id != "m2" {
				t.Errorf("kept %q, which is not in the batch", id)
			}
		}
	})
}
