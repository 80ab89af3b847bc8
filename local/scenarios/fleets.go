package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func s49(ctx context.Context, t *trial) error {
	const most = 10
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) {
		capped(most)(c)
		wholeShare(c)
		lane(c, llmq.LaneBG, 8, 4)
	})
	if err != nil {
		return err
	}
	source, err := w.source(llmq.LaneBG)
	if err != nil {
		return err
	}
	few, many := 2, 8
	if _, err := w.Mappings.Update(ctx, source, eventsource.Change{MaximumConcurrency: &few}); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "the event source to follow", func() bool {
		i, err := w.Mappings.Get(source)
		return err == nil && i.State == eventsource.StateEnabled && i.Mapping.MaximumConcurrency == few
	}); err != nil {
		return err
	}
	if err := t.Pause(ctx, 2*time.Second); err != nil { // a poll that the change has just ended takes what it is given with it, for 330 s
		return err
	}
	ids := rig.Numbered("bg", t.Size(1000, 500))
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, ids); err != nil {
		return err
	}
	if err := rig.Poll(ctx, "a fifth of the calls", func() bool { return w.Fake.Stats().All.Good >= len(ids)/5 }); err != nil {
		return err
	}
	_, before := w.Processes()
	if _, err := w.Mappings.Update(ctx, source, eventsource.Change{MaximumConcurrency: &many}); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	_, after := w.Processes()
	t.Note("worker_processes_before", before)
	t.Note("worker_processes_after", after)
	t.Hold(before <= few && after > few, "%d workers ran before and %d after, want up to %d and more", before, after, few)
	t.peak("peak", w.Fake.Peak(""), most)
	return nil
}

var errNoSource = errors.New("no event source")

// source is the event source of the chat model's queue of a lane.
func (w *world) source(l llmq.Lane) (uuid string, err error) {
	suffix := ":" + string(w.Config.Queues.Names().Model(rig.ModelChat, l))
	for _, i := range w.Mappings.List(cloud.FunctionWorker(l), "") {
		if strings.HasSuffix(i.Mapping.QueueARN, suffix) {
			return i.UUID, nil
		}
	}
	return "", fmt.Errorf("%s: %w", suffix, errNoSource)
}

// lacking makes a worker whose configuration lacks the chat model, as one of an older version, and gives it messages of the
// model's queue of a lane, as the one that has it.
func (t *trial) lacking(ctx context.Context, w *world, l llmq.Lane) (source string, err error) {
	environ, err := t.environOf(w, func(c *config.Config) {
		c.Models = slices.DeleteFunc(c.Models, func(m config.Model) bool { return m.Alias == rig.ModelChat })
	})
	if err != nil {
		return "", err
	}
	source, err = w.source(l)
	if err != nil {
		return "", err
	}
	info, err := w.Mappings.Get(source)
	if err != nil {
		return "", err
	}
	of := w.Config.Lanes[l]
	old := lambda.FunctionConfig{
		Name: cloud.FunctionWorker(l) + "-old", Bootstrap: t.functions.Worker, Timeout: of.FunctionTimeout, MemoryMB: of.MemoryMB, Concurrency: of.MaxConcurrency,
		Env: append(environ, "AWS_ACCESS_KEY_ID="+cloud.FunctionWorker(l), "AWS_SECRET_ACCESS_KEY=local"),
	}
	if err := w.Lambda.Create(old); err != nil {
		return "", fmt.Errorf("the old worker: %w", err)
	}
	mapping := info.Mapping
	mapping.Function = old.Name
	added, err := w.Mappings.Add(ctx, mapping)
	if err != nil {
		return "", fmt.Errorf("the old worker's event source: %w", err)
	}
	return added.UUID, rig.Poll(ctx, "the old worker's event source", func() bool {
		i, err := w.Mappings.Get(added.UUID)
		return err == nil && i.State == eventsource.StateEnabled
	})
}

func s48(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 50*time.Millisecond, nil)
	if err != nil {
		return err
	}
	wrong, err := t.lacking(ctx, w, llmq.LaneRT)
	if err != nil {
		return err
	}
	right, err := w.source(llmq.LaneRT)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	ids := rig.Numbered("rt", t.Size(200, 60))
	failed := make([]error, len(ids))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var callers sync.WaitGroup
	began := time.Now()
	for i, id := range ids {
		<-tick.C
		callers.Go(func() { _, failed[i] = program.Do(ctx, request(id, llmq.LaneRT, 2*time.Minute)) })
	}
	callers.Wait()
	ok := 0
	for i, err := range failed {
		t.Hold(err == nil, "%s: %v", ids[i], err)
		if err == nil {
			ok++
		}
	}
	t.Note("ok", ok)
	t.Note("all_answered_s", round(time.Since(began).Seconds()))
	astray, home := w.Mappings.Source(wrong).Stats(), w.Mappings.Source(right).Stats()
	each := float64(astray.Polled) / float64(len(ids))
	most := max(astray.MostReceives, home.MostReceives) - 1
	t.Note("redeliveries_per_call", round(each))
	t.Note("most_redeliveries_of_a_call", most)
	t.Hold(astray.Polled > 0, "the worker without the model was given no message: nothing is shown")
	t.Hold(each <= 3, "%.1f redeliveries per call; one of two workers is the wrong one, so one is what chance gives", each)
	t.Hold(most <= 20, "a call was delivered %d times in a row to a worker without its model", most)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}
