package eventsource

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// Case H08: what each reply does to the messages of a real queue. The messages that stay are invisible until the visibility
// timeout ends, not sooner.
func TestReply_DecidesWhatStaysInTheQueue(t *testing.T) {
	t.Parallel()
	all, none := []string{"a", "b", "c"}, []string(nil)
	first := func(e events.SQSEvent) string { return e.Records[0].MessageId }
	tests := []struct {
		name  string
		reply func(events.SQSEvent) (any, error)
		stay  []string
	}{
		{"empty list", func(events.SQSEvent) (any, error) { return failures(), nil }, none},
		{"null list", func(events.SQSEvent) (any, error) { return `{"batchItemFailures":null}`, nil }, none},
		{"zero value of the SDK's type", func(events.SQSEvent) (any, error) { return events.SQSEventResponse{}, nil }, none},
		{"empty reply", func(events.SQSEvent) (any, error) { return ``, nil }, none},
		{"empty object", func(events.SQSEvent) (any, error) { return `{}`, nil }, none},
		{"null reply", func(events.SQSEvent) (any, error) { return `null`, nil }, none},
		{"capital list", func(e events.SQSEvent) (any, error) {
			return `{"BatchItemFailures":[{"itemIdentifier":"` + first(e) + `"}]}`, nil
		}, none},
		{"one message", func(e events.SQSEvent) (any, error) { return failures(first(e)), nil }, []string{"a"}},
		{"one message twice", func(e events.SQSEvent) (any, error) { return failures(first(e), first(e)), nil }, []string{"a"}},
		{"exception", func(events.SQSEvent) (any, error) { return nil, errors.New("no") }, all},
		{"invalid JSON", func(events.SQSEvent) (any, error) { return `{"batchItemFailures":`, nil }, all},
		{"empty id", func(events.SQSEvent) (any, error) { return failures(""), nil }, all},
		{"null id", func(events.SQSEvent) (any, error) { return `{"batchItemFailures":[{"itemIdentifier":null}]}`, nil }, all},
		{"wrong key", func(e events.SQSEvent) (any, error) {
			return `{"batchItemFailures":[{"id":"` + first(e) + `"}]}`, nil
		}, all},
		{"capital key of an item", func(e events.SQSEvent) (any, error) {
			return `{"batchItemFailures":[{"ItemIdentifier":"` + first(e) + `"}]}`, nil
		}, all},
		{"foreign id", func(events.SQSEvent) (any, error) { return failures("059f36b4-87a3-44ab-83d2-661975830a7d"), nil }, all},
		{"foreign id beside a good one", func(e events.SQSEvent) (any, error) { return failures(first(e), "x"), nil }, all},
		{"receipt handle", func(e events.SQSEvent) (any, error) { return failures(e.Records[0].ReceiptHandle), nil }, all},
		{"list of strings", func(e events.SQSEvent) (any, error) { return `{"batchItemFailures":["` + first(e) + `"]}`, nil }, all},
		{"list of numbers", func(events.SQSEvent) (any, error) { return `{"batchItemFailures":[1]}`, nil }, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, "60", nil, func(t *testing.T, w *world) {
				w.send("a", "b", "c")
				w.on(func(_ context.Context, e events.SQSEvent) (any, error) {
					if len(w.invocations()) > 1 {
						return failures(), nil // they have come back
					}
					slices.SortFunc(e.Records, func(x, y events.SQSMessage) int { return int(x.Body[0]) - int(y.Body[0]) })
					return tt.reply(e)
				})
				s := w.add(nil)
				time.Sleep(59 * time.Second) // bubble time, as everywhere in these tests
				if visible, hidden := w.left(); visible != "0" || hidden != []string{"0", "1", "2", "3"}[len(tt.stay)] {
					t.Errorf("%s visible and %s hidden after 59s, want %d hidden", visible, hidden, len(tt.stay))
				}
				time.Sleep(2 * time.Minute)
				var again []string
				for _, c := range w.invocations()[1:] {
					again = append(again, c.ids...)
					if c.at < time.Minute {
						t.Errorf("back after %v", c.at)
					}
				}
				slices.Sort(again)
				if diff := cmp.Diff(tt.stay, again); diff != "" {
					t.Errorf("came back: %s", diff)
				}
				n := int64(len(tt.stay))
				want := EventCounts{Polled: 3 + n, Invoked: 3 + n, FailedInvoke: n, Deleted: 3}
				if diff := cmp.Diff(want, s.Stats().EventCounts); diff != "" {
					t.Errorf("counts: %s", diff)
				}
			})
		})
	}
}

func TestReply_NotReadUnlessTheMappingAsks(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.send("a")
		w.on(func(_ context.Context, e events.SQSEvent) (any, error) { return failures(e.Records[0].MessageId), nil })
		w.add(func(m *Mapping) { m.ReportBatchItemFailures = false })
		time.Sleep(10 * time.Minute)
		if visible, hidden := w.left(); visible+hidden != "00" || len(w.invocations()) != 1 {
			t.Errorf("%s, %s left after %d invocations", visible, hidden, len(w.invocations()))
		}
	})
}

// A function hides a message for as long as it likes and lists it; the loop does not touch that.
func TestReply_VisibilityOfTheFunctionHolds(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.send("a")
		w.on(func(ctx context.Context, e events.SQSEvent) (any, error) {
			if _, err := w.queue.ChangeMessageVisibility(ctx, &awssqs.ChangeMessageVisibilityInput{
				QueueUrl: &w.url, ReceiptHandle: &e.Records[0].ReceiptHandle, VisibilityTimeout: 7,
			}); err != nil {
				t.Error(err)
			}
			if len(w.invocations()) == 3 {
				return failures(), nil
			}
			return failures(e.Records[0].MessageId), nil
		})
		w.add(nil)
		time.Sleep(10 * time.Minute)
		want := []call{{0, []string{"a"}}, {7 * time.Second, []string{"a"}}, {14 * time.Second, []string{"a"}}}
		if diff := cmp.Diff(want, w.invocations(), cmp.AllowUnexported(call{})); diff != "" {
			t.Error(diff)
		}
	})
}

// A function that deletes a message itself and does not list it: the loop's own delete changes nothing.
func TestReply_DeletingTwiceIsNoHarm(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.send("a", "b")
		w.on(func(ctx context.Context, e events.SQSEvent) (any, error) {
			_, err := w.queue.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &w.url, ReceiptHandle: &e.Records[0].ReceiptHandle})
			if err != nil {
				t.Error(err)
			}
			return failures(), nil
		})
		s := w.add(nil)
		time.Sleep(10 * time.Minute)
		if visible, hidden := w.left(); visible+hidden != "00" || len(w.invocations()) != 1 || s.Stats().PollErrors != 0 {
			t.Errorf("%s, %s left after %d invocations", visible, hidden, len(w.invocations()))
		}
	})
}

// A throttle costs receives: the batch is tried while it is hidden, then it is received again.
func TestThrottle_CountsReceives(t *testing.T) {
	t.Parallel()
	inWorld(t, "30", nil, func(t *testing.T, w *world) {
		w.send("a")
		began := time.Now()
		var receives string
		w.on(func(_ context.Context, e events.SQSEvent) (any, error) {
			if time.Since(began) < 40*time.Second {
				return nil, &lambda.Error{Code: lambda.CodeThrottled, Function: "worker"}
			}
			receives = e.Records[0].Attributes["ApproximateReceiveCount"]
			return failures(), nil
		})
		s := w.add(nil)
		time.Sleep(10 * time.Minute)
		st := s.Stats()
		if receives != "2" || st.Deleted != 1 || st.Throttles < 8 || st.Invoked != st.Throttles+1 || st.FailedInvoke != st.Throttles {
			t.Errorf("delivered at receive %q, stats %+v", receives, st)
		}
	})
}

func TestEvent_AttributesOfARealQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		messages := make(chan events.SQSMessage, 1)
		w.on(func(_ context.Context, e events.SQSEvent) (any, error) {
			messages <- e.Records[0]
			return failures(), nil
		})
		_, err := w.queue.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &w.url, MessageBody: aws.String("a"), MessageGroupId: aws.String("tenant")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.add(nil)
		got := <-messages
		sent := "946684800000" // when a bubble begins, in ms
		want := map[string]string{
			"ApproximateReceiveCount": "1", "SentTimestamp": sent, "ApproximateFirstReceiveTimestamp": "946684801000", "SenderId": "id", "MessageGroupId": "tenant",
		}
		if diff := cmp.Diff(want, got.Attributes); diff != "" {
			t.Error(diff)
		}
		if got.Md5OfBody != "0cc175b9c0f1b6a831c399e269772661" || got.EventSourceARN != callsARN || got.EventSource != "aws:sqs" || got.AWSRegion != "us-east-1" {
			t.Errorf("got %+v", got)
		}
	})
}
