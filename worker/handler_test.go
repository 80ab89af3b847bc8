package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

type handlerFunc func(context.Context, []queue.Message) []worker.Outcome

func (f handlerFunc) Handle(ctx context.Context, m []queue.Message) []worker.Outcome {
	return f(ctx, m)
}

func record(id string) events.SQSMessage {
	return events.SQSMessage{MessageId: id, ReceiptHandle: "h-" + id, Body: "{}", EventSourceARN: "arn:aws:sqs:eu-west-1:111122223333:llm-chat-a-rt"}
}

// B4, H08: the exact reply decides between loss and endless repetition.
func TestHandler_ReplyListsWhatMayNotBeDeleted(t *testing.T) {
	t.Parallel()
	ack := func(ids ...string) handlerFunc {
		return func(_ context.Context, msgs []queue.Message) []worker.Outcome {
			var out []worker.Outcome
			for _, m := range msgs {
				o := worker.Outcome{MessageID: m.ID, Action: worker.Keep}
				for _, id := range ids {
					if id == m.ID {
						o.Action = worker.Ack
					}
				}
				out = append(out, o)
			}
			return out
		}
	}
	for _, tt := range []struct {
		name string
		h    handlerFunc
		ids  []string
		want string
	}{
		{"all acknowledged", ack("m1", "m2"), []string{"m1", "m2"}, `{"batchItemFailures":[]}`},
		{"one kept", ack("m1", "m2", "m3"), []string{"m1", "m2", "m3", "m4"}, `{"batchItemFailures":[{"itemIdentifier":"m4"}]}`},
		{"none acknowledged", ack(), []string{"m1"}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
		{"no records", ack(), nil, `{"batchItemFailures":[]}`},
		{"too few outcomes", func(context.Context, []queue.Message) []worker.Outcome { return nil }, []string{"m1", "m2"}, `{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"m2"}]}`},
		{"outcome of another message", func(context.Context, []queue.Message) []worker.Outcome {
			return []worker.Outcome{{MessageID: "m9", Action: worker.Ack}}
		}, []string{"m1"}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
		{"zero outcome", func(context.Context, []queue.Message) []worker.Outcome { return make([]worker.Outcome, 1) }, []string{"m1"}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
		{"panic", func(context.Context, []queue.Message) []worker.Outcome { panic("boom") }, []string{"m1", "m2"}, `{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"m2"}]}`},
		{"a duplicate is listed once", ack(), []string{"m1", "m1"}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
		{"one copy of a duplicate acknowledged", func(context.Context, []queue.Message) []worker.Outcome {
			return []worker.Outcome{{MessageID: "m1", Action: worker.Ack}, {MessageID: "m1", Action: worker.Keep}}
		}, []string{"m1", "m1"}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var ev events.SQSEvent
			for _, id := range tt.ids {
				ev.Records = append(ev.Records, record(id))
			}
			resp, err := newHandler(tt.h, func() {}, slog.New(slog.DiscardHandler))(t.Context(), ev)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(resp)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("reply = %s\nwant    %s", got, tt.want)
			}
		})
	}
}

func TestHandler_ReadsARecord(t *testing.T) {
	t.Parallel()
	r := record("m1")
	r.Attributes = map[string]string{"ApproximateReceiveCount": "3", "SentTimestamp": "1795953600000", "SenderId": "AROAX:session"}
	v := "chat"
	r.MessageAttributes = map[string]events.SQSMessageAttribute{"llmq_op": {StringValue: &v, DataType: "String"}}
	m := message(r)
	if m.Queue != "llm-chat-a-rt" || m.ReceiveCount != 3 || m.SentAt.UnixMilli() != 1795953600000 || m.SenderID != "AROAX:session" || m.Attributes["llmq_op"] != "chat" || m.Receipt != "h-m1" {
		t.Errorf("message = %+v", m)
	}
}

// H31: types may carry labels, numbers may have 38 digits, and attributes that nobody knows
// are no fault; what routes and identifies a message is in its body.
func TestHandler_OddAttributesAreNoFault(t *testing.T) {
	t.Parallel()
	const odd = `{"messageId":"m1","receiptHandle":"h-m1","body":"{}","eventSourceARN":"arn:aws:sqs:eu-west-1:111122223333:llm-chat-a-rt","messageAttributes":{` +
		`"lane":{"dataType":"String.label","stringValue":"bg"},"tries":{"dataType":"Number.int","stringValue":"2"},` +
		`"blob":{"dataType":"Binary.gz","binaryValue":"H4sIAAAAAAAA/wMAAAAAAAAAAAA="},` +
		`"big":{"dataType":"Number","stringValue":"12345678901234567890123456789012345678"},"odd":{"dataType":"String","stringValue":"Tür – 日本"}}}`
	var ev events.SQSEvent
	if err := json.Unmarshal([]byte(`{"Records":[`+odd+`]}`), &ev); err != nil {
		t.Fatal(err)
	}
	var got []queue.Message
	resp, err := newHandler(handlerFunc(func(_ context.Context, msgs []queue.Message) []worker.Outcome {
		got = msgs
		return []worker.Outcome{{MessageID: "m1", Action: worker.Ack}}
	}), func() {}, slog.New(slog.DiscardHandler))(t.Context(), ev)
	if err != nil || len(resp.BatchItemFailures) != 0 || len(got) != 1 {
		t.Fatalf("reply %+v, %v; messages %+v", resp, err, got)
	}
	for name, want := range map[string]string{"lane": "bg", "tries": "2", "big": "12345678901234567890123456789012345678", "odd": "Tür – 日本"} {
		if got[0].Attributes[name] != want {
			t.Errorf("attribute %s = %q, want %q", name, got[0].Attributes[name], want)
		}
	}
}

func TestHandler_RecordWithoutAttributesIsJustSent(t *testing.T) {
	t.Parallel()
	r := record("m1")
	r.EventSourceARN = ""
	if m := message(r); m.SentAt.IsZero() || m.Queue != "" {
		t.Errorf("message = %+v", m)
	}
}

// E7: the metrics are written after the work and before the process may be frozen, after a panic too.
func TestHandler_MetricsAreToldAtTheEndOfEachInvocation(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"well": func() {}, "panic": func() { panic("boom") }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var did []string
			h := handlerFunc(func(context.Context, []queue.Message) []worker.Outcome {
				did = append(did, "handled")
				end()
				return nil
			})
			for range 2 {
				if _, err := newHandler(h, func() { did = append(did, "told") }, slog.New(slog.DiscardHandler))(t.Context(), events.SQSEvent{}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([]string{"handled", "told", "handled", "told"}, did); diff != "" {
				t.Errorf("did (-want +got):\n%s", diff)
			}
		})
	}
}
