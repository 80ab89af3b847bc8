package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// What the door says of when a queued call starts, and whom it refuses for it.
func forecasts() []scenario {
	return []scenario{{
		ID: "forecast", Run: forecast, Quiet: true,
		What: "500 bg calls (short: 200) at the door and a quarter more in a hurry, faster than the 20 a second that run, with a snapshot every 2 s: 9 of 10 start within a factor of two of X-LLMQ-Eta, " +
			"1 s left out of account; the others have 2 s only, and none is refused that would have started in time; rt never is; who comes back after Retry-After is taken",
	}}
}

const (
	forecastCap   = 10
	forecastCall  = 500 * time.Millisecond
	forecastEvery = 2 * time.Second // a snapshot, in place of a minute
	hurried       = 2 * time.Second // what a call has that may be refused
	roundingOff   = 1.0             // seconds: the header has whole ones, and a worker's first poll takes some
)

func forecast(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, forecastCall, func(c *config.Config) {
		capped(forecastCap)(c)
		wholeShare(c)
		c.Governor.Enabled = true // else workers hold many calls that wait, and take those that come later before them
		c.Door.Wait = time.Second // callers of so long a queue are told 504, and the call goes on
	})
	if err != nil {
		return err
	}
	governing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.govern(governing) }()
	err = t.foretold(ctx, w)
	stop()
	return errors.Join(err, <-ended)
}

// govern invokes the governor until ctx ends.
func (w *world) govern(ctx context.Context) error {
	event := []byte(`{"version":"0","id":"1","detail-type":"Scheduled Event","source":"aws.scheduler","detail":"{}"}`)
	tick := time.NewTicker(forecastEvery)
	defer tick.Stop()
	for {
		res, err := w.Lambda.Invoke(ctx, cloud.FunctionGovernor, event, lambda.InvokeOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || res.FunctionError != "" {
			return fmt.Errorf("governor: %w %s", err, res.Payload)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *trial) foretold(ctx context.Context, w *world) error {
	const side = 40                      // callers at once
	ask := func(calls []call) []answer { // as many a second as side, for each waits one
		answers := make([]answer, len(calls))
		next := make(chan int)
		var callers sync.WaitGroup
		for range side {
			callers.Go(func() {
				for i := range next {
					answers[i] = w.Ask(ctx, calls[i])
				}
			})
		}
		tick := time.NewTicker(time.Second / side)
		defer tick.Stop()
		for i := range calls {
			<-tick.C
			next <- i
		}
		close(next)
		callers.Wait()
		return answers
	}
	// A rate is learned from calls that have ended; and the doors start.
	var learn []call
	for _, id := range rig.Numbered("learn", 2*side) {
		learn = append(learn, call{ID: id, Lane: llmq.LaneBG, Within: deadline})
	}
	ask(learn)
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	if err := t.Pause(ctx, 2*forecastEvery); err != nil {
		return err
	}

	ids := rig.Numbered("queued", t.Size(625, 250))
	calls := make([]call, len(ids))
	for i, id := range ids {
		calls[i] = call{ID: id, Lane: llmq.LaneBG, Within: deadline}
		switch {
		case i%50 == 49:
			calls[i].Lane, calls[i].Within = llmq.LaneRT, hurried
		case i%5 == 4:
			calls[i].Within = hurried
		}
	}
	answers := ask(calls)

	// Whoever is refused comes back when it was told to.
	for i := len(ids) - 1; i >= 0; i-- {
		if a := answers[i]; a.Code == llmq.CodeNoCapacity {
			secs, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if err != nil {
				return fmt.Errorf("Retry-After of %s: %w", ids[i], err)
			}
			if err := t.Pause(ctx, time.Until(a.Began.Add(time.Duration(secs)*time.Second))); err != nil {
				return err
			}
			if err := rig.Poll(ctx, "who was refused to be taken", func() bool {
				return w.Ask(ctx, call{ID: ids[i], Lane: llmq.LaneBG, Within: hurried}).Code != llmq.CodeNoCapacity
			}); err != nil {
				return err
			}
			took := time.Since(a.Began)
			t.Note("retry_after_s", secs)
			t.Note("taken_after_s", round(took.Seconds()))
			// Its answer took up to a second; the forecast is one, and others came meanwhile.
			t.Hold(took.Seconds() <= float64(secs)+3, "who was told to come back after %d s was taken after %s", secs, took)
			break
		}
	}
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	w.Look(ctx)
	return t.judgeForecasts(w, ids, answers)
}

// judgeForecasts holds what was told against what came.
func (t *trial) judgeForecasts(w *world, ids []string, answers []answer) error {
	var told, near, refused, wrongly, longest int
	started := func(i int) (time.Duration, bool) {
		d, err := w.startOf(ids[i], answers[i].Began)
		return d, err == nil
	}
	for i, a := range answers {
		if a.Err != nil {
			return fmt.Errorf("%s: %w", ids[i], a.Err)
		}
		if a.Code == llmq.CodeNoCapacity {
			refused++
			t.Hold(i%50 != 49, "%s is rt and was refused", ids[i])
			// It would have started about when the call did that was sent after it.
			for j := i + 1; j < len(ids); j++ {
				if start, ok := started(j); ok && answers[j].Code != llmq.CodeNoCapacity && j%5 != 4 {
					if start < hurried {
						wrongly++
					}
					break
				}
			}
			continue
		}
		start, ran := started(i)
		eta, err := strconv.Atoi(a.Header.Get("X-LLMQ-Eta"))
		if err != nil || i%5 == 4 { // those in a hurry may end before they start, and rt goes before the rest
			t.Hold(err == nil, "%s was answered %d with the X-LLMQ-Eta %q", ids[i], a.Status, a.Header.Get("X-LLMQ-Eta"))
			continue
		}
		if !ran {
			t.Hold(false, "%s never started", ids[i])
			continue
		}
		told, longest = told+1, max(longest, eta)
		if s := start.Seconds(); s <= 2*float64(eta)+roundingOff && float64(eta) <= 2*s+roundingOff {
			near++
		}
	}
	t.Note("queued_calls", told)
	t.Note("within_a_factor_of_two", near)
	t.Note("longest_eta_s", longest)
	t.Note("refused", refused)
	t.Note("refused_wrongly", wrongly)
	t.Hold(near >= int(math.Ceil(0.9*float64(told))), "%d of %d forecasts are within a factor of two, want 90 %%", near, told)
	t.Hold(wrongly == 0, "%d calls were refused that would have started in time", wrongly)
	t.Hold(refused > 0, "no call was refused, so nothing was tried")
	t.Hold(longest >= 4, "the longest forecast was %d s: hardly anything queued", longest)
	return nil
}
