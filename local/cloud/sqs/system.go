package sqs

import (
	"strconv"
	"time"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// systemAttributes are what the server tells of a message besides what its sender gave. Times are in milliseconds since 1970.
type systemAttributes struct {
	SenderID        string `json:"SenderId,omitempty"`
	SentAt          string `json:"SentTimestamp,omitempty"`
	Receives        string `json:"ApproximateReceiveCount,omitempty"`
	FirstReceivedAt string `json:"ApproximateFirstReceiveTimestamp,omitempty"`
	GroupID         string `json:"MessageGroupId,omitempty"`
	SourceARN       string `json:"DeadLetterQueueSourceArn,omitempty"`
	TraceHeader     string `json:"AWSTraceHeader,omitempty"`
}

// systemSelection is which of them a consumer wants.
type systemSelection struct {
	sender, sent, receives, first, group, source, trace bool
}

// wantedSystemAttributes reads the names a consumer gives. Some are of FIFO queues only, and then never come; an unknown one is refused.
func wantedSystemAttributes(lists ...[]string) (systemSelection, error) {
	var want systemSelection
	for _, names := range lists {
		for _, name := range names {
			switch name {
			case "All":
				want = systemSelection{true, true, true, true, true, true, true}
			case "SenderId":
				want.sender = true
			case "SentTimestamp":
				want.sent = true
			case "ApproximateReceiveCount":
				want.receives = true
			case "ApproximateFirstReceiveTimestamp":
				want.first = true
			case "MessageGroupId":
				want.group = true
			case "DeadLetterQueueSourceArn":
				want.source = true
			case traceHeader:
				want.trace = true
			case "SequenceNumber", "MessageDeduplicationId", "SqsManagedSseEnabled":
			default:
				return want, broker.Fail(broker.InvalidAttributeName, "Unknown Attribute %s.", name)
			}
		}
	}
	return want, nil
}

// of returns the attributes of a message that are wanted.
func (want systemSelection) of(m *broker.Message) (a systemAttributes) {
	when := func(wanted bool, value string) string {
		if !wanted {
			return ""
		}
		return value
	}
	a.SenderID = when(want.sender, m.SenderID)
	a.GroupID = when(want.group, m.GroupID)
	a.SourceARN = when(want.source, m.SourceARN)
	a.TraceHeader = when(want.trace, m.TraceHeader)
	if want.sent {
		a.SentAt = milliseconds(m.SentAt)
	}
	if want.receives {
		a.Receives = strconv.Itoa(m.Receives)
	}
	if want.first {
		a.FirstReceivedAt = milliseconds(m.FirstReceivedAt)
	}
	return a
}

func milliseconds(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
