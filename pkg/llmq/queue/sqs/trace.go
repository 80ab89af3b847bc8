package sqs

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// TraceHeader is the name of the system attribute in which SQS carries a trace, in the form of X-Ray. It is none of a message's
// ten attributes, and not counted in its size.
const TraceHeader = "AWSTraceHeader"

// system are a message's system attributes; nil where it has none.
func system(m queue.Outgoing) map[string]types.MessageSystemAttributeValue {
	header := traceHeader(m.Trace)
	if header == "" {
		return nil
	}
	return map[string]types.MessageSystemAttributeValue{TraceHeader: {DataType: aws.String("String"), StringValue: aws.String(header)}}
}

// timeDigits is how much of a trace's id X-Ray writes apart: once the time of its begin.
const timeDigits = 8

// traceHeader is a traceparent as X-Ray writes it; "" of none.
func traceHeader(traceparent string) string {
	t, ok := llmq.ParseTrace(traceparent)
	if !ok {
		return ""
	}
	sampled := "0"
	if t.Sampled {
		sampled = "1"
	}
	return "Root=1-" + t.ID[:timeDigits] + "-" + t.ID[timeDigits:] + ";Parent=" + t.Parent + ";Sampled=" + sampled
}

// Traceparent reads an X-Ray header, of a message that was received. One that names no span to go on from, or is not of its
// form, is as good as none: "".
func Traceparent(header string) string {
	t := llmq.Trace{}
	for part := range strings.SplitSeq(header, ";") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "Root":
			version, id, _ := strings.Cut(value, "-")
			began, rest, ok := strings.Cut(id, "-")
			if version == "1" && ok && len(began) == timeDigits {
				t.ID = began + rest
			}
		case "Parent":
			t.Parent = value
		case "Sampled":
			t.Sampled = value == "1"
		}
	}
	t, _ = llmq.ParseTrace(t.String())
	return t.String()
}
