package rig_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// A storm is a rig with so many calls on its queues that only a cap keeps them from the
// provider, and so many worker processes that they could break it. It is watched all the while.
type storm struct {
	*rig.Rig
	*rig.Watch
	logs *tally
}

const (
	stormWorkers = 10 // invocations at once: as many processes, since a process runs one batch at a time
	stormBatch   = 4  // messages of a batch: four times as many calls want a slot as there are workers
	leastAlive   = 8  // worker processes that a storm must have
	stormTakes   = 100 * time.Millisecond
	slotLease    = 60 * time.Second
	messageLease = 55 * time.Second
)

// newStorm starts a rig with caps for bulk: enough workers for them, all slots open to
// that lane. It needs a real Valkey, as the deployed one is.
func newStorm(t *testing.T, change func(*config.Config)) *storm {
	t.Helper()
	if _, err := exec.LookPath("valkey-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs valkey-server: %v", err)
		}
		t.Skipf("needs valkey-server: %v", err)
	}
	s := &storm{logs: &tally{seen: map[string]int{}}}
	starting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	s.Rig, err = rig.Start(starting, rig.Options{
		Functions: functions, Output: s.logs, Engine: valkey.Real,
		Change: func(c *config.Config) {
			for lane, l := range c.Lanes {
				l.MaxConcurrency, l.BatchSize = stormWorkers, stormBatch
				c.Lanes[lane] = l
			}
			c.Limiter.BackgroundShare = config.Share{Of: 1, Given: true}
			change(c)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Watch = rig.NewWatch(s.Rig)
	t.Cleanup(func() {
		if err := s.Watch.Close(); err != nil {
			t.Error(err)
		}
		if err := stop(s.Rig); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what the functions said: %s", s.logs)
		}
	})
	if err := s.Fake.SetLatency(server.Latency{Mean: stormTakes}); err != nil {
		t.Fatal(err)
	}
	return s
}

// capped gives the chat model's target a cap.
func capped(n int) func(*config.Config) {
	return func(c *config.Config) { c.Models[0].Targets[0].MaxConcurrency = n }
}

// send puts n calls on a lane's queue, ids first-0, first-1 ....
func (s *storm) send(t *testing.T, model string, lane llmq.Lane, first string, n int) {
	t.Helper()
	if err := s.Send(within(t, time.Minute), model, lane, 10*time.Minute, rig.Numbered(first, n)); err != nil {
		t.Fatal(err)
	}
}

// metas reads the meta of every stored result, by request. None may be an error.
func (s *storm) metas(t *testing.T, ids []string) map[string]llmq.Meta {
	t.Helper()
	results, err := s.Results(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]llmq.Meta{}
	for id, r := range results {
		if r.Code != "" {
			t.Errorf("%s ended with %s", id, r.Code)
		}
		out[id] = r.Meta
	}
	return out
}

// until polls a condition.
func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := rig.Poll(ctx, what, ok); err != nil {
		t.Fatal(err)
	}
}

// depth counts what is on the queues of all models and lanes, received or not, and on the
// dead-letter queues.
func (s *storm) depth(t *testing.T) (waiting, dead int) {
	t.Helper()
	waiting, dead, err := s.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return waiting, dead
}

// drained waits until every message has been deleted, and the provider answers nobody.
func (s *storm) drained(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := s.AwaitDrained(ctx); err != nil {
		t.Fatal(err)
	}
	s.Look(ctx)
}
