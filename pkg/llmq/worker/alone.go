package worker

import (
	"cmp"
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
		Request: r, MessageID: m.ID, QueuedAt: m.SentAt, Receives: m.ReceiveCount, Limit: limit, Refused: ends, Stop: waiting.Done(),
		Alone: func(ctx context.Context, deaths int) bool {
			ctx, cancel := either(ctx, waiting)
			defer cancel()
			ctx, cancel = context.WithTimeout(ctx, aloneWithin(m.ReceiveCount))
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

const (
	// patience is how long a message waits here while another runs by itself. That one may take as long as its provider does, and
	// other processes are free. Who waits for longer to be by itself lets in no newcomers any more.
	patience = 5 * time.Second
	// patienceAlone is how long one waits to be by itself on its first two receives, and lastPatience afterwards: SQS puts
	// a message behind its whole backlog that was received three times and comes back.
	patienceAlone = 10 * time.Second
	lastPatience  = 30 * time.Second
	freeReturns   = 2
)

func aloneWithin(receives int) time.Duration {
	if receives <= freeReturns {
		return patienceAlone
	}
	return lastPatience
}

// company is who runs in a process at once: messages side by side, or one that killed a worker before, by itself. Whoever may
// kill waits for all that can't, so that no message dies of its neighbour twice (FEATURES B17). A worker's death leaves a whole
// batch of such, most of them innocent: they run one after the other, those over which most workers died last.
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
	since  time.Time     // when it began to wait
	in     chan struct{} // closed once it may run
	runs   bool
}

// join waits until nobody is by himself. It reports false where ctx ended first. Whoever has joined must leave.
func (c *company) join(ctx context.Context) (*member, bool) {
	m := &member{company: c}
	return m, m.wait(ctx, 0)
}

// secede waits until nobody else runs, and keeps everybody out until m leaves. It reports false where ctx ended first; then
// m runs no more.
func (m *member) secede(ctx context.Context, deaths int) bool {
	m.leave()
	return m.wait(ctx, max(1, deaths))
}

func (m *member) wait(ctx context.Context, deaths int) bool {
	m.mu.Lock()
	m.deaths, m.since, m.in = deaths, time.Now(), make(chan struct{})
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
	i := slices.Index(m.waiting, m)
	if i < 0 {
		return true // it was let in at the last moment
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.admit() // it may have kept others out
	return false
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
		m := slices.MinFunc(c.waiting, before)
		if m.deaths > 0 && c.together > 0 {
			return
		}
		i := slices.Index(c.waiting, m)
		c.waiting = slices.Delete(c.waiting, i, i+1)
		m.runs = true
		if m.deaths > 0 {
			c.alone = true
		} else {
			c.together++
		}
		close(m.in)
	}
}

// before compares two that wait: who can't kill goes first, then whoever may have killed least; but newcomers don't keep
// one waiting for ever.
func before(a, b *member) int {
	turn := func(m *member) int {
		if m.deaths > 0 && time.Since(m.since) >= patience {
			return -1
		}
		return min(m.deaths, 1)
	}
	return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.deaths, b.deaths))
}
