package worker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// teller notes whom it tells what, or fails.
type teller struct {
	*world
	err error
}

func (f teller) Reply(_ context.Context, r llmq.Request, to queue.Reply) error {
	f.note("told %s of %s", to.Alias, r.ID)
	return f.err
}

// A13: a producer is told once the end is stored and before its message is acknowledged; one that can't be told keeps its message,
// until an hour past its deadline. DS53.
func TestHandle_TellsItsProducerBeforeTheMessageGoes(t *testing.T) {
	t.Parallel()
	const asks = `,"reply_to":"done"`
	for _, tt := range []struct {
		name, sender, members string
		err                   error
		sent                  time.Duration // ago
		want                  worker.Outcome
		told                  bool
	}{
		{"told", "AROAP:x", asks, nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, true},
		{"asks for nothing", "AROAP:x", "", nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, false},
		{"sent again by us", "AROAX:admin", asks + `,"tenant":"team-p"`, nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: "ok"}, true},
		{"can't be told", "AROAP:x", asks, errors.New("away"), 0, worker.Outcome{MessageID: "m", Action: worker.Keep, Reason: "reply_not_sent"}, true},
		{"can't be told for good", "AROAP:x", asks, errors.New("gone"), 2 * time.Hour, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: string(llmq.CodeConfiguration)}, true},
		{"another's alias", "AROAQ:x", asks, nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: string(llmq.CodeBadEnvelope)}, false},
		{"an unknown alias", "AROAP:x", `,"reply_to":"dome"`, nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: string(llmq.CodeBadEnvelope)}, false},
		{"another tenant's, by ours", "AROAX:admin", asks + `,"tenant":"acme"`, nil, 0, worker.Outcome{MessageID: "m", Action: worker.Ack, Reason: string(llmq.CodeBadEnvelope)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.Replies = teller{w, tt.err}
				m := from(tt.sender, "m", tt.members)
				m.SentAt = m.SentAt.Add(-tt.sent)
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{tt.want}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				did := strings.Join(w.done(), "\n")
				if strings.Contains(did, "told done of r-m") != tt.told {
					t.Errorf("did:\n%s", did)
				}
				if dead := tt.want.Action == worker.Ack && tt.want.Reason != "ok"; dead != (len(w.sent) == 1) {
					t.Errorf("dead letters: %+v", w.sent)
				}
				if tt.want.Reason == "reply_not_sent" && !strings.Contains(did, "hide hm of llm-chat-a-rt for 30s") {
					t.Errorf("it does not come back in 30 s:\n%s", did)
				}
			})
		})
	}
}

// mailbox is a queue of replies, and a bucket of them.
type mailbox struct {
	fail error
	sent []letter
	put  map[string]string
}

func (b *mailbox) Send(_ context.Context, q queue.Name, m queue.Outgoing) error {
	if b.fail == nil {
		b.sent = append(b.sent, letter{q, m})
	}
	return b.fail
}

func (b *mailbox) Put(_ context.Context, key string, body []byte) (llmq.Ref, error) {
	if b.fail == nil {
		b.put[key] = string(body)
	}
	return llmq.Ref{}, b.fail
}

// A13: what is stored is what is told, once; a failure is told again, and so is an end whose result is gone.
func TestReplies_TellWhatIsStoredOnce(t *testing.T) {
	t.Parallel()
	c := luatest.Pipe(t, llmqtest.StartMiniredis(t))
	space := luatest.Space()
	box := &mailbox{put: map[string]string{}}
	x := &worker.Replies{Valkey: c, Space: space, Results: results.New(c, space, nil, 1000), Queue: box, Bodies: box}
	r := llmq.Request{ID: "r-1", Tenant: "team-p", Lane: llmq.LaneBG, Deadline: time.Now().Add(time.Minute)}
	stored, err := llmq.EncodeResult(llmq.Result{RID: r.RID(), Tenant: r.Tenant, Reply: &llmq.Reply{Status: 200, Body: []byte(`{"x":"` + "\uFFFE\uFFFF" + `"}`), Meta: llmq.Meta{RequestID: r.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set(t.Context(), space.Call(r.Tenant, r.RID()).Result, stored, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	onQueue, inBucket := queue.Reply{Alias: "done", Queue: "replies"}, queue.Reply{Alias: "archive"}
	box.fail = errors.New("away")
	for _, to := range []queue.Reply{onQueue, inBucket} {
		if err := x.Reply(t.Context(), r, to); !errors.Is(err, box.fail) {
			t.Errorf("%s: %v", to.Alias, err)
		}
	}
	if lives := c.PTTL(t.Context(), space.Call(r.Tenant, r.RID()).Result).Val(); lives < 24*time.Hour {
		t.Errorf("what could not be told lives for %s, and is tried again for an hour", lives)
	}
	box.fail = nil
	for range 2 { // the second is a copy of the message, or one whose acknowledgement was lost
		for _, to := range []queue.Reply{onQueue, inBucket} {
			if err := x.Reply(t.Context(), r, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []letter{{"replies", queue.Outgoing{ // SQS takes neither character as it is
		Body: bytes.Replace(stored, []byte("\uFFFE\uFFFF"), []byte(`\ufffe\uffff`), 1), Group: llmq.TenantHash("team-p"), Attributes: map[string]string{"llmq_request_id": "r-1", "llmq_rid": string(r.RID())},
	}}}
	if diff := cmp.Diff(want, box.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	key := "res/" + llmq.TenantHash("team-p") + "/reply-archive-" + string(r.RID())
	if diff := cmp.Diff(map[string]string{key: string(stored)}, box.put); diff != "" {
		t.Errorf("put (-want +got):\n%s", diff)
	}

	gone := llmq.Request{ID: "r-2", Tenant: "team-p", Lane: llmq.LaneBG}
	if err := x.Reply(t.Context(), gone, onQueue); err != nil {
		t.Fatal(err)
	}
	res, _, err := llmq.DecodeResult(box.sent[1].Body, gone.RID(), gone.Tenant)
	if err != nil || res.Err == nil || res.Err.Code != llmq.CodeResultExpired || res.Err.Meta.RequestID != "r-2" {
		t.Errorf("told of an end that is gone: %+v, %v", res, err)
	}
}
