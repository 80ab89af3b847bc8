package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// event reads a case's records, whose attributes are those of a message that was sent now.
func event(t *testing.T, records string) events.SQSEvent {
	t.Helper()
	var ev events.SQSEvent
	if err := json.Unmarshal([]byte(`{"Records":[`+records+`]}`), &ev); err != nil {
		t.Fatal(err)
	}
	for i := range ev.Records {
		ev.Records[i].EventSourceARN = arn
	}
	return ev
}

// H07: the extended client's pointers are refused, whichever way they are spelled: a pointer from outside has no hash
// (SECURITY-DESIGN MS4). Nothing is read and nobody is called; the messages are kept with their reason.
func TestHandler_ExtendedClientPointersAreRefused(t *testing.T) {
	t.Parallel()
	inRig(t, func(t *testing.T, r *rig) {
		pointers := []string{
			`["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"b-test","s3Key":"llm/req/77.json"}]`,
			`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b-test","s3Key":"llm/req/77.json"}]`,
			`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"other-bucket","s3Key":"../../etc"}]`,
		}
		marks := []string{
			`"SQSLargePayloadSize":{"dataType":"Number","stringValue":"300412"}`,
			`"ExtendedPayloadSize":{"dataType":"Number","stringValue":"300412"}`,
			``,
		}
		records, want := "", map[string]string{}
		for i, p := range pointers {
			body, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				records += ","
			}
			id := string(rune('1' + i))
			records += `{"messageId":"p` + id + `","receiptHandle":"h` + id + `","body":` + string(body) + `,"messageAttributes":{` + marks[i] + `},"eventSource":"aws:sqs"}`
			want[p] = "bad_envelope"
		}
		if got := r.invoke(event(t, records)); got != `{"batchItemFailures":[]}` {
			t.Errorf("reply %s", got)
		}
		if diff := cmp.Diff(want, r.dead()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if r.gets != 0 || len(r.runs) != 0 {
			t.Errorf("%d bodies were read, %v were run", r.gets, r.runs)
		}
	})
}

// H08: the exact reply of a batch with each kind of end, and where its messages are then.
func TestHandler_RottenRecordsAndTheExactReply(t *testing.T) {
	t.Parallel()
	inRig(t, func(t *testing.T, r *rig) {
		r.run = func(id string) engine.Verdict {
			if id == "r-4" {
				return engine.Verdict{Action: engine.Release, After: time.Minute, Reason: "retry_later"}
			}
			return ok(time.Second)
		}
		rotten := []string{`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`, `not json {`}
		bodies := []string{envelope("r-1"), rotten[0], rotten[1], envelope("r-4")}
		var ev events.SQSEvent
		for i, body := range bodies {
			ev.Records = append(ev.Records, events.SQSMessage{MessageId: "m" + string(rune('1'+i)), ReceiptHandle: "h", Body: body, EventSourceARN: arn})
		}
		if got, want := r.invoke(ev), `{"batchItemFailures":[{"itemIdentifier":"m4"}]}`; got != want {
			t.Errorf("reply %s\nwant  %s", got, want)
		}
		if diff := cmp.Diff(map[string]string{rotten[0]: "bad_envelope", rotten[1]: "bad_envelope"}, r.dead()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if len(r.runs) != 2 {
			t.Errorf("%v were run", r.runs)
		}
	})
}

// H10 a: two records of one message are one call, and the id comes back once or not at all.
func TestHandler_CopiesOfOneMessage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verdict engine.Verdict
		want    string
	}{
		"stored":   {engine.Verdict{Action: engine.Stored}, `{"batchItemFailures":[]}`},
		"released": {engine.Verdict{Action: engine.Release, After: time.Minute}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
		"left":     {engine.Verdict{Action: engine.Leave}, `{"batchItemFailures":[{"itemIdentifier":"m1"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inRig(t, func(t *testing.T, r *rig) {
				r.run = func(string) engine.Verdict { return tt.verdict }
				body, err := json.Marshal(envelope("r-1"))
				if err != nil {
					t.Fatal(err)
				}
				got := r.invoke(event(t, `{"messageId":"m1","receiptHandle":"h1","body":`+string(body)+`},{"messageId":"m1","receiptHandle":"h2","body":`+string(body)+`}`))
				if got != tt.want || len(r.runs) != 1 {
					t.Errorf("%d runs, reply %s\nwant %s", len(r.runs), got, tt.want)
				}
			})
		})
	}
}
