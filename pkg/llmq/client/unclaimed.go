package client

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// runUnclaimed runs a request without the state store, which was given up (FEATURES D11): one that was not sent, whose caller
// waits, and whose id nobody can know who could send it again. Nobody counts the calls at its target meanwhile. So the
// target must have no cap that is a promise, this process runs one such call at a time, and so many of all processes do as fit the
// limit that was last heard of. A request that is not run fails with why.
func (c *Client) runUnclaimed(ctx context.Context, r llmq.Request, m llmq.Model, why error) (llmq.Result, error) {
	if !r.OneOff || c.cfg.Callers == 0 || ctx.Err() != nil || !c.mayRun(ctx, r) {
		return llmq.Result{}, why
	}
	select {
	case c.alone <- struct{}{}:
		defer func() { <-c.alone }()
	default:
		return llmq.Result{}, why
	}
	if rand.Float64() >= c.limits.of(m)/float64(c.cfg.Callers) { //nolint:gosec // shares a limit; nothing is secret
		return llmq.Result{}, why
	}
	run, err := c.Direct()
	if err != nil {
		return llmq.Result{}, err
	}
	if !c.cfg.CancelWithContext { // a lost connection does not cancel; the deadline ends it
		ctx = context.WithoutCancel(ctx)
	}
	res, ran := run.RunUnclaimed(ctx, r, uncounted)
	if !ran {
		return llmq.Result{}, why
	}
	c.Metrics.Count(telemetry.DirectCalls, telemetry.Labels{Model: m.Alias, Cause: "store"}, 1)
	return res, nil
}

// uncounted reports whether a target may be called while nobody counts: nothing but what was learned bounds it.
func uncounted(t llmq.Target) bool {
	return t.MaxConcurrency == 0 && t.Shared.MaxConcurrency == 0 && t.Limits.Lanes[llmq.LaneRT] == 0 && t.Limits.Rates.RPM == 0 && t.Limits.Rates.TPM == 0 &&
		t.Shared.Rates.RPM == 0 && t.Shared.Rates.TPM == 0
}

// limitEvery is how old what is known of a limit may become while the store can be asked.
const limitEvery = time.Minute

// limits keeps what was last heard of the limits of targets that may be called uncounted, of each model's first. It is safe for concurrent use.
type limits struct {
	gate *capacity.Gate // nil: they are as configured

	mu    sync.Mutex // guards heard
	heard map[string]limit
}

type limit struct {
	slots float64
	at    time.Time // on the wall clock: the process may have been frozen
}

func first(m llmq.Model) (llmq.Target, bool) {
	for _, t := range m.Targets {
		if uncounted(t) {
			return t, true
		}
	}
	return llmq.Target{}, false
}

// add asks for a model's limit as part of a batch, now and then. The answer is to be asked for once the batch has run.
func (l *limits) add(b *luascript.Batch, m llmq.Model) func() {
	t, found := first(m)
	if l.gate == nil || !found || !l.due(m.Alias) {
		return func() {}
	}
	peeked := l.gate.Peek(b, t)
	return func() {
		if st, err := peeked(); err == nil && st.Learned.Slots.Limit > 0 {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.heard[m.Alias] = limit{st.Learned.Slots.Limit, time.Now().Round(0)}
		}
	}
}

func (l *limits) due(alias string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Round(0).Sub(l.heard[alias].at) > limitEvery
}

// of is a model's last known limit; 0 where no target of it may be called.
func (l *limits) of(m llmq.Model) float64 {
	t, found := first(m)
	if !found {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.heard[m.Alias].slots, float64(cmp.Or(t.Limits.Initial, capacity.DefaultLaw().Initial)))
}
