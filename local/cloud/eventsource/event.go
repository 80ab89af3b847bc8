package eventsource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// record is a message as AWS writes it into the event. It is not events.SQSMessage, which would add empty fields.
type record struct {
	MessageID         string               `json:"messageId"`
	ReceiptHandle     string               `json:"receiptHandle"`
	Body              string               `json:"body"`
	Attributes        map[string]string    `json:"attributes"`
	MessageAttributes map[string]attribute `json:"messageAttributes"`
	MD5OfAttributes   string               `json:"md5OfMessageAttributes,omitempty"`
	MD5OfBody         string               `json:"md5OfBody"`
	EventSource       string               `json:"eventSource"`
	EventSourceARN    string               `json:"eventSourceARN"`
	AWSRegion         string               `json:"awsRegion"`
}

type attribute struct {
	StringValue      *string  `json:"stringValue,omitempty"`
	BinaryValue      []byte   `json:"binaryValue,omitempty"` // base64 in JSON
	StringListValues []string `json:"stringListValues"`      // SQS has no lists: always []
	BinaryListValues [][]byte `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

// message is one received message: its record as JSON, and what settling it needs.
type message struct {
	id       string
	handle   string
	record   []byte
	received time.Time // no later than its visibility timeout began to run
}

// newMessage renders a message for the event.
func newMessage(m types.Message, mapping Mapping, received time.Time) (message, error) {
	r := record{
		MessageID:         aws.ToString(m.MessageId),
		ReceiptHandle:     aws.ToString(m.ReceiptHandle),
		Body:              aws.ToString(m.Body),
		Attributes:        m.Attributes,
		MessageAttributes: make(map[string]attribute, len(m.MessageAttributes)),
		MD5OfAttributes:   aws.ToString(m.MD5OfMessageAttributes),
		MD5OfBody:         aws.ToString(m.MD5OfBody),
		EventSource:       "aws:sqs",
		EventSourceARN:    mapping.QueueARN,
		AWSRegion:         mapping.Region,
	}
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	for name, v := range m.MessageAttributes {
		r.MessageAttributes[name] = attribute{
			StringValue: v.StringValue, BinaryValue: v.BinaryValue,
			StringListValues: []string{}, BinaryListValues: [][]byte{}, DataType: aws.ToString(v.DataType),
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // <, > and & would grow sixfold and move the 6 MB limit
	if err := enc.Encode(r); err != nil {
		return message{}, fmt.Errorf("render message %s: %w", r.MessageID, err)
	}
	return message{id: r.MessageID, handle: r.ReceiptHandle, received: received, record: bytes.TrimRight(buf.Bytes(), "\n")}, nil
}

const (
	eventHead = `{"Records":[`
	eventTail = `]}`
)

// event joins records.
func event(batch []message) []byte {
	size := len(eventHead) + len(eventTail)
	for _, m := range batch {
		size += len(m.record) + 1
	}
	out := append(make([]byte, 0, size), eventHead...)
	for i, m := range batch {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.record...)
	}
	return append(out, eventTail...)
}

// cut returns as many of the first messages as fit into an event, at most n of them in at most limit bytes, and the rest.
// A message that is too large alone is a batch of its own; the function's host will refuse it and it stays in the queue,
// as on AWS.
func cut(messages []message, n, limit int) (batch, rest []message) {
	size := len(eventHead) + len(eventTail) - 1 // no comma before the first
	for i, m := range messages {
		size += len(m.record) + 1
		if i == n || i > 0 && size > limit {
			return messages[:i], messages[i:]
		}
	}
	return messages, nil
}
