package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

const (
	// silentWithin is the time in which sends without an answer are counted.
	silentWithin = 60 * time.Second
	// leastSilence is how long a send must have waited for its answer to count: a caller with little time left
	// tells nothing of the queue.
	leastSilence = time.Second
	// tellWithin bounds what the state store is told of an outage of the queue.
	tellWithin = time.Second
	// overslept is how much later than its bound a send may end. One that ends later tells of this process, which did not run: its
	// answer may lie here, unread.
	overslept = time.Second
	// probeEvery is how often a queue that takes nothing is tried by a call that can't do without it: longer than a send is waited for,
	// so that there is one at a time. The others are told to come back after it.
	probeEvery = 10 * time.Second
)

// failover knows which models' calls are run here because their queue takes nothing (FEATURES D10). What one process finds
// out is told to all by way of the state store; of what that could not be told each process keeps its own count.
//
// It is safe for concurrent use. All times are on the wall clock, since a frozen process's other one stands still.
type failover struct {
	valkey  redis.UniversalClient
	keys    keys.Space
	silent  int           // sends without an answer that move a model
	lasts   time.Duration // for how long it is moved
	bound   time.Duration // after which the queue gives a send up; 0 is unknown
	log     *slog.Logger
	metrics *telemetry.Recorder

	mu     sync.Mutex // guards all below
	models map[string]*outage
	sent   time.Time // when a send was last completed, by any model's queue
}

// outage is what this process knows of one model.
type outage struct {
	until  time.Time   // its calls are run here until then, though the store was not told
	silent []time.Time // sends without an answer that the store was not told of
	moved  bool        // as it was last seen
	since  time.Time   // when this process moved it
	back   time.Time   // when its queue last took something after it had taken nothing
	probed time.Time   // the queue is not tried again before, by this process
}

// add asks the store, as part of a batch, whether a model is moved.
func (f *failover) add(b *luascript.Batch, alias string) luascript.Pending[bool] {
	call := b.Command("GET", f.keys.Failover(alias).Direct)
	return func() (bool, error) {
		_, there, err := call.Text()
		return there, err
	}
}

// moved takes down what the store says of a model, asked at a time, and reports whether its calls are to be run here. It says once
// when that begins and once when it ends.
func (f *failover) moved(alias string, stored bool, asked time.Time) bool {
	now := time.Now().Round(0)
	f.mu.Lock()
	o := f.of(alias)
	before := o.moved
	stored = stored && asked.Round(0).After(o.back)                           // else it is of before the queue took something again
	o.moved = stored || now.Before(o.until) || !asked.Round(0).After(o.since) // what the store said before is old
	moved := o.moved
	f.mu.Unlock()
	switch {
	case moved && !before:
		f.log.Warn("model_direct", "model", alias)
	case before && !moved:
		f.log.Info("model_queued", "model", alias)
	}
	if moved || before {
		f.metrics.Set(telemetry.QueueDirect, telemetry.Labels{Model: alias}, flag(moved))
	}
	return moved
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

// of is the caller's under f.mu.
func (f *failover) of(alias string) *outage {
	o := f.models[alias]
	if o == nil {
		o = &outage{}
		f.models[alias] = o
	}
	return o
}

// tries reports whether a call may try its model's queue: always, but while that takes nothing. Then one at a time does,
// of all processes, so that it is noticed when the queue is back and none of the others hangs on it.
func (f *failover) tries(ctx context.Context, alias string) bool {
	now := time.Now().Round(0)
	f.mu.Lock()
	o := f.of(alias)
	moved, early := o.moved, now.Before(o.probed)
	if moved && !early {
		o.probed = now.Add(probeEvery)
	}
	f.mu.Unlock()
	if !moved || early {
		return !moved
	}
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	var b luascript.Batch
	sets := b.Command("SET", f.keys.Failover(alias).Probe, 1, "PX", probeEvery.Milliseconds(), "NX")
	if err := b.Run(ctx, f.valkey); err != nil {
		return true // nobody can tell, and this process waits for its own
	}
	_, first, err := sets.Text()
	return err != nil || first
}

// unavailable refuses a call that could only be queued.
func unavailable(alias string) error {
	return unsent{queueDown{llmq.Errorf(llmq.CodeQueueUnavailable, "the queue of %s takes nothing for now, and the call can't be run without it", alias).After(probeEvery)}}
}

// completed takes down that a send was. A model whose queue took nothing is queued again, by all processes that can be told.
func (f *failover) completed(ctx context.Context, alias string) {
	f.mu.Lock()
	f.sent = time.Now().Round(0)
	o := f.of(alias)
	moved := o.moved
	o.until, o.probed, o.since = time.Time{}, time.Time{}, time.Time{}
	if moved {
		o.back = f.sent
	}
	f.mu.Unlock()
	if !moved {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	var b luascript.Batch
	for _, key := range []string{f.keys.Failover(alias).Direct, f.keys.Failover(alias).Probe} {
		b.Command("DEL", key)
	}
	if err := b.Run(ctx, f.valkey); err != nil {
		f.log.Debug("end of an outage not told", "model", alias, "error", err)
	}
	f.moved(alias, false, time.Now())
}

// failed takes down a send that began then and failed. It reports whether the queue is at fault, rather than
// the message or the deployment: then the call may be served without it.
func (f *failover) failed(ctx context.Context, alias string, began time.Time, err error) bool {
	cause := atFault(err)
	if cause == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	if cause == "timeout" && (!f.quiet(began) || f.count(ctx, alias) < f.silent) {
		return true
	}
	f.move(ctx, alias)
	return true
}

// quiet reports whether nothing was sent since a send began that got no answer, though this process ran, so that this may be an outage.
func (f *failover) quiet(began time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	began = began.Round(0)
	silence := time.Now().Round(0).Sub(began)
	return silence >= leastSilence && (f.bound == 0 || silence <= f.bound+overslept) && f.sent.Before(began)
}

// count counts one more send without an answer, and returns how many there were of late.
func (f *failover) count(ctx context.Context, alias string) int {
	key := f.keys.Failover(alias).Silent
	var b luascript.Batch
	b.Command("SET", key, 0, "PX", silentWithin.Milliseconds(), "NX")
	counts := b.Command("INCR", key)
	if err := b.Run(ctx, f.valkey); err == nil {
		if n, err := counts.Int(); err == nil {
			return int(n)
		}
	}
	now := time.Now().Round(0)
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.of(alias)
	o.silent = append(o.silent, now)
	for now.Sub(o.silent[0]) > silentWithin || len(o.silent) > f.silent {
		o.silent = o.silent[1:]
	}
	return len(o.silent)
}

// move has a model's calls run here for a while, in every process that can be told.
func (f *failover) move(ctx context.Context, alias string) {
	var b luascript.Batch
	b.Command("SET", f.keys.Failover(alias).Direct, 1, "PX", f.lasts.Milliseconds())
	err := b.Run(ctx, f.valkey)
	now := time.Now()
	f.mu.Lock()
	o := f.of(alias)
	o.since = now.Round(0)
	if err != nil {
		o.until = o.since.Add(f.lasts)
	}
	f.mu.Unlock()
	f.moved(alias, err == nil, now)
}
