package worker_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// from is a message of a sender on the rt queue of chat-a; members are added to the least envelope.
func from(sender, id, members string) queue.Message {
	m := message(id, `{"v":1,"id":"r-`+id+`","op":"chat","model":"chat-a","params":{}`+members+`}`)
	m.SenderID = sender
	return m
}

// runs lists what the engine ran, as "id of tenant".
func (w *world) runs() []string {
	var ids []string
	for _, c := range w.calls {
		ids = append(ids, c.Request.ID+" of "+c.Request.Tenant)
	}
	return ids
}

// SEC16 (its kid of another tenant comes with keys that are stored), MS1, MS2: what a message says of
// its tenant counts by its sender, and a stranger's is not even read. Neighbours succeed.
func TestHandle_WhoseAMessageIsFollowsFromItsSender(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sender, members string
		attributes            map[string]string
		tenant                string    // whose it runs as; "" is not run
		code                  llmq.Code // of the dead letter
		field                 string
	}{
		{name: "the door names the tenant", sender: "AROAX:llmq-enqueue", members: `,"tenant":"acme","kid":"k"`, tenant: "acme"},
		{name: "without a session name", sender: "AROAX", members: `,"tenant":"acme"`, tenant: "acme"},
		{name: "a redrive", sender: "AROAX:llmq-admin", members: `,"tenant":"acme","generation":2`, tenant: "acme"},
		{name: "one of ours without a tenant", sender: "AROAX:llmq-enqueue", code: llmq.CodeBadEnvelope, field: "tenant"},
		{name: "a producer has its own tenant", sender: "AROAP:host-7", tenant: "team-p"},
		{name: "a producer may name it", sender: "AROAP:host-7", members: `,"tenant":"team-p"`, tenant: "team-p"},
		{name: "a producer naming another tenant", sender: "AROAP:host-7", members: `,"tenant":"acme"`, code: llmq.CodeBadEnvelope, field: "tenant"},
		{name: "a producer naming another producer's", sender: "AROAP:host-7", members: `,"tenant":"team-q"`, code: llmq.CodeBadEnvelope, field: "tenant"},
		{name: "a producer naming a key", sender: "AROAP:host-7", members: `,"kid":"k"`, code: llmq.CodeBadEnvelope, field: "kid"},
		{name: "a producer naming a generation", sender: "AROAP:host-7", members: `,"generation":1`, code: llmq.CodeBadEnvelope, field: "generation"},
		{name: "a producer naming no header", sender: "AROAP:host-7", members: `,"headers":{}`, tenant: "team-p"},
		{name: "an attribute names no producer's tenant", sender: "AROAP:host-7", attributes: map[string]string{"llmq_tenant": "acme"}, tenant: "team-p"},
		{name: "unlisted", sender: "AROAZ:x", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "unlisted with a tenant beside", sender: "AROAZ:x", attributes: map[string]string{"llmq_tenant": "acme"}, code: llmq.CodeSenderNotAllowed},
		{name: "unlisted of a newer version", sender: "AROAZ:x", members: `,"v":2`, code: llmq.CodeSenderNotAllowed},
		{name: "listed only as session name", sender: "AROAZ:AROAX", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "a producer's only as session name", sender: "AROAZ:AROAP", code: llmq.CodeSenderNotAllowed},
		{name: "begins as a listed one", sender: "AROAX2:x", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "in other case", sender: "aroax:x", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "nobody", sender: "", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "nobody in a session", sender: ":AROAX", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
		{name: "a dead letter moved back", sender: "AROAW:llmq-worker-rt", attributes: map[string]string{"llmq_tenant": "acme"}, tenant: "acme"},
		{name: "a dead letter moved back names another", sender: "AROAW:w", members: `,"tenant":"b"`, attributes: map[string]string{"llmq_tenant": "acme"}, code: llmq.CodeBadEnvelope, field: "tenant"},
		{name: "a dead letter moved back without its tenant", sender: "AROAW:w", members: `,"tenant":"acme"`, code: llmq.CodeSenderNotAllowed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := from(tt.sender, "m", tt.members)
				m.Attributes = tt.attributes
				out := w.Handle(t.Context(), []queue.Message{from("AROAP:x", "before", ""), m, from("AROAQ:x", "after", "")})
				want := map[string]bool{"r-before of team-p": true, "r-after of team-q": true}
				if tt.tenant != "" {
					want["r-m of "+tt.tenant] = true
				}
				got := map[string]bool{}
				for _, run := range w.runs() {
					got[run] = true
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
				if tt.tenant != "" {
					return
				}
				if out[1] != (worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: string(tt.code)}) || len(w.sent) != 1 {
					t.Fatalf("outcome %+v, sent %+v; want one dead letter for %s", out[1], w.sent, tt.code)
				}
				letter := w.sent[0]
				if letter.Queue != m.Queue.DLQ() || letter.Attributes["llmq_reason"] != string(tt.code) {
					t.Errorf("dead letter in %s with %v", letter.Queue, letter.Attributes)
				}
				if got := letter.Attributes["llmq_tenant"]; got != "" {
					t.Errorf("it is told to be %s's, and nobody knows whose it is", got)
				}
				if tt.field != "" && !strings.Contains(w.log.String(), `"field":"`+tt.field+`"`) {
					t.Errorf("%s is not named:\n%s", tt.field, w.log.String())
				}
			})
		})
	}
}

// SEC17, MS3: our own message on another model's or lane's queue is refused; sent again by a redrive
// after 13 d it runs for its tenant; moved back by the console it keeps its deadline, which has passed.
func TestHandle_MessageThatWasMoved(t *testing.T) {
	t.Parallel()
	const door, admin, buried = "AROAX:llmq-enqueue", "AROAX:llmq-admin", "AROAW:llmq-worker-rt"
	for _, tt := range []struct {
		name, sender, queue, members string
		want                         string    // run
		code                         llmq.Code // dead letter
	}{
		{name: "another model's queue", sender: door, queue: "llm-chat-b-rt", members: `,"tenant":"acme"`, code: llmq.CodeWrongQueue},
		{name: "another lane's queue", sender: door, queue: "llm-chat-a-bulk", members: `,"tenant":"acme","lane":"rt"`, code: llmq.CodeWrongQueue},
		{name: "a redrive", sender: admin, queue: "llm-chat-a-rt", members: `,"tenant":"acme","generation":1`, want: "r-m of acme in 7s"},
		{name: "moved by the console", sender: buried, queue: "llm-chat-a-rt", members: `,"tenant":"acme","deadline_ms":1000`, want: "r-m of acme expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := from(tt.sender, "m", tt.members)
				m.Queue = queue.Name(tt.queue)
				if tt.sender == buried {
					m.Attributes = map[string]string{"llmq_reason": "worker_crash", "llmq_tenant": "acme"}
				}
				w.Handle(t.Context(), []queue.Message{m})
				var got string
				for _, c := range w.calls {
					got = c.Request.ID + " of " + c.Request.Tenant
					if left := c.Request.Deadline.Sub(w.start); left > 0 {
						got += " in " + left.String()
					} else {
						got += " expired" // which the engine tells its caller, without a call
					}
				}
				if got != tt.want {
					t.Errorf("ran %q, want %q", got, tt.want)
				}
				if tt.code == "" {
					return
				}
				if len(w.sent) != 1 || w.sent[0].Attributes["llmq_reason"] != string(tt.code) || w.sent[0].Attributes["llmq_tenant"] != "acme" {
					t.Errorf("sent %+v, want a dead letter of acme for %s", w.sent, tt.code)
				}
			})
		})
	}
}

// SEC18, MS3: a message can't set what only the configuration may; nothing is fetched or called for it.
func TestHandle_MessageSetsNothingThatReaches(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]string{
		"base_url": `"http://169.254.169.254/"`, "endpoint": `"http://evil"`, "headers": `{"X-A":"b"}`, "credentials": `{"k":"s"}`, "api_key": `"sk"`,
		"provider": `"p"`, "region": `"eu-west-1"`, "attempts": `0`, "retry": `{}`, "budget": `1`, "price": `0`, "tier": `"priority"`, "limits": `{}`,
		"queue_url": `"https://sqs/q"`, "reply_queue": `"arn:aws:sqs:x"`, "bucket": `"b"`, "delay": `1`, "reason": `"x"`, "spend": `0`, "anything": `null`,
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			for _, sender := range []string{"AROAX:llmq-enqueue", "AROAP:host"} { // not even our own
				bubble(t, func(t *testing.T, w *world) {
					w.get = func(_ context.Context, ref llmq.Ref) ([]byte, error) {
						t.Errorf("%s was fetched", ref.Key)
						return []byte(`{}`), nil
					}
					ref := `,"ref":{"key":"in/nightly/x","sha256":"` + strings.Repeat("0a", 32) + `","bytes":9}`
					m := from(sender, "m", fmt.Sprintf(`,"%s":%s`, field, value)+ref)
					m.Body = []byte(strings.Replace(string(m.Body), `"params":{},`, "", 1))
					w.Handle(t.Context(), []queue.Message{m})
					if len(w.calls) != 0 || len(w.sent) != 1 || w.sent[0].Attributes["llmq_reason"] != "bad_envelope" || !strings.Contains(w.sent[0].Attributes["llmq_error"], field) {
						t.Errorf("calls %+v, dead letters %+v; want one for %s", w.calls, w.sent, field)
					}
				})
			}
		})
	}
}

// SEC18, MS3: what goes with an invocation, such as its tier, is for our own roles to say; a producer's message that says it
// is a dead letter.
func TestHandle_ProducerSetsNoHeaders(t *testing.T) {
	t.Parallel()
	for sender, ours := range map[string]bool{"AROAX:llmq-enqueue": true, "AROAP:host": false} {
		for _, name := range llmq.OpInvoke.Headers() {
			bubble(t, func(t *testing.T, w *world) {
				m := from(sender, "m", `,"tenant":"team-p","headers":{"`+name+`":"priority"}`)
				m.Queue = "llm-inv-rt"
				m.Body = []byte(strings.Replace(string(m.Body), `"op":"chat","model":"chat-a"`, `"op":"invoke","model":"inv"`, 1))
				w.Handle(t.Context(), []queue.Message{m})
				if ours {
					if len(w.calls) != 1 || w.calls[0].Request.Headers[name] != "priority" {
						t.Errorf("%s of the door: calls %+v, dead letters %+v; want a call with it", name, w.calls, w.sent)
					}
					return
				}
				if len(w.calls) != 0 || len(w.sent) != 1 || w.sent[0].Attributes["llmq_reason"] != "bad_envelope" || !strings.Contains(w.sent[0].Attributes["llmq_error"], "headers") {
					t.Errorf("%s of a producer: calls %+v, dead letters %+v; want one for headers", name, w.calls, w.sent)
				}
				if !strings.Contains(w.log.String(), `"field":"headers"`) {
					t.Errorf("headers is not named:\n%s", w.log.String())
				}
			})
		}
	}
}

// SEC19, MS4: a pointer reaches its own tenant's bodies, and those that its producer has put aside.
// What it may not reach is not asked for. (Swapped, too large and oddly named objects: package offload.)
func TestHandle_PointerReachesItsOwnOnly(t *testing.T) {
	t.Parallel()
	own := "off/" + llmq.TenantHash("team-p") + "/"
	for _, tt := range []struct {
		name, sender, tenant, key string
		want                      bool
	}{
		{"a producer's folder", "AROAP:x", "", "in/nightly/a.json", true},
		{"its tenant's", "AROAP:x", "", own + "a", true},
		{"another producer's folder", "AROAP:x", "", "in/daily/a.json", false},
		{"a folder that begins alike", "AROAP:x", "", "in/nightly2/a", false},
		{"another tenant's", "AROAP:x", "", "off/" + llmq.TenantHash("acme") + "/a", false},
		{"a result", "AROAP:x", "", "res/" + llmq.TenantHash("team-p") + "/a", false},
		{"another bucket", "AROAP:x", "", "s3://other/in/nightly/a", false},
		{"another bucket's ARN", "AROAP:x", "", "arn:aws:s3:::other/in/nightly/a", false},
		{"above its folder", "AROAP:x", "", "../in/nightly/a", false},
		{"keys", "AROAP:x", "", "keys/abc.json", false},
		{"ours", "AROAX:x", "acme", "off/" + llmq.TenantHash("acme") + "/a", true},
		{"ours of another tenant", "AROAX:x", "acme", own + "a", false},
		{"a redrive of a producer's", "AROAX:x", "team-p", "in/nightly/a.json", true},
		{"a redrive of another tenant", "AROAX:x", "acme", "in/nightly/a.json", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				body := []byte(`{"big":1}`)
				sum := sha256.Sum256(body)
				fetched := false
				w.get = func(_ context.Context, ref llmq.Ref) ([]byte, error) {
					fetched = true
					if ref.Key != tt.key {
						t.Errorf("%s was fetched", ref.Key)
					}
					return body, nil
				}
				members := fmt.Sprintf(`"ref":{"key":%q,"sha256":%q,"bytes":%d}`, tt.key, hex.EncodeToString(sum[:]), len(body))
				if tt.tenant != "" {
					members += fmt.Sprintf(`,"tenant":%q`, tt.tenant)
				}
				m := from(tt.sender, "m", "")
				m.Body = []byte(strings.Replace(string(m.Body), `"params":{}`, members, 1))
				w.Handle(t.Context(), []queue.Message{m})
				if fetched != tt.want || (len(w.calls) == 1) != tt.want {
					t.Errorf("fetched: %t, run: %+v, dead letters: %+v; want it to reach: %t", fetched, w.calls, w.sent, tt.want)
				}
				if !tt.want && (len(w.sent) != 1 || w.sent[0].Attributes["llmq_reason"] != "bad_envelope") {
					t.Errorf("dead letters: %+v", w.sent)
				}
			})
		})
	}
}

// MS2, B14: a dead letter carries the tenant that its worker found, whatever its sender wrote beside it.
func TestHandle_DeadLetterCarriesTheTenantThatWasFound(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		m := from("AROAP:host", "m", `,"lane":"bulk"`)
		m.Attributes = map[string]string{"llmq_tenant": "acme"}
		w.Handle(t.Context(), []queue.Message{m})
		if len(w.sent) != 1 || w.sent[0].Attributes["llmq_reason"] != "wrong_queue" || w.sent[0].Attributes["llmq_tenant"] != "team-p" {
			t.Errorf("sent %+v, want a dead letter of team-p", w.sent)
		}
	})
}

// MS3: a producer's deadline is clamped like everybody's.
func TestHandle_ProducersDeadlineIsClamped(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.Handle(t.Context(), []queue.Message{from("AROAP:host", "m", fmt.Sprintf(`,"deadline_ms":%d`, time.Now().Add(time.Hour).UnixMilli()))})
		if len(w.calls) != 1 || !w.calls[0].Request.Deadline.Equal(w.start.Add(70*time.Second)) {
			t.Errorf("calls %+v, want one with rt's longest deadline", w.calls)
		}
	})
}
