package client_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// E8: at DEBUG a stream and a call that is left say, as every call does, what their callers were told.
func TestTrace_StreamsAndSubmitsAreAnswered(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		var log bytes.Buffer
		r.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		named := func(id string, req llmq.Request) llmq.Request { req.ID = id; return req }

		whole := named("whole", streamed())
		s := r.stream(whole)
		speaker := r.speak(whole)
		speaker.say("data: a\n\n")
		speaker.end("data: a\n\ndata: b\n\n", nil)
		read(t.Context(), s, 0)

		failed := named("failed", streamed())
		s = r.stream(failed)
		r.speak(failed).end("", llmq.Errorf(llmq.CodeProviderError, "no"))
		read(t.Context(), s, 0)

		r.stream(named("left", streamed())).Close()
		r.submit(named("later", request()))
		mismatch := named("later", request())
		mismatch.Body = []byte(`{"model":"m","n":2}`)
		if _, err := r.Submit(t.Context(), mismatch); codeOf(err) != llmq.CodeIdempotencyMismatch {
			t.Errorf("another body under the id: %v", err)
		}
		var told []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "msg=call_answered") {
				_, line, _ = strings.Cut(line, "request_id=")
				id, rest, _ := strings.Cut(line, " ")
				_, rest, _ = strings.Cut(rest, "outcome=")
				outcome, _, _ := strings.Cut(rest, " ")
				told = append(told, id+" "+outcome)
			}
		}
		want := "whole ok, failed provider_error, left left, later queued, later idempotency_mismatch"
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told are %s, want %s\n%s", got, want, log.String())
		}
	})
}
