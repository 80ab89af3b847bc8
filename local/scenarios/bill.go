package main

import (
	"context"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// What AWS would bill.
func bills() []scenario {
	return []scenario{{
		ID: "S33", Quiet: true, Run: s33,
		What: "100 bg calls of a Go program at once are sent and acknowledged in batches, 100 rt calls over HTTPS one by one; an idle queue costs at most five long polls of 20 s at once",
	}}
}

func s33(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 20*time.Millisecond, nil)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	const n = 100
	before := w.billed()
	bg := rig.Numbered("bg", n)
	var callers sync.WaitGroup
	failed := make([]error, n)
	for i, id := range bg {
		callers.Go(func() { _, failed[i] = program.Do(ctx, request(id, llmq.LaneBG, time.Minute)) })
	}
	callers.Wait()
	for i, err := range failed {
		t.Hold(err == nil, "%s: %v", bg[i], err)
	}
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	after := w.billed()
	sends := after["SendMessage"] - before["SendMessage"] + after["SendMessageBatch"] - before["SendMessageBatch"]
	deletes := after["DeleteMessage"] - before["DeleteMessage"] + after["DeleteMessageBatch"] - before["DeleteMessageBatch"]
	t.Note("bg_sends", sends)
	t.Note("bg_deletes", deletes)
	t.Hold(sends <= n/4 && deletes <= n/2, "%d bg calls took %d requests to send and %d to delete", n, sends, deletes)

	before = w.billed()
	live := rig.Numbered("rt", n)
	for _, id := range live {
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
		t.Hold(a.ok(id), "%s got %d %s %v", id, a.Status, a.Code, a.Err)
	}
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	after = w.billed()
	t.noteRequests("rt", perCall(after, before, n))
	t.Hold(after["SendMessage"]-before["SendMessage"] == n, "%d rt calls were sent by %d requests", n, after["SendMessage"]-before["SendMessage"])

	const idle = 20 * time.Second
	before = w.billed()
	if err := t.Pause(ctx, idle); err != nil {
		return err
	}
	polls := w.billed()["ReceiveMessage"] - before["ReceiveMessage"]
	queues := len(w.Config.QueueNames())
	t.Note("idle_receives_per_queue_and_minute", round(float64(polls)/float64(queues)*float64(time.Minute/idle)))
	t.Hold(polls <= int64(queues)*10, "%d idle queues were polled %d times in %s; five long polls of 20 s at once are at most ten", queues, polls, idle)
	all := append(bg, live...)
	a, err := t.Account(ctx, w, all)
	t.onceEach(a, all)
	return err
}
