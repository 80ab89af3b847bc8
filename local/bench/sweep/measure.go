package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
	now    int // in flight
	peak   int
}

func (s *sleeper) Call(ctx context.Context, _ provider.Request) (*provider.Response, error) {
	began := time.Now()
	s.mu.Lock()
	s.now++
	s.peak = max(s.peak, s.now)
	s.mu.Unlock()
	defer func() {
		took := time.Since(began)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queued, s.served, s.calls, s.now = s.queued+began.Sub(s.began), s.served+took, s.calls+1, s.now-1
	}()
	timer := time.NewTimer(service)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
	c, err := core.Start(ctx, core.Options{Own: s, Models: models, NoQueue: true})
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

// one offers all tasks at once, of which the worker takes up as many at a time as the limit has slots.
func one(ctx context.Context, c *core.Core, s *sleeper, limit, round int) (sample, error) {
	model := alias(limit)
	waiting := make(chan queue.Message, tasks)
	for _, id := range rig.Numbered(fmt.Sprintf("task-%d-%d", limit, round), tasks) {
		m, err := c.Message(model, llmq.LaneRT, id)
		if err != nil {
			return sample{}, err
		}
		waiting <- m
	}
	close(waiting)
	s.mu.Lock()
	s.began, s.queued, s.served, s.calls, s.peak = time.Now(), 0, 0, 0, 0
	s.mu.Unlock()
	var takers errgroup.Group
	for range limit {
		takers.Go(func() error {
			for m := range waiting {
				if out := c.Worker.Handle(ctx, []queue.Message{m})[0]; out.Action != worker.Ack {
					return fmt.Errorf("a task was handed back: %s", out.Reason)
				}
			}
			return nil
		})
	}
	if err := takers.Wait(); err != nil {
		return sample{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != tasks || s.peak > limit {
		return sample{}, fmt.Errorf("%d tasks were run as %d calls, %d at once", tasks, s.calls, s.peak)
	}
	return sample{queued: s.queued / tasks, service: s.served / tasks}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
