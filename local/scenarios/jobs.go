package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// jobPackages are the workers that run jobs, by their artifacts.
var jobPackages = map[string]string{"example-jobs": "github.com/llm-queue/llmq/examples/jobs"}

// Jobs of the example's worker, beside calls.
func jobs() []scenario {
	return []scenario{
		{ID: "S24", What: "a call and a job whose bodies are larger than a message holds: both run, each on its own body", Run: s24},
		{ID: "S28", What: "100 jobs at once (short: 30) on a queue of 5 slots: each runs on its worker and its result comes back; a name that no function has is no reply", Run: s28},
	}
}

// textQueue is a queue of the example's jobs.
func textQueue(slots int) func(*config.Config) {
	return func(c *config.Config) {
		c.Jobs = []config.JobQueue{{Name: "text", Artifact: "example-jobs", Timeout: 30 * time.Second, Slots: slots, MemoryMB: 256}}
	}
}

// Sender is a Go program of the tenant's that sends jobs, until the trial ends.
func (t *trial) Sender(ctx context.Context, w *world) (*wiring.Program, error) {
	p, err := wiring.Open(ctx, w.Environ(), tenant, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	t.onClose(func(context.Context) error { return p.Close() }) //nolint:contextcheck // it has a bound of its own
	return p, nil
}

func s24(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, textQueue(2))
	if err != nil {
		return err
	}
	p, err := t.Sender(ctx, w)
	if err != nil {
		return err
	}
	large := strings.Repeat("word ", 300_000)
	payload, err := json.Marshal(map[string]string{"text": large})
	if err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	t.Note("payload_bytes", len(payload))
	began := time.Now()
	reply, err := p.RunJob(ctx, "text", "words", payload, client.Options{ID: "large-job"})
	if err != nil {
		return fmt.Errorf("the job: %w", err)
	}
	t.Note("job_ms", ms(time.Since(began)))
	t.Hold(string(reply.Body) == `{"word":300000}`, "the job's result is %.80s", reply.Body)
	body := rig.ChatBody(rig.ModelChat, "large-call "+large)
	a := w.Ask(ctx, call{ID: "large-call", Lane: llmq.LaneBG, Body: body})
	t.Hold(a.ok("large-call"), "the call got %d %.200s %v", a.Status, a.Body, a.Err)
	return nil
}

func s28(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, textQueue(5))
	if err != nil {
		return err
	}
	p, err := t.Sender(ctx, w)
	if err != nil {
		return err
	}
	ids := rig.Numbered("job", t.Size(100, 30))
	began := time.Now()
	for _, id := range ids {
		if _, err := p.SendJob(ctx, "text", "words", fmt.Appendf(nil, `{"text":%q}`, id), client.Options{ID: id}); err != nil {
			return fmt.Errorf("send %s: %w", id, err)
		}
	}
	t.Note("sent_ms", ms(time.Since(began)))
	done, tries := 0, 0
	for _, id := range ids {
		c, err := p.Wait(ctx, tenant, id)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", id, err)
		}
		if c.State == llmq.StateDone && bytes.Equal(c.Reply.Body, fmt.Appendf(nil, `{%q:1}`, id)) {
			done++
		}
		tries += c.Attempts
	}
	t.Note("jobs", len(ids))
	t.Note("own_result", done)
	t.Note("runs", tries)
	t.Note("done_s", round(time.Since(began).Seconds()))
	t.Hold(done == len(ids), "%d of %d jobs have their own result", done, len(ids))
	t.Hold(tries == len(ids), "%d jobs ran %d times", len(ids), tries)
	_, err = p.RunJob(ctx, "text", "wrods", []byte(`{}`), client.Options{ID: "typo", Timeout: 32 * time.Second})
	t.Hold(llmq.AsError(err) != nil && llmq.AsError(err).Code == llmq.CodeUnknownJob, "a name that nobody has got %v, want unknown_job", err)
	w.deadLetters = 1 // that of the name
	return nil
}
