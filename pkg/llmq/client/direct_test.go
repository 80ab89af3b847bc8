package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

// call makes the rig a provider that the client's own engine calls.
func (r *rig) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	r.provided.Add(1)
	if r.provide != nil {
		return r.provide(ctx, req)
	}
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"for":"here"}`)}, nil
}

// engine makes what runs calls here.
func (r *rig) engine(store *results.Store) func() (client.Runner, error) {
	stops := claims.NewStops(r.valkey, r.space)
	r.t.Cleanup(func() {
		if err := stops.Close(); err != nil {
			r.t.Errorf("close stops: %v", err)
		}
	})
	return func() (client.Runner, error) {
		r.engines.Add(1)
		if r.engineErr != nil {
			return nil, r.engineErr
		}
		return engine.New(engine.Config{Worker: "door", AttemptTimeout: time.Minute, RTCapacityWait: 30 * time.Second, Retry: retry.Default()}, engine.Deps{
			Valkey: r.valkey, Catalogue: catalogue(), Claims: r.claims, Stops: stops, Capacity: capacity.New(r.space), Results: store,
			Providers: map[string]provider.Provider{"p": r}, Log: r.logger,
		})
	}
}

// directly runs a test of a client that runs calls here when they can't be queued.
func directly(t *testing.T, serve func(llmq.Request) *llmq.Result, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		r := newRigWith(t, luatest.Pipe(t, m), directConfig(), serve)
		r.mini = m
		r.preset()
		test(t, r)
		r.working.Wait()
	})
}

// preset opens the capacity of a new store.
func (r *rig) preset() {
	r.t.Helper()
	var b luascript.Batch
	preset := capacity.New(r.space).Preset(&b)
	if err := b.Run(r.t.Context(), r.valkey); err != nil {
		r.t.Fatalf("preset: %v", err)
	}
	if _, err := preset(); err != nil {
		r.t.Fatalf("preset: %v", err)
	}
}

func directConfig() client.Config {
	return client.Config{
		Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000,
		SilentSends: 3, DirectFor: 300 * time.Second, SendTimeout: 5 * time.Second, StoreWait: 2 * time.Second, Callers: 1,
	}
}

// numbered is a request of its own.
func numbered(n int) llmq.Request {
	r := request()
	r.ID = fmt.Sprintf("call-%d", n)
	return r
}

func refused() error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached").Because(queue.ErrRefused)
}

// hangs makes sends hang until they are given up after 5 s, as package sqs does.
func (r *rig) hangs() { r.sendTakes, r.sendBound = time.Hour, 5*time.Second }

// served makes a call that must be served here.
func (r *rig) served(req llmq.Request, within time.Duration) {
	r.t.Helper()
	began := time.Now()
	reply, err := r.Do(r.t.Context(), req)
	if err != nil || string(reply.Body) != `{"for":"here"}` || !reply.Meta.Direct {
		r.t.Fatalf("do = %+v, %v; want a reply from here", reply, err)
	}
	if took := time.Since(began); took > within {
		r.t.Errorf("served after %v, want within %v", took, within)
	}
}

// D10: a send that gets no answer is given up, and its call is served here at once. The third within a minute moves the
// model: its calls don't try the queue any more, for 300 s, in every process.
func TestDo_SilentQueueIsDoneWithout(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.hangs()
		for i := range 3 {
			r.served(numbered(i), 6*time.Second)
		}
		for i := range 5 {
			r.served(numbered(10+i), 0)
		}
		other := request()
		other.ID, other.Model.Alias = "other", "large"
		r.served(other, 6*time.Second) // its own queue has not been tried
		r.want(0, 0)
		time.Sleep(290 * time.Second)
		r.served(numbered(20), 0)
		time.Sleep(10 * time.Second)
		r.sendTakes = 0
		r.wantReply(numbered(21)) // queued again
		if said := r.log.String(); strings.Count(said, "model_direct") != 1 || strings.Count(said, "model_queued") != 1 {
			t.Errorf("said %s", said)
		}
		var out bytes.Buffer
		if err := r.metrics.FlushEMF(&out, "n"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"llmq_direct_total":9`, `"llmq_sqs_errors_total":3`, `"llmq_queue_direct":0`} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("metrics lack %s: %s", want, out.String())
			}
		}
	})
}

// D10: a queue that refuses is down at once.
func TestDo_RefusedSendMovesTheModel(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.sendErr = refused()
		r.served(numbered(0), 0)
		r.sendErr = errors.New("would be sent, and fail the call")
		r.served(numbered(1), 0)
		r.want(0, 0)
	})
}

// D10: two in a minute are no outage, and neither are any number of which others were answered meanwhile.
func TestDo_FewSilentSendsMoveNothing(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		for i := range 6 {
			r.hangs()
			r.served(numbered(i), 6*time.Second)
			r.sendTakes = 0
			r.wantReply(numbered(100 + i))
			time.Sleep(31 * time.Second)
		}
		slow := numbered(200)
		for i := range 4 { // while one waits for its answer, another gets one
			r.hangs()
			slow.ID = fmt.Sprintf("slow-%d", i)
			var waits sync.WaitGroup
			waits.Go(func() { r.served(slow, 6*time.Second) })
			time.Sleep(time.Second)
			synctest.Wait()
			r.sendTakes = 0
			r.wantReply(numbered(300 + i))
			waits.Wait()
		}
		if said := r.log.String(); strings.Contains(said, "model_direct") {
			t.Errorf("said %s", said)
		}
	})
}

// D10: what is wrong with the message or with us is no outage.
func TestDo_FaultOfOursIsToldAndMovesNothing(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached").Because(errors.New("AccessDenied")),
		llmq.Errorf(llmq.CodeInternal, "the message holds a character that SQS refuses"),
	} {
		directly(t, nil, func(t *testing.T, r *rig) {
			r.sendErr = err
			if _, got := r.Do(t.Context(), request()); !errors.Is(got, llmq.AsError(err).Code) {
				t.Errorf("do: %v, want %v", got, err)
			}
			if r.provided.Load() != 0 || r.engines.Load() != 0 {
				t.Errorf("%d calls here by %d engines, want none", r.provided.Load(), r.engines.Load())
			}
		})
	}
}

// D10, DS44: a send that got no answer has arrived all the same. Whoever claims the call first runs it, and the other finds that.
func TestDo_AmbiguousSendRunsOnce(t *testing.T) {
	t.Parallel()
	t.Run("the worker is first", func(t *testing.T) {
		t.Parallel()
		directly(t, replies(20*time.Second), func(t *testing.T, r *rig) {
			r.hangs()
			r.arrives = true
			r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
				return nil, errors.New("must not be called")
			}
			// The worker has the claim by the time that the door has given up.
			req := request()
			r.working.Go(func() {
				time.Sleep(4 * time.Second)
				env := llmq.Envelope{ID: req.ID, Op: req.Op, Model: "m", Lane: req.Lane, Fallback: req.Fallback, Deadline: req.Deadline, Tenant: req.Tenant, Params: req.Body}
				body, err := env.Encode()
				if err != nil {
					t.Errorf("encode: %v", err)
				}
				r.work(body)
			})
			r.wantReply(req)
			r.working.Wait()
			if _, runs := r.counts(); runs != 1 || r.provided.Load() != 0 {
				t.Errorf("%d runs there and %d here, want one there", runs, r.provided.Load())
			}
		})
	})
	t.Run("the door is first", func(t *testing.T) {
		t.Parallel()
		directly(t, replies(0), func(t *testing.T, r *rig) {
			r.hangs()
			r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
				time.Sleep(3 * time.Second)
				return &provider.Response{Status: 200, Body: []byte(`{"for":"here"}`)}, nil
			}
			req := request()
			arrive := func() {
				env := llmq.Envelope{ID: req.ID, Op: req.Op, Model: "m", Lane: req.Lane, Fallback: req.Fallback, Deadline: req.Deadline, Tenant: req.Tenant, Params: req.Body}
				body, err := env.Encode()
				if err != nil {
					t.Errorf("encode: %v", err)
				}
				r.work(body)
			}
			r.working.Go(func() { time.Sleep(6 * time.Second); arrive() }) // while it runs here
			r.served(req, 9*time.Second)
			r.working.Wait()
			arrive() // and once it has ended
			if _, runs := r.counts(); runs != 0 || r.provided.Load() != 1 {
				t.Errorf("%d runs there and %d here, want one here", runs, r.provided.Load())
			}
		})
	})
}

// E12: what may not run here is told so, soon and with a time to come back at.
func TestDo_WhatMayNotRunHereIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lane  llmq.Lane
		waits time.Duration
	}{
		"bg": {llmq.LaneBG, time.Hour}, "bulk": {llmq.LaneBulk, time.Hour}, "a deadline beyond the wait": {llmq.LaneRT, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directly(t, nil, func(t *testing.T, r *rig) {
				r.sendErr = refused()
				r.served(request(), 0) // the model is moved
				req := numbered(1)
				req.Lane = tc.lane
				ctx, cancel := context.WithTimeout(t.Context(), tc.waits)
				defer cancel()
				if e := r.failure(ctx, req, llmq.CodeQueueUnavailable); e.RetryAfter <= 0 {
					t.Errorf("no Retry-After: %+v", e)
				}
				if r.provided.Load() != 1 {
					t.Error("it was run here")
				}
			})
		})
	}
}

// E12: what would have to wait here is queued with its claim given back, and waited for as ever.
func TestDo_DirectThatWouldWaitIsQueued(t *testing.T) {
	t.Parallel()
	directly(t, replies(2*time.Second), func(t *testing.T, r *rig) {
		r.sendErr = refused()
		r.served(request(), 0)
		r.sendErr = nil // the queue is back before the model is
		r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
			return nil, &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: 3500 * time.Millisecond}
		}
		reply, err := r.Do(t.Context(), numbered(1))
		if err != nil || reply.Meta.Worker != "w" || reply.Meta.Direct {
			t.Fatalf("do = %+v, %v; want a worker's reply", reply, err)
		}
		if d := r.sent[0].Delay; d < 3500*time.Millisecond || d%time.Second != 0 {
			t.Errorf("sent with a delay of %v, want the wait in whole seconds", d)
		}
	})
}

// E12: and where the queue is down, its caller is told when to come back.
func TestDo_DirectThatWouldWaitWithoutAQueueIsUnavailable(t *testing.T) {
	t.Parallel()
	directly(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = refused()
		hold := make(chan struct{})
		r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
			<-hold
			return &provider.Response{Status: 200, Body: []byte(`{"for":"here"}`)}, nil
		}
		var first sync.WaitGroup
		first.Go(func() { r.served(numbered(0), time.Minute) })
		synctest.Wait() // the only slot is taken
		e := r.failure(t.Context(), numbered(1), llmq.CodeQueueUnavailable)
		if e.RetryAfter < time.Second {
			t.Errorf("Retry-After %v", e.RetryAfter)
		}
		close(hold)
		first.Wait()
		time.Sleep(e.RetryAfter)
		r.served(numbered(1), 0) // the same call again
	})
}
