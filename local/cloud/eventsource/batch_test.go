package eventsource

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// The limit holds for the event, so what JSON adds to a body counts: 1 MiB of quotes is 2 MiB.
func TestBatch_StaysUnderSixMegabytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body string
		want []int
	}{{"x", []int{5, 5}}, {`"`, []int{2, 2, 2, 2, 2}}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			var sizes []int
			b.invoke = func(_ context.Context, _ string, event []byte) (lambda.Result, error) {
				if len(event) > maxEventBytes {
					t.Errorf("event of %d bytes", len(event))
				}
				sizes = append(sizes, records(event))
				return lambda.Result{}, nil
			}
			messages := many("m", 10)
			for i := range messages {
				messages[i].Body = aws.String(strings.Repeat(tt.body, 1<<20))
			}
			_, stop := b.start(t)
			b.arrive <- messages
			synctest.Wait()
			stop()
			if diff := cmp.Diff(tt.want, sizes); diff != "" {
				t.Error(diff)
			}
			if got := len(b.handles()); got != 10 {
				t.Errorf("%d deleted", got)
			}
		})
	}
}

// What did not fit leads the next batch, which is filled as any other.
func TestBatch_WhatDidNotFitLeadsTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.mapping.BatchSize, b.mapping.Window, b.mapping.MaximumConcurrency, b.tuning.Pollers = 20, 10*time.Second, 2, 1
		var long atomic.Int64
		b.queue.receive = func(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			if in.WaitTimeSeconds == 20 && long.Add(1) > 1 { // the second worker; only the first shall get anything
				sleep(ctx, 20*time.Second)
				return &sqs.ReceiveMessageOutput{}, ctx.Err()
			}
			return b.receive(ctx, in)
		}
		var batches [][]string
		b.invoke = func(_ context.Context, _ string, event []byte) (lambda.Result, error) {
			batches = append(batches, idsOf(event))
			return lambda.Result{}, nil
		}
		large := many("l", 7)
		for i := range large {
			large[i].Body = aws.String(strings.Repeat("x", 1<<20))
		}
		_, stop := b.start(t)
		b.arrive <- large
		time.Sleep(5 * time.Second)
		b.arrive <- texts("s0", "s1")
		time.Sleep(time.Minute)
		stop()
		want := [][]string{{"l0", "l1", "l2", "l3", "l4"}, {"l5", "l6", "s0", "s1"}}
		if diff := cmp.Diff(want, batches); diff != "" {
			t.Error(diff)
		}
	})
}

func idsOf(event []byte) []string {
	var ids []string
	for _, part := range strings.Split(string(event), `"messageId":"`)[1:] {
		id, _, _ := strings.Cut(part, `"`)
		ids = append(ids, id)
	}
	return ids
}

// A batch over 10 is made of several receives of a real queue.
func TestBatch_IsFilledFromSeveralReceives(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", func(o *Options) { o.Tuning.Pollers = 1 }, func(t *testing.T, w *world) {
		w.send(numbered(130)...)
		w.add(func(m *Mapping) { m.BatchSize, m.Window, m.MaximumConcurrency = 60, 5*time.Second, 2 })
		time.Sleep(time.Minute)
		var sizes []int
		for _, c := range w.invocations() {
			sizes = append(sizes, len(c.ids))
		}
		slices.Sort(sizes)
		total := 0
		for _, n := range sizes {
			total += n
		}
		// Two workers gather at once, so the rest may be in one batch or in two.
		if total != 130 || len(sizes) > 4 || sizes[len(sizes)-1] != 60 {
			t.Errorf("batches of %v", sizes)
		}
	})
}

// A window as long as AWS lets it be.
func TestBatch_WindowOfFiveMinutes(t *testing.T) {
	t.Parallel()
	inWorld(t, "900", func(o *Options) { o.Tuning.Pollers = 1 }, func(t *testing.T, w *world) {
		w.add(func(m *Mapping) { m.BatchSize, m.Window, m.MaximumConcurrency = 100, maxWindow, 2 })
		for range 4 {
			w.send("x")
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Minute)
		total := 0
		for _, c := range w.invocations() {
			if c.at < maxWindow {
				t.Errorf("%v delivered after %v", c.ids, c.at)
			}
			total += len(c.ids)
		}
		if total != 4 {
			t.Errorf("%d delivered", total)
		}
	})
}

// Without a window a batch is what one receive gave, however small.
func TestBatch_NoWindowDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.tuning.Pollers = 1
		b.mapping.MaximumConcurrency = 2
		var sizes []int
		b.invoke = func(_ context.Context, _ string, event []byte) (lambda.Result, error) {
			sizes = append(sizes, records(event))
			return lambda.Result{}, nil
		}
		for _, m := range [][]types.Message{texts("a"), texts("b", "c"), many("d", 10)} {
			b.arrive <- m
		}
		_, stop := b.start(t)
		time.Sleep(time.Second)
		stop()
		slices.Sort(sizes)
		if diff := cmp.Diff([]int{1, 2, 10}, sizes); diff != "" {
			t.Error(diff)
		}
	})
}
