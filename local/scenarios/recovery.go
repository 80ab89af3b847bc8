package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Single faults, and how soon all is well again.
func recoveries() []scenario {
	return []scenario{
		{ID: "S20", What: "SQS down, by no answer and then by refusals, three rt calls at once and two after them: the first are served in under 6 s, the later ones at direct speed", Run: s20, Quiet: true},
		{
			ID: "S21", Run: s21,
			What: "Valkey cut off from a Go program alone, ten of whose calls were sent and two of these are cancelled meanwhile: each of the others waits, runs once at a worker and is answered when Valkey is back, the cancelled ones " +
				"are stopped then; ten new rt calls run in the program once the failover's 10 s are over, and new bg calls wait",
		},
		{ID: "S37", What: "a worker killed by -9 in mid-call, one slot only: message and slot are back and its caller is answered 65 s after at most, and the slot serves the next; one stored outcome", Run: s37},
		{ID: "S50", What: "40 calls of a Go program with Valkey refused for 10 s among them: 40 ok; then 40 with Valkey emptied among them: 40 ok, those that run twice are counted", Run: s50},
	}
}

func s20(ctx context.Context, t *trial) error {
	var slowest time.Duration
	for _, down := range []struct {
		name string
		kind sqs.Kind
	}{{"unanswered", sqs.Hang}, {"refused", sqs.Refuse}} {
		w, err := t.Start(ctx, 200*time.Millisecond, nil)
		if err != nil {
			return err
		}
		if err := w.warm(ctx); err != nil {
			return err
		}
		ids := rig.Numbered(down.name, 5)
		answers := make([]answer, len(ids))
		repair := w.SQS.Inject(sqs.Fault{Kind: down.kind})
		const together = 3 // sends without an answer move the model
		var callers sync.WaitGroup
		for i, id := range ids[:together] {
			callers.Go(func() { answers[i] = w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT}) })
		}
		callers.Wait()
		for i, id := range ids[together:] {
			answers[together+i] = w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT})
		}
		repair()
		var first time.Duration
		for i, a := range answers {
			t.Hold(a.ok(ids[i]) && a.Header.Get("X-LLMQ-Direct") == "true", "%s got %d %s after %.1f s, direct %q %v", ids[i], a.Status, a.Code, a.Took.Seconds(), a.Header.Get("X-LLMQ-Direct"), a.Err)
			if i < together {
				first = max(first, a.Took)
			} else {
				slowest = max(slowest, a.Took)
			}
		}
		t.Note("first_"+down.name+"_s", round(first.Seconds()))
		t.Hold(first < 6*time.Second, "%s: the first calls took %.1f s, want under 6", down.name, first.Seconds())
		a, err := t.Account(ctx, w, ids)
		if err != nil {
			return err
		}
		t.onceEach(a, ids)
	}
	t.Note("slowest_of_the_later_ms", ms(slowest))
	t.Hold(slowest < time.Second, "a later call took %s, want direct speed", slowest)
	return nil
}

func s37(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, func(c *config.Config) {
		capped(1)(c)
		wholeShare(c)
		c.Timing.RTCapacityWait = 90 * time.Second
	})
	if err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		return err
	}
	ended := make(chan answer, 1)
	go func() { ended <- w.Ask(ctx, call{ID: "survive", Lane: llmq.LaneRT, Within: 3 * time.Minute}) }()
	if err := w.Fake.AwaitInFlight(ctx, "", 1); err != nil {
		return err
	}
	killed := time.Now()
	if err := w.Lambda.Kill(cloud.FunctionWorker(llmq.LaneRT), string(lambda.StateBusy)); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	a := <-ended
	took := time.Since(killed)
	t.Hold(a.ok("survive"), "the caller got %d %.200s %v", a.Status, a.Body, a.Err)
	t.Note("answered_after_the_kill_s", round(took.Seconds()))
	t.Hold(took < slotLease+5*time.Second, "answered %.1f s after the kill; the message's lease is 55 s, the slot's 60 s", took.Seconds())
	next := w.Ask(ctx, call{ID: "next", Lane: llmq.LaneRT})
	t.Hold(next.ok("next"), "the next call got %d %.200s %v", next.Status, next.Body, next.Err)
	_, err = t.Account(ctx, w, []string{"survive", "next"})
	return err
}

func s50(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 300*time.Millisecond, nil)
	if err != nil {
		return err
	}
	if err := w.warm(ctx); err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	blip, wipe := rig.Numbered("blip", 40), rig.Numbered("wipe", 40)
	ok, failure, err := spread(ctx, program, blip, func() error {
		return valkeyBlipped().run(ctx, t, w, 10*time.Second)
	})
	if err != nil {
		return err
	}
	t.Note("blip_ok", ok)
	t.Hold(ok == len(blip), "%d of %d calls were answered over a blip of 10 s; %v", ok, len(blip), failure)
	ok, failure, err = spread(ctx, program, wipe, func() error { return w.wipe(ctx) })
	if err != nil {
		return err
	}
	t.Note("wipe_ok", ok)
	t.Hold(ok == len(wipe), "%d of %d calls were answered over a wipe; %v", ok, len(wipe), failure)
	_, err = t.Account(ctx, w, append(blip, wipe...))
	return err
}

// spread makes calls in all lanes, twenty a second, does something once half of them are made, and counts those that are answered.
// failure is why one of the others was not.
func spread(ctx context.Context, program *client.Client, ids []string, midway func() error) (ok int, failure, err error) {
	errs := make([]error, len(ids))
	done := make(chan error, 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var callers sync.WaitGroup
	for i, id := range ids {
		if i == len(ids)/2 {
			go func() { done <- midway() }()
		}
		callers.Go(func() {
			began := time.Now()
			if _, err := program.Do(ctx, request(id, llmq.Lanes()[i%3], 2*time.Minute)); err != nil {
				errs[i] = fmt.Errorf("%s after %.1f s: %w", id, time.Since(began).Seconds(), err)
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	callers.Wait()
	for _, err := range errs {
		if err == nil {
			ok++
		} else if failure == nil {
			failure = err
		}
	}
	return ok, failure, <-done
}
