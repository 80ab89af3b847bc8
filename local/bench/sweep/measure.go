package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/bench/core"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

const (
	tasks   = 128
	service = 20 * time.Millisecond
)

// sleeper is a provider that takes [service] for every call, however many there are, and notes when each was at it.
type sleeper struct {
	mu     sync.Mutex // guards what follows
	began  time.Time
	queued time.Duration // of all since began
	served time.Duration
	calls  int
}

func (s *sleeper) Call(ctx context.Context, _ provider.Request) (*provider.Response, error) {
	began := time.Now()
	timer := time.NewTimer(service)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued, s.served, s.calls = s.queued+began.Sub(s.began), s.served+took, s.calls+1
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"choices":[]}`)}, nil
}

// sample is the means of one run.
type sample struct{ queued, service time.Duration }

// measure runs every limit once a round, in turns.
func measure(ctx context.Context, limits []int, rounds int, say func(format string, args ...any)) (_ map[int][]sample, err error) {
	var models []config.Model
	for _, limit := range limits {
		models = append(models, core.Model(alias(limit), limit))
	}
	s := &sleeper{}
	c, err := core.Start(ctx, core.Options{Own: s, Models: models})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	all := map[int][]sample{}
	for round := range rounds + 1 {
		for _, limit := range limits {
			got, err := one(ctx, c, s, limit, round)
			if err != nil {
				return nil, fmt.Errorf("limit %d: %w", limit, err)
			}
			if round == 0 {
				continue // scripts are loaded and connections made then
			}
			all[limit] = append(all[limit], got)
			say("round %d of %d, limit %d: queued %.1f ms, service %.1f ms", round, rounds, limit, ms(got.queued), ms(got.service))
		}
	}
	return all, nil
}

func alias(limit int) string { return "limit-" + strconv.Itoa(limit) }

// one offers all tasks to the worker at once.
func one(ctx context.Context, c *core.Core, s *sleeper, limit, round int) (sample, error) {
	model := alias(limit)
	if err := c.Send(ctx, model, llmq.LaneRT, rig.Numbered(fmt.Sprintf("task-%d-%d", limit, round), tasks)); err != nil {
		return sample{}, err
	}
	var messages []queue.Message
	for len(messages) < tasks {
		some, err := c.Receive(ctx, model, llmq.LaneRT)
		if err != nil {
			return sample{}, err
		}
		messages = append(messages, some...)
	}
	s.mu.Lock()
	s.began, s.queued, s.served, s.calls = time.Now(), 0, 0, 0
	s.mu.Unlock()
	for _, out := range c.Worker.Handle(ctx, messages) {
		if out.Action != worker.Ack {
			return sample{}, fmt.Errorf("a task was handed back: %s", out.Reason)
		}
	}
	if err := c.Delete(ctx, model, llmq.LaneRT, messages); err != nil {
		return sample{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != tasks {
		return sample{}, fmt.Errorf("%d tasks were run as %d calls", tasks, s.calls)
	}
	return sample{queued: s.queued / tasks, service: s.served / tasks}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
