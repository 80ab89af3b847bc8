package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// What AWS would bill for calls of 10 s, counted (FEATURES F6).
func costs() []scenario {
	return []scenario{{
		ID: "cost", Run: cost,
		What: "an idle minute, then calls of 10 s, 60 (full: 300) each way, three a second: by callers that wait at the door; by callers that submit and ask once later; by the same, " +
			"with four workers at most; by a Go program, 30 at once. Every operation that AWS bills is counted, and what a month without a call and a million calls cost stays within bounds",
	}}
}

const (
	// callsASecond and callTime make 30 calls run at once.
	callsASecond = 3
	callTime     = 10 * time.Second
	// afterStart is when the idle minute begins, so that every event source's polls of 20 s end in it three times.
	afterStart = 10 * time.Second
	idleMinute = time.Minute
)

// prodLike are prod's sizes, but for bulk, whose few workers make batches.
func prodLike(c *config.Config) {
	const workers, fewWorkers, slots, batch = 30, 4, 40, 10
	c.Models[0].Targets[0].MaxConcurrency, c.Models[0].Targets[0].Limits.Initial = slots, slots
	wholeShare(c)
	for _, l := range llmq.Lanes() {
		lane(c, l, workers, batch)
	}
	lane(c, llmq.LaneBulk, fewWorkers, batch)
}

// bound is what a million calls may cost at most, and what each may take.
type bound struct {
	usd, apiRequests, sqsRequests, doorSeconds, workerSeconds, s3Writes float64
}

func cost(ctx context.Context, t *trial) error {
	prices, err := awscost.Load()
	if err != nil {
		return err
	}
	w, err := t.unwatched(ctx, callTime, prodLike) // a watch would ask the state store all the while
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	if err := t.idleMonth(ctx, w, prices); err != nil {
		return err
	}
	if err := t.warmUp(ctx, w); err != nil {
		return err
	}
	n := t.Size(300, 60)
	for _, way := range []struct {
		name string
		way
		most bound
	}{
		{"waiting", w.waits(), bound{usd: 85, apiRequests: 1, sqsRequests: 6, doorSeconds: 13, workerSeconds: 12}},
		{"submitted", w.submits(llmq.LaneBG), bound{usd: 52, apiRequests: 2, sqsRequests: 6, doorSeconds: 1, workerSeconds: 12, s3Writes: 1}},
		{"batched", w.submits(llmq.LaneBulk), bound{usd: 35, apiRequests: 2, sqsRequests: 6, doorSeconds: 1, workerSeconds: 6, s3Writes: 1}},
		{"program", fromProgram(program), bound{usd: 20, apiRequests: 0, sqsRequests: 2, doorSeconds: 0, workerSeconds: 4}},
	} {
		c, err := t.counted(ctx, w, rig.Numbered(way.name, n), way.way)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		t.noteBill(way.name, prices, c)
		s, usd := c.Shape(), awscost.Total(prices.Million(c))
		t.Hold(c.Calls == float64(n), "%s: %g calls were counted, of %d", way.name, c.Calls, n)
		t.Hold(s.APIRequests <= way.most.apiRequests, "%s: %g API requests a call, want at most %g", way.name, s.APIRequests, way.most.apiRequests)
		t.Hold(s.SQSRequests <= way.most.sqsRequests, "%s: %g SQS requests a call, want at most %g", way.name, s.SQSRequests, way.most.sqsRequests)
		t.Hold(s.DoorSeconds <= way.most.doorSeconds, "%s: %g s of doors a call, want at most %g", way.name, s.DoorSeconds, way.most.doorSeconds)
		t.Hold(s.WorkerSeconds <= way.most.workerSeconds, "%s: %g s of workers a call, want at most %g", way.name, s.WorkerSeconds, way.most.workerSeconds)
		t.Hold(s.Offloaded <= way.most.s3Writes, "%s: %g writes to S3 a call, want at most %g", way.name, s.Offloaded, way.most.s3Writes)
		t.Hold(usd <= way.most.usd, "%s: $%.2f a million, want at most $%.2f", way.name, usd, way.most.usd)
	}
	t.watch(w) //nolint:contextcheck // it watches until Close
	return nil
}

// warmUp makes as many doors and workers be there as are busy at once: on a machine of two processors each start takes its time from
// all others, and cold ones would be what is measured. What comes of its calls is nobody's.
func (t *trial) warmUp(ctx context.Context, w *world) error {
	const calls, step, latency = 40, 5, 5 * time.Second
	if err := w.slow(latency, t.Seed); err != nil {
		return err
	}
	var callers sync.WaitGroup
	for some := range slices.Chunk(rig.Numbered("warm", calls), step) {
		for _, id := range some {
			callers.Go(func() { w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT}) })
		}
		if err := t.Pause(ctx, latency/(calls/step+1)); err != nil {
			return err
		}
	}
	callers.Wait()
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	return w.slow(callTime, t.Seed)
}

// idleMonth counts a minute in which nobody calls.
func (t *trial) idleMonth(ctx context.Context, w *world, prices awscost.Prices) error {
	if err := t.Pause(ctx, afterStart); err != nil {
		return err
	}
	before, err := w.Tally(ctx)
	if err != nil {
		return err
	}
	if err := t.Pause(ctx, idleMinute); err != nil {
		return err
	}
	after, err := w.Tally(ctx)
	if err != nil {
		return err
	}
	c, standing := after.Since(before), awscost.Of(w.Config)
	items := prices.Month(standing, c)
	t.noteItems("idle_month", items, 1)
	queues := float64(standing.Queues)
	t.Note("idle_polls_a_queue_and_minute", round(c.EmptyReceives/queues))
	const mostPolls = 16 // five at once, three times a minute each, and one that fell on the edge
	t.Hold(c.EmptyReceives > 0 && c.EmptyReceives <= queues*mostPolls, "%g receives without a message of %g queues in a minute, want at most %d each", c.EmptyReceives, queues, mostPolls)
	t.Hold(c.Calls == 0 && c.APIRequests == 0, "%g calls and %g API requests in a minute without any", c.Calls, c.APIRequests)
	const most = 25.0
	t.Hold(awscost.Total(items) <= most, "a month without a call costs $%.2f, want at most $%.2f", awscost.Total(items), most)
	return nil
}

// way is how calls come: so many together, three a second on the average. later, if it is there, is done for each once all have
// ended.
type way struct {
	together     int
	begin, later func(ctx context.Context, id string) error
}

// counted makes the calls, and tells what AWS would bill for them.
func (t *trial) counted(ctx context.Context, w *world, ids []string, by way) (awscost.Counts, error) {
	before, err := w.Tally(ctx)
	if err != nil {
		return awscost.Counts{}, err
	}
	seen := len(w.Fake.Calls())
	var wrong mistakes
	var callers sync.WaitGroup
	for some := range slices.Chunk(ids, by.together) {
		for _, id := range some {
			callers.Go(func() { wrong.add(by.begin(ctx, id)) })
		}
		if err := t.Pause(ctx, time.Duration(len(some))*time.Second/callsASecond); err != nil {
			return awscost.Counts{}, err
		}
	}
	callers.Wait()
	if err := errors.Join(append(wrong.first(3), w.AwaitDrained(ctx))...); err != nil {
		return awscost.Counts{}, err
	}
	if by.later != nil {
		for _, id := range ids {
			if err := by.later(ctx, id); err != nil {
				return awscost.Counts{}, err
			}
		}
	}
	after, err := w.Tally(ctx)
	if err != nil {
		return awscost.Counts{}, err
	}
	c := after.Since(before)
	for _, call := range w.Fake.Calls()[seen:] {
		c.CallSeconds += call.Duration.Seconds()
	}
	return c, nil
}

// waits are rt callers over HTTPS: each is held by a door until its reply is there.
func (w *world) waits() way {
	return way{together: 1, begin: func(ctx context.Context, id string) error {
		if a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneRT}); !a.ok(id) {
			return fmt.Errorf("%s: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
		}
		return nil
	}}
}

// submits are callers that get 202, and ask for the result once it is there.
func (w *world) submits(l llmq.Lane) way {
	const path = "/llmq/v1/calls"
	return way{
		together: 1,
		begin: func(ctx context.Context, id string) error {
			body, _ := json.Marshal(map[string]any{"id": id, "op": llmq.OpChat, "lane": l, "model": rig.ModelChat, "body": json.RawMessage(rig.ChatBody(rig.ModelChat, id))}) // texts can't fail
			if a := w.Ask(ctx, call{ID: id, Path: path, Body: body}); a.Err != nil || a.Status != http.StatusAccepted {
				return fmt.Errorf("submit %s: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
			}
			return nil
		},
		later: func(ctx context.Context, id string) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+path+"/"+id+"/result", nil)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+w.Key)
			resp, err := w.door.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close() // it was read to its end
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), id) {
				return fmt.Errorf("result of %s: %d %.200s: %w", id, resp.StatusCode, text, errors.Join(err, errNotAnswered))
			}
			return nil
		},
	}
}

// fromProgram are bg calls of a Go program, which sends those together that come together.
func fromProgram(program *client.Client) way {
	return way{together: 30, begin: func(ctx context.Context, id string) error {
		_, err := program.Do(ctx, request(id, llmq.LaneBG, 2*time.Minute))
		return err
	}}
}

// noteBill notes what a million such calls cost, item by item, and what changes would do.
func (t *trial) noteBill(who string, prices awscost.Prices, c awscost.Counts) {
	const million = 1e6
	t.noteItems(who+"_million", prices.Million(c), million)
	s := c.Shape()
	t.Note(who+"_call_s", round(s.CallSeconds))
	t.Note(who+"_door_s_a_call", round(s.DoorSeconds))
	t.Note(who+"_worker_s_a_call", round(s.WorkerSeconds))
	t.Note(who+"_calls_a_batch", round(s.Batch))
	t.Note(who+"_calls_at_once_in_a_worker", round(s.AtOnce))
	for _, l := range prices.Levers(c) {
		t.Note(who+"_million_usd_if_"+snake(l.Name), round(l.USD))
	}
}

// noteItems notes dollars, and what there is of each item for each of n.
func (t *trial) noteItems(who string, items []awscost.Item, n float64) {
	t.Note(who+"_usd", round(awscost.Total(items)))
	for _, i := range items {
		t.Note(who+"_"+snake(i.Name+" "+i.Unit), fmt.Sprintf("%s: $%.2f", awscost.Amount(i.Count/n), i.USD))
	}
}

// snake is a text as a figure's name.
func snake(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "_")
}
