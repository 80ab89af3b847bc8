package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
)

// routed are rules that send live calls of m one way, but for a part of the sessions.
func routed(way routing.Way, queued float64) routing.Rules {
	return routing.Rules{Models: map[string]routing.Rule{"m": {Way: way, QueuePercent: queued}}}
}

// occupy holds the only slot of m and returns what gives it back.
func (r *rig) occupy() func() {
	r.t.Helper()
	gate := capacity.New(r.space)
	model := catalogue().Models()[0]
	a := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Admission] {
		return gate.Admit(b, capacity.Ask{Target: model.Targets[0], Lane: llmq.LaneRT, CallID: "other"})
	})
	if !a.Granted {
		r.t.Fatal("no slot to occupy")
	}
	return func() {
		batch(r, func(b *luascript.Batch) luascript.Pending[capacity.Settled] { return gate.Abandon(b, a.Slot.Ask()) })
	}
}

// E4: a live call goes as its model's rule says. What can't be run here at once is queued, and so is all that must be.
func TestDo_GoesAsItsRuleSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rules routing.Rules
		full  bool
		alias string
		lane  llmq.Lane
		waits time.Duration // the caller; 0: to the end
		here  bool
	}{
		"queue":                            {rules: routed(routing.Queue, 0)},
		"no rule":                          {rules: routed(routing.Auto, 0), alias: "large"},
		"auto with a slot free":            {rules: routed(routing.Auto, 0), here: true},
		"auto without":                     {rules: routed(routing.Auto, 0), full: true},
		"auto, but all queue":              {rules: routed(routing.Auto, 100)},
		"auto on bg":                       {rules: routed(routing.Auto, 0), lane: llmq.LaneBG},
		"auto for one who may leave early": {rules: routed(routing.Auto, 0), waits: time.Minute},
		"direct with a slot free":          {rules: routed(routing.Direct, 0), here: true},
		"direct without":                   {rules: routed(routing.Direct, 0), full: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directly(t, replies(0), func(t *testing.T, r *rig) {
				r.routing = tc.rules
				if tc.full {
					defer r.occupy()()
				}
				req, ctx := request(), t.Context()
				if tc.alias != "" {
					req.Model.Alias = tc.alias
				}
				if tc.lane != "" {
					req.Lane = tc.lane
				}
				if tc.waits > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.waits)
					defer cancel()
				}
				reply, err := r.Do(ctx, req)
				if err != nil || reply.Meta.Direct != tc.here {
					t.Fatalf("do = %+v, %v; want it run here: %t", reply, err, tc.here)
				}
				if tc.here {
					r.want(0, 0)
				} else {
					r.want(1, 1)
				}
			})
		})
	}
}

// E4: a canary is of sessions: each goes the same way every time, and both ways are gone.
func TestDo_ASessionKeepsItsWay(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.routing = routed(routing.Auto, 30)
		const sessions = 40
		here := 0
		for s := range sessions {
			ways := map[bool]bool{}
			for call := range 3 {
				req := request()
				req.ID, req.Session = fmt.Sprintf("call-%d-%d", s, call), fmt.Sprintf("session-%d", s)
				reply, err := r.Do(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				ways[reply.Meta.Direct] = true
			}
			if len(ways) != 1 {
				t.Errorf("calls of session %d go both ways", s)
			}
			if ways[true] {
				here++
			}
		}
		if here < sessions/2 || here > sessions*9/10 {
			t.Errorf("%d of %d sessions are run here, want about 70 %%", here, sessions)
		}
	})
}

// E4: with the kill switch on nothing is queued. What may run here does, while there is a slot; all else is told when to come
// back, at once, and its id is as good as new.
func TestDo_KillSwitch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		full   bool
		lane   llmq.Lane
		stream bool
		here   bool
	}{
		"rt":                {here: true},
		"rt without a slot": {full: true},
		"bg":                {lane: llmq.LaneBG},
		"bulk":              {lane: llmq.LaneBulk},
		"a stream":          {stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directly(t, replies(0), func(t *testing.T, r *rig) {
				r.routing = routing.Rules{Killed: true}
				req := request()
				req.Model.Alias = "large" // it has all lanes
				if tc.full {
					req.Model.Alias = "m"
					defer r.occupy()()
				}
				if tc.lane != "" {
					req.Lane = tc.lane
				}
				began := time.Now()
				var err error
				if tc.stream {
					req.Body, req.Stream = streamed().Body, true
					_, err = r.Stream(t.Context(), req)
				} else {
					_, err = r.Do(t.Context(), req)
				}
				if time.Since(began) != 0 {
					t.Errorf("took %v", time.Since(began))
				}
				r.want(0, 0)
				if tc.here {
					if err != nil || r.provided.Load() != 1 {
						t.Errorf("%d calls here, %v", r.provided.Load(), err)
					}
					return
				}
				e, ok := errors.AsType[*llmq.Error](err)
				if !ok || e.Code != llmq.CodeQueueUnavailable || e.RetryAfter < time.Second || r.provided.Load() != 0 {
					t.Fatalf("%v, want queue_unavailable with a time to come back at", err)
				}
				if tc.stream {
					return
				}
				r.routing.Killed = false
				time.Sleep(e.RetryAfter)
				r.wantReply(req)
				r.want(1, 1)
			})
		})
	}
}

// E4: the kill switch holds for what was run here and would have to wait for its next try: it is not queued.
func TestDo_KilledCallThatFailsHereIsNotQueued(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.routing = routing.Rules{Killed: true}
		r.provide = func(context.Context, provider.Request) (*provider.Response, error) {
			return nil, &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: 3500 * time.Millisecond}
		}
		if e := r.failure(t.Context(), request(), llmq.CodeQueueUnavailable); e.RetryAfter < 3500*time.Millisecond {
			t.Errorf("told to come back in %v", e.RetryAfter)
		}
		r.want(0, 0)
	})
}

// E4: a process that can't make what runs calls queues them, but not against the kill switch.
func TestDo_RoutedWithoutAnEngineIsQueued(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.routing = routed(routing.Direct, 0)
		r.engineErr = errors.New("no secret")
		r.wantReply(request())
		r.want(1, 1)
		r.routing = routing.Rules{Killed: true}
		if _, err := r.Do(t.Context(), numbered(1)); err == nil {
			t.Error("served")
		}
		r.want(1, 1)
	})
}
