package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// What is no request for this worker goes to the dead-letter queue, with what is wrong.
func TestHandle_RefusesForGood(t *testing.T) {
	t.Parallel()
	with := func(members string) string { // a good envelope with more in it
		return strings.TrimSuffix(envelope("r"), "}") + "," + members + "}"
	}
	less := func(member string) string { return strings.Replace(envelope("r"), member+",", "", 1) }
	instead := func(old, repl string) string {
		if !strings.Contains(envelope("r"), old) {
			t.Fatalf("the envelope has no %s", old)
		}
		return strings.Replace(envelope("r"), old, repl, 1)
	}
	for _, tt := range []struct {
		name, queue, body string
		code              llmq.Code
		says              string
	}{
		{"not JSON", "", `not json {`, llmq.CodeBadEnvelope, "not a JSON object"},
		{"nothing", "", ``, llmq.CodeBadEnvelope, "empty"},
		{"null", "", `null`, llmq.CodeBadEnvelope, "not a JSON object"},
		{"array", "", `[` + envelope("r") + `]`, llmq.CodeBadEnvelope, "not a JSON object"},
		{"cut short", "", envelope("r")[:40], llmq.CodeBadEnvelope, "cut short"},
		{"two values", "", envelope("r") + envelope("r"), llmq.CodeBadEnvelope, "follows"},
		{"byte order mark", "", "\ufeff" + envelope("r"), llmq.CodeBadEnvelope, "byte order mark"},
		{"bad UTF-8", "", instead("messages", "mess\xffages"), llmq.CodeBadEnvelope, "UTF-8"},
		{"S3's test event", "", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`, llmq.CodeBadEnvelope, "v is missing"},
		{"name twice", "", with(`"model":"chat-b"`), llmq.CodeBadEnvelope, "model is given twice"},
		{"name twice in the body", "", instead(`"messages":[]`, `"n":1,"n":2`), llmq.CodeBadEnvelope, "params.n is given twice"},
		{"name twice by an escape", "", with(`"mod\u0065l":"chat-b"`), llmq.CodeBadEnvelope, "model"},
		{"name in other case", "", with(`"Model":"chat-b"`), llmq.CodeBadEnvelope, "Model"},
		{"name of the body in other case", "", instead(`"messages":[]`, `"Max_Tokens":9`), llmq.CodeBadEnvelope, "params: Max_Tokens"},
		{"too deep", "", instead(`[]`, strings.Repeat(`[`, 100)+strings.Repeat(`]`, 100)), llmq.CodeBadEnvelope, "deeper"},
		{"too many members", "", instead(`[]`, `[`+strings.Repeat(`{"a":1},`, 10_000)+`{}]`), llmq.CodeBadEnvelope, "members"},
		{"no version", "", less(`"v":1`), llmq.CodeBadEnvelope, "v is missing"},
		{"version 0", "", instead(`"v":1`, `"v":0`), llmq.CodeBadEnvelope, "v is missing or not a positive"},
		{"version as text", "", instead(`"v":1`, `"v":"1"`), llmq.CodeBadEnvelope, "v is missing or not a positive"},
		{"unknown field", "", with(`"budget":1`), llmq.CodeBadEnvelope, `unknown field "budget"`},
		{"null field", "", with(`"lane":null`), llmq.CodeBadEnvelope, "lane is null"},
		{"field of another type", "", with(`"lane":1`), llmq.CodeBadEnvelope, "lane is not of its form"},
		{"no id", "", less(`"id":"r"`), llmq.CodeBadEnvelope, "id must have"},
		{"illegal id", "", instead(`"id":"r"`, `"id":"a b"`), llmq.CodeBadEnvelope, "illegal character"},
		{"no op", "", less(`"op":"chat"`), llmq.CodeBadEnvelope, "op is missing"},
		{"unknown op", "", instead(`"chat"`, `"images"`), llmq.CodeBadEnvelope, "images"},
		{"no model", "", less(`"model":"chat-a"`), llmq.CodeBadEnvelope, "model is missing"},
		{"no params", "", `{"v":1,"id":"r","op":"chat","model":"chat-a"}`, llmq.CodeBadEnvelope, "params is missing"},
		{"params and ref", "", with(`"ref":{"key":"off/x/y","sha256":"00","bytes":1}`), llmq.CodeBadEnvelope, "both given"},
		{"params no object", "", instead(`{"messages":[]}`, `"text"`), llmq.CodeBadEnvelope, "JSON object"},
		{"illegal tenant", "", instead(`"tenant":"t"`, `"tenant":"T"`), llmq.CodeBadEnvelope, "tenant"},
		{"unknown lane", "", with(`"lane":"fast"`), llmq.CodeBadEnvelope, "fast"},
		{"negative deadline", "", with(`"deadline_ms":-1`), llmq.CodeBadEnvelope, "deadline_ms"},
		{"other model's queue", "llm-chat-b-rt", envelope("r"), llmq.CodeWrongQueue, `belongs to "chat-b"`},
		{"other model by its vendor's name", "", instead(`"chat-a"`, `"vendor/chat-b"`), llmq.CodeWrongQueue, `belongs to "chat-a"`},
		{"other model's unknown target", "", instead(`"chat-a"`, `"conv@eu"`), llmq.CodeWrongQueue, `belongs to "chat-a"`},
		{"unknown model's target", "", instead(`"chat-a"`, `"new@eu"`), llmq.CodeWrongQueue, `belongs to "chat-a"`},
		{"reply target", "", with(`"reply_to":"billing"`), llmq.CodeBadEnvelope, "its sender has none; leave it out"},
		{"stream by an escape", "", instead(`"messages":[]`, `"str\u0065am":true`), llmq.CodeBadEnvelope, "stream is spelled with an escape"},
		{"stream as text", "", instead(`"messages":[]`, `"stream":"true"`), llmq.CodeBadEnvelope, "stream must be"},
		{"stream of embeddings", "", strings.Replace(instead(`"messages":[]`, `"stream":true`), `"chat"`, `"embeddings"`, 1), llmq.CodeUnsupported, "embeddings has no streams"},
		{"other lane's queue", "llm-chat-a-bulk", with(`"lane":"rt"`), llmq.CodeWrongQueue, "queue is bulk's"},
		{"urgent on the default queue", "llm-chat-a", with(`"lane":"rt"`), llmq.CodeWrongQueue, "queue is bg's"},
		{"bulk on the default queue beside its own", "llm-chat-a", with(`"lane":"bulk"`), llmq.CodeWrongQueue, "queue is bg's"},
		{"other lane of a wrong wire", "", strings.Replace(with(`"lane":"bg"`), `"chat"`, `"converse"`, 1), llmq.CodeWrongQueue, "queue is rt's"},
		{"other lane of an unknown model", "", strings.Replace(with(`"lane":"bulk"`), "chat-a", "new", 1), llmq.CodeWrongQueue, "queue is rt's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := message("m", tt.body)
				if tt.queue != "" {
					m.Queue = queue.Name(tt.queue)
				}
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: worker.Ack, Reason: string(tt.code)}}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if len(w.sent) != 1 || w.sent[0].Queue != m.Queue.DLQ() || w.sent[0].Attributes["llmq_reason"] != string(tt.code) {
					t.Fatalf("sent %+v, want one dead letter with its reason", w.sent)
				}
				if says := w.sent[0].Attributes["llmq_error"]; !strings.Contains(says, tt.says) {
					t.Errorf("it says %q, want %q in it", says, tt.says)
				}
				if len(w.calls) != 0 {
					t.Errorf("the engine ran %+v", w.calls)
				}
			})
		})
	}
}

func TestHandle_GivesTheEngineWhatTheMessageAsksFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, queue, body string
		want              llmq.Request // Deadline as time after the bubble's start
		after             time.Duration
	}{
		{
			"the least", "llm-chat-a-rt", `{"v":1,"id":"r","op":"chat","model":"chat-a","params":{"a":1}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{"a":1}`)},
			7 * time.Second,
		},
		{
			"everything", "llm-chat-a",
			`{"v":1,"id":"r","op":"embeddings","model":"chat-a@main","lane":"bg","fallback":"target","tenant":"acme","kid":"k","user":"u","session":"s","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","params":{ "a" : 1.0,  "b":"<é" }}`,
			llmq.Request{
				ID: "r", Tenant: "acme", KeyID: "k", Allowed: llmq.ModelSet{"chat-a"}, Op: llmq.OpEmbeddings, Model: llmq.ModelRef{Alias: "chat-a", Target: "main"}, Lane: llmq.LaneBG,
				Fallback: llmq.FallbackTarget, Body: []byte(`{ "a" : 1.0,  "b":"<é" }`), User: "u", Session: "s", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			8 * time.Second,
		},
		{
			"B1: bulk on the default queue of a model without one", "llm-chat-b", `{"v":1,"id":"r","op":"chat","model":"chat-b","lane":"bulk","params":{}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-b"}, Lane: llmq.LaneBulk, Fallback: llmq.FallbackChain, Body: []byte(`{}`)},
			9 * time.Second,
		},
		{
			"a vendor's name", "llm-chat-a-bulk", `{"v":1,"id":"r","op":"chat","model":"vendor/chat-a","params":{}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "vendor/chat-a"}, Lane: llmq.LaneBulk, Fallback: llmq.FallbackChain, Body: []byte(`{}`)},
			9 * time.Second,
		},
		{
			"DS22: a model that this worker lacks", "llm-chat-a-rt", `{"v":1,"id":"r","op":"chat","model":"new","params":{}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "new"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{}`)},
			7 * time.Second,
		},
		{
			"DS22: a target that this worker lacks", "llm-chat-a", `{"v":1,"id":"r","op":"chat","model":"chat-a@new","lane":"bulk","params":{}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a", Target: "new"}, Lane: llmq.LaneBulk, Fallback: llmq.FallbackChain, Body: []byte(`{}`)},
			9 * time.Second,
		},
		{
			"no stream", "llm-chat-a-rt", `{"v":1,"id":"r","op":"chat","model":"chat-a","params":{"stream":false,"x":{"stream":true}}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{"stream":false,"x":{"stream":true}}`)},
			7 * time.Second,
		},
		{
			"stream", "llm-chat-a-rt", `{"v":1,"id":"r","op":"chat","model":"chat-a","params":{"stream":true}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{"stream":true}`), Stream: true},
			7 * time.Second,
		},
		{
			"stream of Converse", "llm-conv-rt", `{"v":1,"id":"r","op":"converse_stream","model":"conv","params":{"stream":false}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpConverseStream, Model: llmq.ModelRef{Alias: "conv"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{"stream":false}`), Stream: true},
			7 * time.Second,
		},
		{
			"stream on a wire that has none", "llm-conv-rt", `{"v":1,"id":"r","op":"converse","model":"conv","params":{"stream":true}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpConverse, Model: llmq.ModelRef{Alias: "conv"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{"stream":true}`)},
			7 * time.Second,
		},
		{
			"a wire that the model does not speak", "llm-chat-a-rt", `{"v":1,"id":"r","op":"converse","model":"chat-a","params":{}}`,
			llmq.Request{ID: "r", Tenant: "team-p", Op: llmq.OpConverse, Model: llmq.ModelRef{Alias: "chat-a"}, Lane: llmq.LaneRT, Fallback: llmq.FallbackChain, Body: []byte(`{}`)},
			7 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := message("m", tt.body)
				m.Queue = queue.Name(tt.queue)
				if tt.want.Tenant == "team-p" { // whose messages name none
					m.SenderID = "AROAP:2026-11-30"
				}
				out := w.Handle(t.Context(), []queue.Message{m})
				if len(w.calls) != 1 || out[0].Action != worker.Ack {
					t.Fatalf("outcome %+v, dead letters %+v, calls %+v; want one call", out, w.sent, w.calls)
				}
				tt.want.Deadline = w.start.Add(tt.after)
				if diff := cmp.Diff(tt.want, w.calls[0].Request); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
				if !w.calls[0].QueuedAt.Equal(m.SentAt) {
					t.Errorf("queued at %v, want %v", w.calls[0].QueuedAt, m.SentAt)
				}
			})
		})
	}
}

// A body that the door lets in at its very limits fits into an envelope.
func TestHandle_TakesWhatTheDoorTakes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"depth":   `{"a":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`,
		"members": `{"a":[` + strings.Repeat(`{"a":1},`, 9_998) + `{"a":1}]}`,
	} {
		if err := strictjson.Check([]byte(body), strictjson.Default()); err != nil {
			t.Fatalf("%s: the door refuses it: %v", name, err)
		}
		bubble(t, func(t *testing.T, w *world) {
			m := message("m", `{"v":1,"id":"r","op":"chat","model":"chat-a","lane":"rt","fallback":"chain","deadline_ms":1,"tenant":"t","kid":"k","user":"u","session":"s","traceparent":"x","generation":1,"params":`+body+`}`)
			if w.Handle(t.Context(), []queue.Message{m}); len(w.calls) != 1 {
				t.Errorf("%s: dead letters %+v, want a call", name, w.sent)
			}
		})
	}
}

// MS3: a deadline counts from the first send and is never past the lane's longest.
func TestHandle_BoundsTheDeadlineByTheConfiguredLane(t *testing.T) {
	t.Parallel()
	const inQueue = time.Minute
	for _, tt := range []struct {
		name, queue string
		asked       time.Duration // after the send; 0 is nothing
		want        time.Duration
	}{
		{"rt default", "llm-chat-a-rt", 0, 7 * time.Second},
		{"bg default", "llm-chat-a", 0, 8 * time.Second},
		{"bulk default", "llm-chat-a-bulk", 0, 9 * time.Second},
		{"asked", "llm-chat-a-rt", 69 * time.Second, 69 * time.Second},
		{"the longest", "llm-chat-a-rt", 70 * time.Second, 70 * time.Second},
		{"longer than rt's longest", "llm-chat-a-rt", 71 * time.Second, 70 * time.Second},
		{"longer than bg's longest", "llm-chat-a", time.Hour, 80 * time.Second},
		{"longer than bulk's longest", "llm-chat-a-bulk", 1000 * time.Hour, 90 * time.Second},
		{"before the send", "llm-chat-a-rt", -time.Second, -time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				sent := w.start.Add(-inQueue)
				body := envelope("r")
				if tt.asked != 0 {
					body = strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"deadline_ms":%d}`, sent.Add(tt.asked).UnixMilli())
				}
				m := message("m", body)
				m.Queue, m.SentAt = queue.Name(tt.queue), sent
				w.Handle(t.Context(), []queue.Message{m})
				if len(w.calls) != 1 || !w.calls[0].Request.Deadline.Equal(sent.Add(tt.want)) {
					t.Errorf("calls %+v, dead letters %+v; want a deadline %v after the send", w.calls, w.sent, tt.want)
				}
			})
		})
	}
}

func withRef(key string) string {
	return `{"v":1,"id":"r","op":"chat","model":"chat-a","tenant":"t","ref":{"key":"` + key + `","sha256":"` + strings.Repeat("0a", 32) + `","bytes":9}}`
}

func TestHandle_FetchesALargeBody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		key := "off/" + llmq.TenantHash("t") + "/x"
		var got llmq.Ref
		w.get = func(_ context.Context, ref llmq.Ref) ([]byte, error) { got = ref; return []byte(` {"big":1}`), nil }
		w.Handle(t.Context(), []queue.Message{message("m", withRef(key))})
		if diff := cmp.Diff(llmq.Ref{Key: key, SHA256: strings.Repeat("0a", 32), Bytes: 9}, got); diff != "" {
			t.Errorf("fetched (-want +got):\n%s", diff)
		}
		if len(w.calls) != 1 || string(w.calls[0].Request.Body) != ` {"big":1}` {
			t.Errorf("calls %+v, dead letters %+v; want the body as it is stored", w.calls, w.sent)
		}
	})
}

func TestHandle_StoredBodyThatIsNotAsItMustBe(t *testing.T) {
	t.Parallel()
	own := "off/" + llmq.TenantHash("t") + "/x"
	gives := func(body string, err error) func(context.Context, llmq.Ref) ([]byte, error) {
		return func(context.Context, llmq.Ref) ([]byte, error) { return []byte(body), err }
	}
	for _, tt := range []struct {
		name, key string
		get       func(context.Context, llmq.Ref) ([]byte, error) // nil: must not be asked
		want      worker.Outcome
	}{
		{"missing or swapped", own, gives("", llmq.Errorf(llmq.CodeBadEnvelope, "the stored body is not the one that was announced").At("ref")), worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"not JSON", own, gives("not json {", nil), worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"name twice", own, gives(`{"a":1,"a":2}`, nil), worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"no object", own, gives(`[]`, nil), worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"MS4: another tenant's", "off/" + llmq.TenantHash("u") + "/x", nil, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"MS4: a result", "res/" + llmq.TenantHash("t") + "/x", nil, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "bad_envelope"}},
		{"store down", own, gives("", llmq.Errorf(llmq.CodeQueueUnavailable, "down").Because(errors.New("503"))), worker.Outcome{MessageID: "m", Action: worker.Keep, Reason: "queue_unavailable"}},
		{"failure of no known kind", own, gives("", errors.New("who knows")), worker.Outcome{MessageID: "m", Action: worker.Keep, Reason: "internal_error"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.get = tt.get
				if w.get == nil {
					w.get = func(_ context.Context, ref llmq.Ref) ([]byte, error) {
						t.Errorf("%s was fetched", ref.Key)
						return []byte(`{}`), nil
					}
				}
				out := w.Handle(t.Context(), []queue.Message{message("m", withRef(tt.key))})
				if diff := cmp.Diff([]worker.Outcome{tt.want}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if kept := tt.want.Action == worker.Keep; kept != (len(w.sent) == 0) {
					t.Errorf("dead letters: %+v", w.sent)
				}
				if len(w.calls) != 0 {
					t.Errorf("the engine ran %+v", w.calls)
				}
			})
		})
	}
}

// DS14: a store that hangs must not hold the batch until the process is killed, nor a message much beyond its deadline.
func TestHandle_GivesABodyUpInTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ deadline, want time.Duration }{
		"limit": {60 * time.Second, 52 * time.Second}, "deadline": {20 * time.Second, 20 * time.Second}, "deadline is near": {2 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.get = func(ctx context.Context, _ llmq.Ref) ([]byte, error) {
					<-ctx.Done()
					return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "no answer").Because(ctx.Err())
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				body := strings.Replace(withRef("off/"+llmq.TenantHash("t")+"/x"), `"op"`, fmt.Sprintf(`"deadline_ms":%d,"op"`, time.Now().Add(tt.deadline).UnixMilli()), 1)
				out := w.Handle(ctx, []queue.Message{message("m", body)})
				if took := time.Since(w.start); took != tt.want || out[0].Action != worker.Keep {
					t.Errorf("took %v with %+v, want it kept after %v", took, out[0], tt.want)
				}
				if did := w.done(); did[len(did)-1] != fmt.Sprintf("%gs hide hm of llm-chat-a-rt for 10s (1 of 1)", tt.want.Seconds()) {
					t.Errorf("did %q, want it handed back at last", did)
				}
			})
		})
	}
}
