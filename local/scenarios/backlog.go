package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// A backlog that stays in SQS, and what it costs; and rt beside it.
func backlogs() []scenario {
	return []scenario{
		{ID: "backlog", What: "2,000 bulk calls of a Go program at once (short: 500) under a cap of 10, provider 200 ms, with the governor: at most 1.2 receives per call, none dead, the longest wait at most " +
			"1.5 × queued ÷ rate, at most 0.5 SQS requests per call, all told", Run: func(ctx context.Context, t *trial) error { return backlog(ctx, t, true) }, Quiet: true},
		{ID: "backlog-bare", What: "the same without the governor: at most 3 receives per call", Run: func(ctx context.Context, t *trial) error { return backlog(ctx, t, false) }},
		{ID: "rt-start", What: "100 rt calls (short: 40) one after the other on an idle system, then as many among 600 running and queued bulk calls: 99 of 100 start within 50 ms of the idle system's own", Run: rtStart, Quiet: true},
	}
}

const (
	backlogCap  = 10
	backlogCall = 200 * time.Millisecond
)

func backlog(ctx context.Context, t *trial, governed bool) error {
	w, err := t.Start(ctx, backlogCall, func(c *config.Config) {
		capped(backlogCap)(c)
		wholeShare(c)
		c.Governor.Enabled = governed
	})
	if err != nil {
		return err
	}
	bulk := w.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBulk)
	source := w.Mappings.List(cloud.FunctionWorker(llmq.LaneBulk), "arn:aws:sqs:us-east-1:000000000000:"+string(bulk))
	if len(source) != 1 {
		return fmt.Errorf("%s has %d event sources", bulk, len(source))
	}
	if governed { // its schedule fires at the start, and a change takes a while
		if err := rig.Poll(ctx, "the governor to bound the bulk source", func() bool {
			m, err := w.Mappings.Get(source[0].UUID)
			return err == nil && m.Mapping.MaximumConcurrency == 2 && m.State == "Enabled"
		}); err != nil {
			return err
		}
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	ids := rig.Numbered("bulk", t.Size(2000, 500))
	billed, began := w.billed(), time.Now()
	sent, err := t.together(ctx, program, ids)
	if err != nil {
		return err
	}
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	requests := perCall(w.billed(), billed, len(ids))
	// What the source polls after the last deletion is nobody's; none of it is a message.
	stats := w.Mappings.Source(source[0].UUID).Stats()
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	rate := backlogCap / backlogCall.Seconds()
	var longest time.Duration
	seen := w.ByRequest()
	for i, id := range ids {
		if calls := seen[id]; len(calls) > 0 {
			longest = max(longest, calls[0].At.Sub(sent[i]))
		}
	}
	receives := float64(stats.Polled) / float64(len(ids))
	most, bound := 3.0, 1.5*float64(len(ids))/rate
	if governed {
		most = 1.2
	}
	t.Note("receives_per_call", round(receives))
	t.Note("done_s", round(took.Seconds()))
	t.Note("longest_wait_s", round(longest.Seconds()))
	t.Note("longest_wait_bound_s", round(bound))
	t.Note("invocations", stats.Invokes)
	t.peak("peak", w.Fake.Peak(""), backlogCap)
	t.noteRequests("go_client", requests)
	t.Hold(receives <= most, "%.2f receives per finished call, want at most %.1f", receives, most)
	t.Hold(longest.Seconds() <= bound, "the longest wait was %.1f s, want at most %.1f", longest.Seconds(), bound)
	t.Hold(requests.total <= 0.5, "%.2f SQS requests per bulk call, want at most 0.5", requests.total)
	return t.atTheDoor(ctx, w)
}

// together makes all calls at once, and tells when each was sent.
func (t *trial) together(ctx context.Context, program *client.Client, ids []string) ([]time.Time, error) {
	sent, errs := make([]time.Time, len(ids)), make([]error, len(ids))
	var callers sync.WaitGroup
	for i, id := range ids {
		callers.Go(func() {
			sent[i] = time.Now()
			if _, err := program.Do(ctx, request(id, llmq.LaneBulk, deadline)); err != nil {
				errs[i] = fmt.Errorf("%s: %w", id, err)
			}
		})
	}
	callers.Wait()
	failed := 0
	var first error
	for _, err := range errs {
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	t.Note("callers_answered", len(ids)-failed)
	t.Hold(failed == 0, "%d callers got an error, the first %v", failed, first)
	return sent, ctx.Err()
}

// atTheDoor notes what a bulk call costs that comes over HTTPS, where each is sent by itself.
func (t *trial) atTheDoor(ctx context.Context, w *world) error {
	const side = 20 // callers at once
	ids := rig.Numbered("door", t.Size(200, 100))
	before := w.billed()
	next := make(chan string)
	errs := make([]error, side)
	var callers sync.WaitGroup
	for i := range side {
		callers.Go(func() {
			for id := range next {
				if a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneBulk}); !a.ok(id) {
					errs[i] = fmt.Errorf("%s at the door: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
				}
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	callers.Wait()
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	t.noteRequests("door", perCall(w.billed(), before, len(ids)))
	return errors.Join(errs...)
}

// requests are SQS requests per call, as AWS bills them.
type requests struct {
	total float64
	each  []figure
}

// billed are the SQS requests so far, by operation, but for those by which scenarios look at queues.
func (w *world) billed() map[string]int64 {
	b := w.SQS.Stats().Billed
	delete(b, "GetQueueAttributes")
	return b
}

func perCall(after, before map[string]int64, n int) requests {
	var r requests
	for _, op := range []string{"SendMessage", "SendMessageBatch", "ReceiveMessage", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "DeleteMessage", "DeleteMessageBatch"} {
		if d := after[op] - before[op]; d > 0 {
			r.each = append(r.each, figure{op, round(float64(d) / float64(n))})
		}
	}
	var all int64
	for op, count := range after {
		all += count - before[op]
	}
	r.total = float64(all) / float64(n)
	return r
}

// noteRequests notes requests per call, in all and by operation.
func (t *trial) noteRequests(who string, r requests) {
	t.Note("sqs_requests_per_call_"+who+"_total", round(r.total))
	for _, f := range r.each {
		t.Note("sqs_requests_per_call_"+who+"_"+f.Name, f.Value)
	}
}

func rtStart(ctx context.Context, t *trial) error {
	const queued = 600
	w, err := t.Start(ctx, 200*time.Millisecond, func(c *config.Config) { lane(c, llmq.LaneBulk, 10, 10) })
	if err != nil {
		return err
	}
	n := t.Size(100, 40)
	if err := w.warm(ctx); err != nil {
		return err
	}
	idle, err := w.starts(ctx, rig.Numbered("idle", n))
	if err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	type load struct {
		ids []string
		err error
	}
	loaded, full := make(chan load, 1), make(chan struct{})
	go func() {
		ids, err := w.keepQueued(loading, queued, full)
		loaded <- load{ids, err}
	}()
	select {
	case <-full:
	case l := <-loaded:
		stop()
		return l.err
	}
	if err := rig.Poll(ctx, "bulk calls to run", func() bool { return w.Fake.InFlight("") >= 16 }); err != nil {
		stop()
		return errors.Join(err, (<-loaded).err)
	}
	rts := rig.Numbered("rt", n)
	busy, err := w.starts(ctx, rts)
	stop()
	l := <-loaded
	if err := errors.Join(err, l.err); err != nil {
		return err
	}
	a, err := t.Account(ctx, w, append(l.ids, rts...))
	if err != nil {
		return err
	}
	t.onceEach(a, append(l.ids, rts...))
	for _, p := range []int{50, 95, 99} {
		i, b := rank(idle, p), rank(busy, p)
		t.Note(fmt.Sprintf("idle_start_p%d_ms", p), ms(i))
		t.Note(fmt.Sprintf("loaded_start_p%d_ms", p), ms(b))
		t.Note(fmt.Sprintf("difference_p%d_ms", p), ms(b-i))
	}
	near := 0
	for _, s := range busy {
		if s <= rank(idle, 50)+50*time.Millisecond {
			near++
		}
	}
	t.Note("started_within_50_ms_of_idle_p50", near)
	t.Hold(rank(busy, 99)-rank(idle, 99) <= 50*time.Millisecond, "rt starts %s later at p99 than on an idle system, want at most 50 ms", rank(busy, 99)-rank(idle, 99))
	return nil
}

// warm makes a door and an rt worker be there.
func (w *world) warm(ctx context.Context) error {
	for _, id := range rig.Numbered("warm", 3) {
		if a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT}); !a.ok(id) {
			return fmt.Errorf("%s: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
		}
	}
	return nil
}

// starts makes rt calls one after the other and tells after what time each reached the provider.
func (w *world) starts(ctx context.Context, ids []string) ([]time.Duration, error) {
	sent := make([]time.Time, len(ids))
	for i, id := range ids {
		a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
		if !a.ok(id) {
			return nil, fmt.Errorf("%s: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
		}
		sent[i] = a.Began
	}
	w.Look(ctx)
	starts := make([]time.Duration, len(ids))
	for i, id := range ids {
		var err error
		if starts[i], err = w.startOf(id, sent[i]); err != nil {
			return nil, err
		}
	}
	return starts, nil
}

// keepQueued keeps n bulk calls running and queued until ctx ends, and tells which it sent. full is closed once they are there.
func (w *world) keepQueued(ctx context.Context, n int, full chan<- struct{}) (ids []string, err error) {
	bulk := w.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBulk)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for round := 0; ; round++ {
		d, err := w.QueueDepth(ctx, bulk)
		if ctx.Err() != nil {
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
		more := rig.Numbered(fmt.Sprintf("load-%d", round), max(0, n-d.Visible-d.InFlight-d.Delayed))
		// What is begun is sent, so that every id is known.
		if err := w.Send(context.WithoutCancel(ctx), rig.ModelChat, llmq.LaneBulk, deadline, more); err != nil {
			return ids, err
		}
		if ids = append(ids, more...); round == 0 {
			close(full)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ids, nil
		}
	}
}
