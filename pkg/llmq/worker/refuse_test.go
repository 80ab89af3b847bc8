package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// H08: rotten records leave by the dead-letter queue, told once and without their
// content; their neighbours never notice.
func TestHandle_RottenMessagesLeaveTheirNeighboursAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			if c.Request.ID == "r-4" {
				return engine.Verdict{Action: engine.Release, After: time.Minute, Reason: "provider_error"}
			}
			return engine.Verdict{Action: engine.Stored, Reason: "ok"}
		}
		m4 := message("m4", strings.Replace(envelope("r-4"), `"v":1`, `"v":1,"lane":"bg"`, 1))
		batch := []queue.Message{message("m1", envelope("r-1")), message("m2", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`), message("m3", `not json {`), m4}
		for i := range batch {
			batch[i].Queue = "llm-chat-a"
		}
		out := w.Handle(t.Context(), batch)
		want := []worker.Outcome{
			{MessageID: "m1", Action: worker.Ack, Reason: "ok"},
			{MessageID: "m2", Action: worker.Ack, Reason: "bad_envelope"},
			{MessageID: "m3", Action: worker.Ack, Reason: "bad_envelope"},
			{MessageID: "m4", Action: worker.Keep, Reason: "provider_error"},
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if len(w.calls) != 2 || len(w.sent) != 2 {
			t.Errorf("%d calls and dead letters %+v, want two of each", len(w.calls), w.sent)
		}
		log := w.log.String()
		if n := strings.Count(log, `"dead-lettered"`); n != 2 {
			t.Errorf("dead letters were told %d times, want once each:\n%s", n, log)
		}
		for _, content := range []string{"TestEvent", "Amazon", "not json"} {
			if strings.Contains(log, content) {
				t.Errorf("the log holds %q:\n%s", content, log)
			}
		}
	})
}

// DS1: what is acknowledged unrun lies in the dead-letter queue as it came, with its
// reason beside it.
func TestHandle_DeadLetterIsTheMessageWithItsReason(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		m := message("m", "{ \"v\" : 1, \"secret\":\"\x01\xff \" ")
		m.Attributes = map[string]string{"llmq_v": "1", "team": "x"}
		w.send = func(context.Context, queue.Name) error {
			time.Sleep(time.Second)
			return nil
		}
		out := w.Handle(t.Context(), []queue.Message{m})
		if out[0].Action != worker.Ack || time.Since(w.start) != time.Second {
			t.Errorf("outcome %+v after %v, want it acknowledged once it was sent", out[0], time.Since(w.start))
		}
		want := []letter{{"llm-chat-a-rt-dlq", queue.Outgoing{Body: m.Body, Attributes: map[string]string{
			"llmq_v": "1", "team": "x", "llmq_reason": "bad_envelope", "llmq_error": w.sent[0].Attributes["llmq_error"],
		}}}}
		if diff := cmp.Diff(want, w.sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if len(m.Attributes) != 2 {
			t.Errorf("the message's own attributes became %v", m.Attributes)
		}
	})
}

// DS24: what the engine refuses to run is not acknowledged without a trace.
func TestHandle_WhatTheEngineRefusesIsDeadLettered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		why := llmq.Errorf(llmq.CodeIdempotencyMismatch, "the id was used before")
		w.run = func(context.Context, engine.Call) engine.Verdict {
			return engine.Verdict{Action: engine.Refuse, Reason: string(why.Code), Err: why}
		}
		m := message("m", envelope("r"))
		out := w.Handle(t.Context(), []queue.Message{m})
		if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: worker.Ack, Reason: "idempotency_mismatch"}}, out); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		want := []letter{{"llm-chat-a-rt-dlq", queue.Outgoing{Body: m.Body, Attributes: map[string]string{
			"llmq_reason": "idempotency_mismatch", "llmq_error": "the id was used before", "llmq_tenant": "t",
		}}}}
		if diff := cmp.Diff(want, w.sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// B14: how often it was tried and how it failed last ride along with what the engine buries, which is acknowledged once its
// verdict says so; its body stays.
func TestHandle_WhatTheEngineBuriesTellsOfItsAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.get = stored
		why := llmq.Errorf(llmq.CodeProviderError, "chat-a@main: status 500")
		w.run = func(ctx context.Context, c engine.Call) engine.Verdict {
			if err := c.Bury(ctx, engine.Letter{Why: why, Attempts: 10, Class: "retryable"}); err != nil {
				t.Errorf("bury: %v", err)
			}
			return engine.Verdict{Action: engine.Stored, Reason: string(why.Code), KeepBody: true}
		}
		m := pointing("m", 9)
		m.Attributes = map[string]string{"llmq_op": "chat", "llmq_attempts": "7", "llmq_class": "throttle"}
		out := w.Handle(t.Context(), []queue.Message{m})
		if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: worker.Ack, Reason: "provider_error"}}, out); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		want := []letter{{m.Queue.DLQ(), queue.Outgoing{Body: m.Body, Attributes: map[string]string{
			"llmq_op": "chat", "llmq_reason": "provider_error", "llmq_error": why.Message, "llmq_attempts": "10", "llmq_class": "retryable", "llmq_tenant": "t",
		}}}}
		if diff := cmp.Diff(want, w.sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if did := strings.Join(w.done(), "\n"); strings.Contains(did, "remove") {
			t.Errorf("did:\n%s", did)
		}
	})
}

// A provider's words, or a job's, may hold what SQS takes in no attribute, or be none: the letter is sent all the same.
func TestHandle_DeadLetterSaysOnlyWhatSQSCarries(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]map[string]string{
		"a\uFFFEb\uFFFF \x00\x0b\tc": {"llmq_reason": "job_failed", "llmq_error": "ab \tc", "llmq_tenant": "t"},
		"\uFFFF":                     {"llmq_reason": "job_failed", "llmq_tenant": "t"},
		"":                           {"llmq_reason": "job_failed", "llmq_tenant": "t"},
	} {
		bubble(t, func(t *testing.T, w *world) {
			w.run = func(context.Context, engine.Call) engine.Verdict {
				return engine.Verdict{Action: engine.Refuse, Err: &llmq.Error{Code: llmq.CodeJobFailed, Message: said}}
			}
			w.Handle(t.Context(), []queue.Message{message("m", envelope("r"))})
			if len(w.sent) != 1 {
				t.Fatalf("sent %v", w.sent)
			}
			if diff := cmp.Diff(want, w.sent[0].Attributes); diff != "" {
				t.Errorf("%q: attributes (-want +got):\n%s", said, diff)
			}
		})
	}
}

// A member's name may be a prompt's text: the log names the envelope's own alone.
func TestHandle_LogHoldsNoNamesOfABody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		name := strings.Repeat("n", 100)
		body := strings.Replace(envelope("r"), `"messages":[]`, `"`+name+`":1,"`+name+`":2`, 1)
		if out := w.Handle(t.Context(), []queue.Message{message("m", body)}); out[0].Reason != "bad_envelope" {
			t.Fatalf("outcome %+v", out)
		}
		if log := w.log.String(); strings.Contains(log, "nnn") || !strings.Contains(log, `"field":"params"`) {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// SQS carries ten attributes; the reason is always among them.
func TestHandle_DeadLetterHasAtMostTenAttributes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ given, want int }{{0, 2}, {7, 9}, {8, 10}, {9, 10}, {10, 10}} {
		t.Run(fmt.Sprint(tt.given), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := message("m", "no")
				m.Attributes = map[string]string{}
				for i := range tt.given {
					m.Attributes[fmt.Sprintf("z%d", i)] = "x"
				}
				w.Handle(t.Context(), []queue.Message{m})
				got := w.sent[0].Attributes
				if len(got) != tt.want || got["llmq_reason"] != "bad_envelope" || got["llmq_error"] == "" {
					t.Errorf("attributes %v, want %d with the reason", got, tt.want)
				}
			})
		})
	}
}

// A letter that comes back from the dead-letter queue unmended has one reason, the new one.
func TestHandle_DeadLetterOfADeadLetterTellsTheLastReason(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		m := message("m", "no")
		m.Attributes = map[string]string{"llmq_reason": "newer_envelope", "llmq_error": "old"}
		w.Handle(t.Context(), []queue.Message{m})
		if got := w.sent[0].Attributes; len(got) != 2 || got["llmq_reason"] != "bad_envelope" || got["llmq_error"] == "old" {
			t.Errorf("attributes %v", got)
		}
	})
}

// DS1: a dead letter that could not be sent is not acknowledged.
func TestHandle_DeadLetterThatCannotBeSentComesBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(context.Context, queue.Name) error { return llmq.Errorf(llmq.CodeQueueUnavailable, "down") }
		out := w.Handle(t.Context(), []queue.Message{message("m", "no")})
		if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: worker.Keep, Reason: "bad_envelope"}}, out); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		want := []string{"0s hide hm of llm-chat-a-rt for 55s (1 of 1)", "0s send to llm-chat-a-rt-dlq failed", "0s hide hm of llm-chat-a-rt for 10s (1 of 1)"}
		if diff := cmp.Diff(want, w.done()); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
	})
}

func TestHandle_BodyStoreDownHandsTheMessageBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.get = func(context.Context, llmq.Ref) ([]byte, error) {
			return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "down").Because(errors.New("503 Slow Down"))
		}
		w.Handle(t.Context(), []queue.Message{message("m", withRef("off/"+llmq.TenantHash("t")+"/x"))})
		want := []string{"0s hide hm of llm-chat-a-rt for 55s (1 of 1)", "0s hide hm of llm-chat-a-rt for 10s (1 of 1)"}
		if diff := cmp.Diff(want, w.done()); diff != "" {
			t.Errorf("did (-want +got):\n%s", diff)
		}
		if !strings.Contains(w.log.String(), "503 Slow Down") {
			t.Errorf("the cause is not told:\n%s", w.log.String())
		}
	})
}

// DS22: a queue that only a newer configuration knows waits for a process that has it.
func TestHandle_QueueOfANewerDeploymentWaits(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]worker.Action{0: worker.Keep, time.Hour: worker.Ack} {
		t.Run(age.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				m := message("m", envelope("r"))
				m.Queue, m.SentAt = "llm-new-rt", w.start.Add(-age)
				out := w.Handle(t.Context(), []queue.Message{m})
				if diff := cmp.Diff([]worker.Outcome{{MessageID: "m", Action: want, Reason: "model_not_configured"}}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if len(w.calls) != 0 {
					t.Error("it was run")
				}
			})
		})
	}
}

// DS1: a message that has no room for its reason gives up the hints first, then the
// message of the error, and the reason last.
func TestHandle_FullMessageIsDeadLetteredAllTheSame(t *testing.T) {
	t.Parallel()
	for room, want := range map[int][]string{2: {"llmq_error", "llmq_reason", "x"}, 1: {"llmq_reason"}, 0: nil} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				refused := 0
				w.send = func(context.Context, queue.Name) error {
					if refused++; refused <= 2-room {
						return llmq.Errorf(llmq.CodeTooLarge, "too large")
					}
					return nil
				}
				m := message("m", "not json")
				m.Attributes = map[string]string{"x": "hint"}
				if out := w.Handle(t.Context(), []queue.Message{m}); out[0].Action != worker.Ack {
					t.Errorf("outcome %+v", out[0])
				}
				last := w.sent[len(w.sent)-1]
				if diff := cmp.Diff(want, slices.Sorted(maps.Keys(last.Attributes)), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// B14: a dead letter tells its reason and whose it is however full its message was, or it could not be sent again: its body is put aside, at
// the exact size from which on it must be.
func TestHandle_FullestMessageKeepsItsReasonAsADeadLetter(t *testing.T) {
	t.Parallel()
	const most = 10_000
	why := engine.Letter{Why: llmq.Errorf(llmq.CodeWorkerCrash, "5 workers ended"), Attempts: 5}
	attrs := queue.Outgoing{Attributes: map[string]string{
		queue.AttrReason: "worker_crash", queue.AttrError: "5 workers ended", queue.AttrAttempts: "5", queue.AttrTenant: "t",
	}}
	for name, over := range map[string]int{"just fits": 0, "a byte too large": 1, "as large as can be": attrs.Size()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.run = func(ctx context.Context, c engine.Call) engine.Verdict {
					if err := c.Bury(ctx, why); err != nil {
						t.Errorf("bury: %v", err)
					}
					return engine.Verdict{Action: engine.Stored, Reason: "worker_crash", KeepBody: true}
				}
				w.fits = func(m queue.Outgoing) bool { return m.Size() <= most }
				aside := map[string]string{}
				w.put = func(key string, body []byte) (llmq.Ref, error) {
					aside[key] = string(body)
					return llmq.Ref{Key: key, Bytes: int64(len(body)), SHA256: strings.Repeat("0", 64)}, nil
				}
				m := message("m", envelope("r-1"))
				m.Body = []byte(strings.Replace(string(m.Body), `[]`, `[`+strings.Repeat(" ", most-attrs.Size()+over-len(m.Body))+`]`, 1))
				w.Handle(t.Context(), []queue.Message{m})
				if len(w.sent) != 1 {
					t.Fatalf("dead letters: %d", len(w.sent))
				}
				if diff := cmp.Diff(attrs.Attributes, w.sent[0].Attributes); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
				env, err := llmq.DecodeEnvelope(w.sent[0].Body)
				if err != nil || (env.Ref != nil) != (over > 0) {
					t.Fatalf("dead letter %.300s, %v", w.sent[0].Body, err)
				}
				was, err := llmq.DecodeEnvelope(m.Body)
				if err != nil {
					t.Fatal(err)
				}
				key := llmq.Request{ID: "r-1", Tenant: "t"}.BodyKey(was.Params)
				if over > 0 && (env.Ref.Key != key || aside[key] != string(was.Params)) {
					t.Errorf("put aside %.80q, named %+v", aside, env.Ref)
				}
				was.Params, was.Ref = env.Params, env.Ref
				if diff := cmp.Diff(was, env); diff != "" {
					t.Errorf("the rest (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What is buried for not being the one under its id puts nothing where that one's body may lie.
func TestHandle_FullestMismatchPutsNothingAside(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(context.Context, engine.Call) engine.Verdict {
			return engine.Verdict{Action: engine.Refuse, Err: llmq.Errorf(llmq.CodeIdempotencyMismatch, "another body")}
		}
		w.fits = func(m queue.Outgoing) bool { return len(m.Attributes) < 3 }
		w.put = func(key string, _ []byte) (llmq.Ref, error) {
			t.Errorf("put %s", key)
			return llmq.Ref{}, nil
		}
		w.Handle(t.Context(), messages(1))
		if len(w.sent) != 1 || w.sent[0].Attributes[queue.AttrReason] != "idempotency_mismatch" {
			t.Errorf("dead letters: %+v", w.sent)
		}
	})
}
