package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// key is where the body of a request of tenant t is put aside.
func key(id string) string {
	return llmq.Request{ID: id, Tenant: "t"}.BodyKey([]byte(`{"messages":[]}`))
}

// pointing is a message whose body of so many bytes lies in the store.
func pointing(id string, bytes int) queue.Message {
	ref := fmt.Sprintf(`"ref":{"key":%q,"sha256":%q,"bytes":%d}`, key(id), strings.Repeat("0", 64), bytes)
	return message(id, strings.Replace(envelope(id), `"params":{"messages":[]}`, ref, 1))
}

func stored(context.Context, llmq.Ref) ([]byte, error) { return []byte(`{"messages":[]}`), nil }

// B9, DS42: an offloaded body is removed once its message is deleted, by a request of its own for those messages alone; the
// function's reply would come too late.
func TestHandle_OffloadedBodyGoesAfterItsMessage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.get = stored
		w.run = sleeps(map[string]int{"r-1": 1, "a": 2, "b": 3})
		out := w.Handle(t.Context(), append(messages(1), pointing("a", 9), pointing("b", 9)))
		for _, o := range out {
			if o.Action != worker.Ack {
				t.Errorf("outcome %+v", o)
			}
		}
		did := w.done()[3:] // after the leases
		if !strings.HasSuffix(did[2], key("a")) {
			did[2], did[3] = did[3], did[2] // side by side
		}
		want := []string{
			"3s delete ha of llm-chat-a-rt (1 of 2)", "3s delete hb of llm-chat-a-rt (2 of 2)",
			"3s remove " + key("a"), "3s remove " + key("b"),
		}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Errorf("did at the end (-want +got):\n%s", diff)
		}
	})
}

// B9: whatever may still be run keeps its body.
func TestHandle_OffloadedBodyStaysWithAMessageThatStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		verdict engine.Verdict
		fails   bool // the deletion
		left    time.Duration
		action  worker.Action
	}{
		{"released", engine.Verdict{Action: engine.Release}, false, time.Minute, worker.Keep},
		{"left alone", engine.Verdict{Action: engine.Leave}, false, time.Minute, worker.Keep},
		{"a dead letter, which may be sent again", engine.Verdict{Action: engine.Refuse, Err: llmq.Errorf(llmq.CodeWorkerCrash, "x")}, false, time.Minute, worker.Ack},
		{"sent again from there", engine.Verdict{Action: engine.Stored, KeepBody: true}, false, time.Minute, worker.Ack},
		{"not deleted", engine.Verdict{Action: engine.Stored}, true, time.Minute, worker.Ack},
		{"no time is left", engine.Verdict{Action: engine.Stored}, false, 10 * time.Second, worker.Ack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.get = stored
				w.run = func(context.Context, engine.Call) engine.Verdict {
					time.Sleep(9500 * time.Millisecond)
					return tt.verdict
				}
				w.delete = func(ctx context.Context, _ queue.Name, _ []string) []error {
					if tt.fails {
						return []error{llmq.Errorf(llmq.CodeQueueUnavailable, "down")}
					}
					return []error{ctx.Err()}
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.left)
				defer cancel()
				out := w.Handle(ctx, []queue.Message{pointing("a", 9)})
				if out[0].Action != tt.action {
					t.Errorf("outcome %+v", out[0])
				}
				if did := strings.Join(w.done(), "\n"); strings.Contains(did, "remove") {
					t.Errorf("did:\n%s", did)
				}
			})
		})
	}
}

// B9: what was not put aside for this request alone is not removed with it: a producer may name one object in two
// messages.
func TestHandle_AnothersBodyIsLeftAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.get = stored
		m := pointing("a", 9)
		m.Body = []byte(strings.Replace(string(m.Body), key("a"), "off/"+llmq.TenantHash("t")+"/shared", 1))
		out := w.Handle(t.Context(), []queue.Message{m})
		if did := w.done(); out[0].Action != worker.Ack || len(did) != 1 {
			t.Errorf("outcome %+v, did %q", out[0], did)
		}
	})
}

// What can't be removed is told, and changes nothing: the bucket forgets it.
func TestHandle_BodyThatCannotBeRemovedIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.get = stored
		w.remove = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		out := w.Handle(t.Context(), []queue.Message{pointing("a", 9)})
		if took := time.Since(w.start); took != 5*time.Second || out[0].Action != worker.Ack {
			t.Errorf("%+v after %v", out[0], took)
		}
		if log := w.log.String(); !strings.Contains(log, "not removed") {
			t.Errorf("not told:\n%s", log)
		}
	})
}

// B9, SEC19: a body that is not there is a dead letter with its reason, unless the message came once more after its
// request's end: then there is nothing to run.
func TestHandle_MissingBody(t *testing.T) {
	t.Parallel()
	missing := llmq.Errorf(llmq.CodeBadEnvelope, "the body that ref names is not stored").At("ref").Because(fs.ErrNotExist)
	swapped := llmq.Errorf(llmq.CodeBadEnvelope, "the stored body is not the one that was announced").At("ref").Because(llmq.ErrBodySwapped)
	for _, tt := range []struct {
		name  string
		get   error
		ended bool
		down  bool // the state store
		want  worker.Outcome
		dead  int
	}{
		{"of a request that has ended", missing, true, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "already_stored"}, 0},
		{"of one that has not: its caller is told", missing, false, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "bad_envelope"}, 1},
		{"nobody knows", missing, false, true, worker.Outcome{MessageID: "a", Action: worker.Keep, Reason: "queue_unavailable"}, 0},
		{"of one sent again from a dead-letter queue that has ended since", missing, true, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "already_stored"}, 0},
		{"of one sent again that has not: its caller is told", missing, false, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "bad_envelope"}, 1},
		{"a swapped one, after the end", swapped, true, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "already_stored"}, 0},
		{"a swapped one: its caller is told", swapped, false, false, worker.Outcome{MessageID: "a", Action: worker.Ack, Reason: "bad_envelope"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.get = func(context.Context, llmq.Ref) ([]byte, error) { return nil, tt.get }
				w.ended = func(_ context.Context, r llmq.Request) (bool, error) {
					if again := strings.Contains(tt.name, "sent again"); r.ID != "a" || r.Tenant != "t" || (r.Generation == 1) != again {
						t.Errorf("asked for %q of %q", r.ID, r.Tenant)
					}
					if tt.down {
						return false, errors.New("down")
					}
					return tt.ended, nil
				}
				w.run = func(ctx context.Context, c engine.Call) engine.Verdict {
					if !errors.Is(c.Lost, tt.get) || c.Bury(ctx, engine.Letter{Why: c.Lost}) != nil {
						t.Errorf("it is run: %+v", c)
					}
					return engine.Verdict{Action: engine.Stored, Reason: "bad_envelope", KeepBody: true}
				}
				m := pointing("a", 9)
				if strings.Contains(tt.name, "sent again") {
					m.Body = []byte(strings.Replace(string(m.Body), `{"v":1,`, `{"v":1,"generation":1,`, 1))
				}
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{tt.want}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if told := strings.Contains(tt.name, "its caller is told"); (len(w.calls) == 1) != told || len(w.sent) != tt.dead {
					t.Errorf("%d runs, dead letters %+v", len(w.calls), w.sent)
				}
			})
		})
	}
}

// DS42, ADR 0017: a Go program's message names the tenant's own place of its id, so its caller is told at once that the body is gone. Nobody
// else's message tells of a request: not that of another tenant's producer, nor one that names what a producer has put aside itself.
func TestHandle_MissingBodyOfAProducer(t *testing.T) {
	t.Parallel()
	own := llmq.Request{ID: "a", Tenant: "team-p"}.BodyKey(nil)
	for name, tt := range map[string]struct {
		sender, key string
		told        bool
		swapped     bool // and not gone
	}{
		"a Go program's":                   {"AROAG:host", own, true, false},
		"another one where a Go program's": {"AROAG:host", own, true, true},
		"a plain producer's":               {"AROAP:host", own, false, false},
		"another one where a producer's":   {"AROAP:host", own, false, true},
		"the producer's own object":        {"AROAP:host", "in/nightly/a", false, false},
		"another id's of the tenant":       {"AROAP:host", llmq.Request{ID: "b", Tenant: "team-p"}.BodyKey(nil), false, false},
		"another tenant's, of that tenant": {"AROAQ:host", own, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.get = func(context.Context, llmq.Ref) ([]byte, error) {
					why := fs.ErrNotExist
					if tt.swapped {
						why = llmq.ErrBodySwapped
					}
					return nil, llmq.Errorf(llmq.CodeBadEnvelope, "the body that ref names can't be had").At("ref").Because(why)
				}
				w.ended = func(context.Context, llmq.Request) (bool, error) { return false, nil }
				w.run = func(ctx context.Context, c engine.Call) engine.Verdict {
					if c.Lost == nil || c.Request.Tenant != "team-p" || c.Bury(ctx, engine.Letter{Why: c.Lost}) != nil {
						t.Errorf("it is run: %+v", c)
					}
					return engine.Verdict{Action: engine.Stored, Reason: "bad_envelope", KeepBody: true}
				}
				m := pointing("a", 9)
				m.SenderID = tt.sender
				m.Body = []byte(strings.NewReplacer(key("a"), tt.key, `"tenant":"t",`, "").Replace(string(m.Body)))
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{{MessageID: "a", Action: worker.Ack, Reason: "bad_envelope"}}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if (len(w.calls) == 1) != tt.told || len(w.sent) != 1 {
					t.Errorf("%d runs, dead letters %+v", len(w.calls), w.sent)
				}
			})
		})
	}
}
