package client

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// runUnclaimed runs a request without the state store, which was given up (FEATURES C9, D11): one that was not sent, whose caller
// waits, and whose id nobody can know who could send it again. Nobody counts the calls at its target meanwhile: a program keeps to
// its own part of what bounds them, a door to what no cap bounds. A request that is not run fails with why.
func (c *Client) runUnclaimed(ctx context.Context, r llmq.Request, m llmq.Model, why error) (llmq.Result, error) {
	if !r.OneOff || ctx.Err() != nil || !c.mayRun(ctx, r) {
		return llmq.Result{}, why
	}
	if !c.cfg.CancelWithContext { // a lost connection does not cancel; the deadline ends it
		ctx = context.WithoutCancel(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var admit engine.Admit
	switch {
	case c.callers != nil:
		admit = c.callers.admit(stop)
	case c.chance(m):
		select {
		case c.alone <- struct{}{}:
			defer func() { <-c.alone }()
		default:
			return llmq.Result{}, why
		}
		admit = unbounded
	default:
		return llmq.Result{}, why
	}
	run, err := c.Direct()
	if err != nil {
		return llmq.Result{}, err
	}
	res, ran := run.RunUnclaimed(ctx, r, admit)
	if !ran {
		return llmq.Result{}, why
	}
	c.Metrics.Count(telemetry.DirectCalls, telemetry.Labels{Model: m.Alias, Cause: "store"}, 1)
	return res, nil
}

// chance is a door's, where so many may run a call each that only some do: so many as fit the limit that was last heard of.
func (c *Client) chance(m llmq.Model) bool {
	if c.cfg.Callers == 0 {
		return false
	}
	t, found := first(m)
	if !found {
		return false
	}
	limit := float64(cmp.Or(t.Limits.Initial, capacity.DefaultLaw().Initial))
	if learned, heard := c.limits.learned(t); heard {
		limit = learned.Slots.Limit
	}
	return rand.Float64() < limit/float64(c.cfg.Callers) //nolint:gosec // shares a limit; nothing is secret
}

// unbounded is a door's Admit.
func unbounded(a capacity.Ask) (end func(capacity.Outcome), may bool) {
	return func(capacity.Outcome) {}, uncounted(a.Target)
}

// uncounted reports whether a target may be called while nobody counts: nothing but what was learned bounds it.
func uncounted(t llmq.Target) bool {
	return t.MaxConcurrency == 0 && t.Shared.MaxConcurrency == 0 && t.Limits.Lanes[llmq.LaneRT] == 0 && t.Limits.Rates.RPM == 0 && t.Limits.Rates.TPM == 0 &&
		t.Shared.Rates.RPM == 0 && t.Shared.Rates.TPM == 0
}

// limitEvery is how old what is known of a limit may become while the store can be asked.
const limitEvery = time.Minute

// limits keeps what was last heard of targets' limits. It is safe for concurrent use.
type limits struct {
	gate *capacity.Gate // nil: they are as configured
	of   func(llmq.Target) bool

	mu    sync.Mutex                  // guards all below
	asked map[string]time.Time        // by model, on the wall clock: the process may have been frozen
	heard map[string]capacity.Learned // by target
}

func first(m llmq.Model) (llmq.Target, bool) {
	for _, t := range m.Targets {
		if uncounted(t) {
			return t, true
		}
	}
	return llmq.Target{}, false
}

// add asks for the limits of a model's targets as part of a batch, now and then. The answer is to be asked for once the batch has run.
func (l *limits) add(b *luascript.Batch, m llmq.Model) func() {
	if l.gate == nil || !l.due(m.Alias) {
		return func() {}
	}
	peeked := map[string]luascript.Pending[capacity.State]{}
	for _, t := range m.Targets {
		if l.of(t) {
			peeked[t.String()] = l.gate.Peek(b, t)
		}
	}
	return func() {
		for name, peek := range peeked {
			st, err := peek()
			if err != nil || st.Learned.Slots.Limit <= 0 {
				continue
			}
			l.mu.Lock()
			l.heard[name], l.asked[m.Alias] = st.Learned, time.Now().Round(0)
			l.mu.Unlock()
		}
	}
}

func (l *limits) due(alias string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Round(0).Sub(l.asked[alias]) > limitEvery
}

// learned is what was last heard of a target.
func (l *limits) learned(t llmq.Target) (capacity.Learned, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	learned, heard := l.heard[t.String()]
	return learned, heard
}
