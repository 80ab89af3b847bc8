package core

import (
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is measured is what is promised: the worker answers every call that was sent once, and what it has acknowledged can be deleted.
func TestCore_WorksAQueueOff(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Options{Own: instant{}, Models: []config.Model{Model(queued, 5)}})
	if errors.Is(err, valkey.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skipf("needs valkey-server: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Send(t.Context(), queued, llmq.LaneRT, rig.Numbered("call", 12)); err != nil {
		t.Fatal(err)
	}
	for done := 0; done < 12; {
		messages, err := c.Receive(t.Context(), queued, llmq.LaneRT)
		if err != nil || len(messages) == 0 {
			t.Fatalf("%d messages, %v", len(messages), err)
		}
		for _, out := range c.Worker.Handle(t.Context(), messages) {
			if out.Action != worker.Ack {
				t.Errorf("outcome = %+v", out)
			}
		}
		if err := c.Delete(t.Context(), queued, llmq.LaneRT, messages); err != nil {
			t.Fatal(err)
		}
		done += len(messages)
	}
	if n, err := c.Store.Keys(t.Context(), "llmq:bench:res:*").Result(); err != nil || len(n) != 12 {
		t.Errorf("%d results of 12 are stored, %v", len(n), err)
	}
}
