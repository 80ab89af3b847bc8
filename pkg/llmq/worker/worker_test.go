package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

func TestNew_ListsEverythingThatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := worker.New(worker.Config{Timeouts: map[llmq.Lane]worker.Timeouts{
		llmq.LaneBG: {Default: 2, Max: 1}, llmq.LaneBulk: {Max: 1},
	}}, worker.Deps{})
	if err == nil {
		t.Fatal("nothing is missed")
	}
	for _, want := range []string{"Config.Names", "Config.Senders", "Timeouts[rt]", "Timeouts[bg]", "Timeouts[bulk]", "Deps.Queue", "Deps.Engine", "Deps.Bodies", "Deps.Keys", "Deps.Log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named:\n%v", want, err)
		}
	}
}

func TestHandle_EmptyBatchDoesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		if out := w.Handle(t.Context(), nil); len(out) != 0 {
			t.Errorf("outcomes %+v", out)
		}
		if did := w.done(); len(did) != 0 {
			t.Errorf("did %q", did)
		}
	})
}

// DS1, DS13: what each verdict makes of its message, and in which order.
func TestHandle_DoesWhatTheVerdictSays(t *testing.T) {
	t.Parallel()
	const first = "0s hide h1 of llm-chat-a-rt for 55s (1 of 1)"
	for _, tt := range []struct {
		name    string
		verdict engine.Verdict
		defers  bool
		fails   bool // the visibility can't be changed
		want    worker.Action
		did     []string
	}{
		{"stored", engine.Verdict{Action: engine.Stored}, false, false, worker.Ack, []string{first}},
		{"leave", engine.Verdict{Action: engine.Leave}, false, false, worker.Keep, []string{first}},
		{"leave does not defer", engine.Verdict{Action: engine.Leave}, true, false, worker.Keep, []string{first}},
		{"release", engine.Verdict{Action: engine.Release, After: 7 * time.Second}, false, false, worker.Keep, []string{first, "0s hide h1 of llm-chat-a-rt for 7s (1 of 1)"}},
		{"release at once", engine.Verdict{Action: engine.Release}, false, false, worker.Keep, []string{first, "0s hide h1 of llm-chat-a-rt for 0s (1 of 1)"}},
		{"release for long", engine.Verdict{Action: engine.Release, After: time.Hour}, true, false, worker.Keep, []string{first, "0s hide h1 of llm-chat-a-rt for 900s (1 of 1)", "0s defer"}},
		{"release and defer", engine.Verdict{Action: engine.Release, After: 7 * time.Second}, true, false, worker.Keep, []string{first, "0s hide h1 of llm-chat-a-rt for 7s (1 of 1)", "0s defer"}},
		// The message is back at the end of its lease, and must find its claim given back with
		// its attempts, not one that seems a dead worker's.
		{"release that fails", engine.Verdict{Action: engine.Release, After: 7 * time.Second}, true, true, worker.Keep, []string{"0s can't hide h1 of llm-chat-a-rt for 55s (1 of 1)", "0s can't hide h1 of llm-chat-a-rt for 7s (1 of 1)", "0s defer"}},
		{"no verdict", engine.Verdict{}, false, false, worker.Keep, []string{first}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				if tt.defers {
					tt.verdict.Defer = func(context.Context) { w.note("defer") }
				}
				if tt.fails {
					w.extend = func(context.Context, queue.Name, []queue.Lease) error { return errors.New("down") }
				}
				tt.verdict.Reason = "because"
				w.run = func(context.Context, engine.Call) engine.Verdict { return tt.verdict }
				out := w.Handle(t.Context(), messages(1))
				if diff := cmp.Diff([]worker.Outcome{{MessageID: "1", Action: tt.want, Reason: "because"}}, out); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.did, w.done()); diff != "" {
					t.Errorf("did (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// DS16: the end of the invocation's context must not keep a message from being handed back.
func TestHandle_HandsBackAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		var released, deferred error
		w.run = func(context.Context, engine.Call) engine.Verdict {
			cancel()
			return engine.Verdict{Action: engine.Release, After: time.Second, Defer: func(ctx context.Context) { deferred = ctx.Err() }}
		}
		w.extend = func(ctx context.Context, _ queue.Name, _ []queue.Lease) error {
			released = ctx.Err()
			return released
		}
		w.Handle(ctx, messages(1))
		if released != nil || deferred != nil {
			t.Errorf("release under %v, deferral under %v; want contexts that live", released, deferred)
		}
	})
}

func TestHandle_ReleaseIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(context.Context, engine.Call) engine.Verdict {
			return engine.Verdict{Action: engine.Release, After: time.Second, Defer: func(context.Context) { w.note("defer") }}
		}
		w.extend = func(ctx context.Context, _ queue.Name, leases []queue.Lease) error {
			if leases[0].For == worker.Lease {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		w.Handle(t.Context(), messages(1))
		if did := w.done(); did[len(did)-1] != "2s defer" {
			t.Errorf("did %q, want the deferral after two seconds", did)
		}
	})
}

// DS2, DS3: a panic costs its own message one delivery, and tells nothing of its value.
func TestHandle_PanicKeepsItsMessageAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			if c.Request.ID == "r-2" {
				panic("the prompt was: tell me a secret")
			}
			time.Sleep(time.Second)
			return engine.Verdict{Action: engine.Stored, Reason: "ok"}
		}
		out := w.Handle(t.Context(), messages(3))
		want := []worker.Outcome{
			{MessageID: "1", Action: worker.Ack, Reason: "ok"},
			{MessageID: "2", Action: worker.Keep, Reason: "not_finished"},
			{MessageID: "3", Action: worker.Ack, Reason: "ok"},
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		log := w.log.String()
		if strings.Contains(log, "secret") || strings.Contains(log, "prompt") {
			t.Errorf("the log holds the panic's value:\n%s", log)
		}
		if !strings.Contains(log, `"message_id":"2"`) || !strings.Contains(log, `"panic_type":"string"`) || !strings.Contains(log, "worker_test.go") {
			t.Errorf("the log does not say where it was:\n%s", log)
		}
		// It comes back at the end of its lease, when its claim has lapsed (DS10).
		if did := w.done(); !slices.Contains(did, "0s hide h2 of llm-chat-a-rt for 55s (2 of 3)") || len(did) != 3 {
			t.Errorf("did %q, want one lease for each", did)
		}
	})
}

// A panic on the way to the dead-letter queue is one like any other.
func TestHandle_PanicOfACollaboratorKeepsTheMessage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(context.Context, queue.Name) error { panic(errors.New("boom")) }
		out := w.Handle(t.Context(), []queue.Message{message("bad", "no"), message("good", envelope("r"))})
		if out[0].Action != worker.Keep || out[1].Action != worker.Ack {
			t.Errorf("outcomes %+v", out)
		}
	})
}

// DS14: the engine learns how long this process lives, less what its end needs.
func TestHandle_TellsTheEngineItsLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		w.Handle(ctx, messages(1))
		w.Handle(t.Context(), messages(1))
		if got := w.calls[0].Limit; !got.Equal(w.start.Add(100*time.Second - worker.Margin)) {
			t.Errorf("limit %v after the start, want %v", got.Sub(w.start), 100*time.Second-worker.Margin)
		}
		if got := w.calls[1].Limit; !got.IsZero() {
			t.Errorf("limit %v without a deadline, want none", got)
		}
	})
}

func TestHandle_RunsItsMessagesSideBySide(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.run = func(context.Context, engine.Call) engine.Verdict {
			time.Sleep(5 * time.Second)
			return engine.Verdict{Action: engine.Stored}
		}
		w.Handle(t.Context(), messages(10))
		if took := time.Since(w.start); took != 5*time.Second {
			t.Errorf("ten calls of 5 s took %v", took)
		}
	})
}
