package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// batchHandler is what this function needs of package worker.
type batchHandler interface {
	Handle(ctx context.Context, msgs []queue.Message) []worker.Outcome
}

// response is events.SQSEventResponse, but for a list that is never null: AWS takes
// null as "all succeeded" too, and an empty list can't be misread.
type response struct {
	BatchItemFailures []events.SQSBatchItemFailure `json:"batchItemFailures"`
}

// newHandler makes the function's handler. Its answer starts from "every message
// failed" and drops those whose outcome allows their deletion, so that nothing is
// deleted by an accident on the way (docs/DELIVERY.md). told is called at the end of each
// invocation, when nothing runs any more: the process may be frozen after it.
func newHandler(h batchHandler, told func(), log *slog.Logger) func(context.Context, events.SQSEvent) (response, error) {
	return func(ctx context.Context, ev events.SQSEvent) (resp response, err error) {
		msgs := make([]queue.Message, 0, len(ev.Records))
		for _, r := range ev.Records {
			msgs = append(msgs, message(r))
		}
		defer told()
		defer func() {
			if p := recover(); p != nil {
				log.Error("worker panicked", "panic_type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				resp, err = failed(msgs, nil), nil
			}
		}()
		return failed(msgs, h.Handle(ctx, msgs)), nil
	}
}

// failed lists every message but the acknowledged ones, each id once. SQS may put one
// message into a batch twice; it is deleted only if every copy may be.
func failed(msgs []queue.Message, outcomes []worker.Outcome) response {
	keep := make(map[string]bool, len(msgs))
	for i, m := range msgs {
		acked := i < len(outcomes) && outcomes[i].MessageID == m.ID && outcomes[i].Action == worker.Ack
		keep[m.ID] = keep[m.ID] || !acked
	}
	resp := response{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, m := range msgs {
		if keep[m.ID] {
			keep[m.ID] = false
			resp.BatchItemFailures = append(resp.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.ID})
		}
	}
	return resp
}

// message reads one record. A count or time that is not a number is left zero: the
// worker then treats the message as just sent.
func message(r events.SQSMessage) queue.Message {
	m := queue.Message{
		ID: r.MessageId, Receipt: r.ReceiptHandle, Body: []byte(r.Body), SenderID: r.Attributes["SenderId"],
		Queue:  queue.Name(r.EventSourceARN[strings.LastIndexByte(r.EventSourceARN, ':')+1:]),
		SentAt: time.Now(), Attributes: make(map[string]string, len(r.MessageAttributes)),
		Trace: sqs.Traceparent(r.Attributes[sqs.TraceHeader]),
	}
	if n, err := strconv.Atoi(r.Attributes["ApproximateReceiveCount"]); err == nil {
		m.ReceiveCount = n
	}
	if ms, err := strconv.ParseInt(r.Attributes["SentTimestamp"], 10, 64); err == nil {
		m.SentAt = time.UnixMilli(ms)
	}
	for name, a := range r.MessageAttributes {
		if a.StringValue != nil {
			m.Attributes[name] = *a.StringValue
		}
	}
	return m
}
