package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// run has the engine run a message beside its neighbours or, once it has killed a worker, by itself.
// One that ends without an attempt has its end stored.
func (w *Worker) run(ctx, waiting context.Context, log *slog.Logger, m *delivery, r llmq.Request, ends *llmq.Error, limit time.Time) engine.Verdict {
	joining, cancel := context.WithTimeout(waiting, patience)
	defer cancel()
	me, in := w.runs.join(joining)
	switch {
	case in:
	case w.drain.hasBegun():
		return engine.Verdict{Action: engine.Release, Reason: draining}
	default:
		return engine.Verdict{Action: engine.Release, After: patience, Reason: notAlone}
	}
	defer me.leave()
	return w.Engine.Run(ctx, engine.Call{
		Request: r, QueuedAt: m.SentAt, Limit: limit, Refused: ends, Stop: waiting.Done(),
		Alone: func(ctx context.Context, deaths int) bool {
			ctx, cancel := either(ctx, waiting)
			defer cancel()
			return me.secede(ctx, deaths)
		},
		Bury: func(ctx context.Context, l engine.Letter) error {
			return w.deadLetter(ctx, log, m.Message, r.Tenant, l)
		},
	})
}

// notAlone is the reason of a release of a message that did not get to run by itself, the engine's, or beside none that must.
const notAlone = "must_run_alone"

// patience is how long a message waits here while another runs by itself. That one may take as long as its provider does, and
// other processes are free.
const patience = 5 * time.Second

// company is who runs in a process at once: messages side by side, or one that killed a worker before, by itself. Whoever may
// kill waits for all that can't, so that no message dies of its neighbour twice (FEATURES B17). Only one such waits or
// runs here: a worker's death leaves a whole batch of them, most of them innocent, and other processes take the rest.
type company struct {
	mu       sync.Mutex // guards all below, and the members'
	together int        // messages that run side by side
	alone    bool       // one runs by itself
	waiting  []*member  // in the order in which they came
}

// member is a message's part in it.
type member struct {
	*company
	deaths int           // of its workers; 0 runs beside others
	in     chan struct{} // closed once it may run
	runs   bool
}

// join waits until nobody is by himself. It reports false where ctx ended first. Whoever has joined must leave.
func (c *company) join(ctx context.Context) (*member, bool) {
	m := &member{company: c}
	return m, m.wait(ctx, 0)
}

// secede waits until nobody else runs, and keeps everybody out until m leaves. It reports false where another does so
// already or ctx ended first; then m runs no more.
func (m *member) secede(ctx context.Context, deaths int) bool {
	m.leave()
	return m.wait(ctx, max(1, deaths))
}

func (m *member) wait(ctx context.Context, deaths int) bool {
	m.mu.Lock()
	if deaths > 0 && m.hasLoner() {
		m.mu.Unlock()
		return false
	}
	m.deaths, m.in = deaths, make(chan struct{})
	in := m.in
	m.waiting = append(m.waiting, m)
	m.admit()
	m.mu.Unlock()
	select {
	case <-in:
		return true
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, w := range m.waiting {
		if w == m {
			m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
			return false
		}
	}
	return true // it was let in at the last moment
}

// hasLoner reports whether anybody is by himself or waits to be; the lock is held.
func (c *company) hasLoner() bool {
	return c.alone || slices.ContainsFunc(c.waiting, func(w *member) bool { return w.deaths > 0 })
}

// leave ends m's run. It is idempotent.
func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.runs:
		return
	case m.deaths > 0:
		m.alone = false
	default:
		m.together--
	}
	m.runs = false
	m.admit()
}

// admit lets in who may run; the lock is held.
func (c *company) admit() {
	for !c.alone && len(c.waiting) > 0 {
		first := max(0, slices.IndexFunc(c.waiting, func(w *member) bool { return w.deaths == 0 })) // who can't kill goes first
		m := c.waiting[first]
		if m.deaths > 0 && c.together > 0 {
			return
		}
		c.waiting = append(c.waiting[:first:first], c.waiting[first+1:]...)
		m.runs = true
		if m.deaths > 0 {
			c.alone = true
		} else {
			c.together++
		}
		close(m.in)
	}
}
