package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// Watch follows a rig while calls run: all that its fake provider saw, of which the provider itself keeps the latest 2,000
// only; which results are stored, and since when; which worker processes there are. It looks a few times a second, by links of
// its own. Its methods are safe for concurrent use.
type Watch struct {
	// Store is the state store, not by way of a link.
	Store *redis.Client

	rig   *Rig
	stop  context.CancelFunc
	ended chan struct{}

	mu        sync.Mutex // guards what follows
	calls     []server.Call
	lastSeq   uint64
	stored    map[string]time.Time // by key: when the result was first seen
	processes map[int]bool         // of workers, by process id
	together  int
}

// lookEvery is how often a Watch looks, and so how late it may learn that a result is stored.
const lookEvery = 200 * time.Millisecond

// NewWatch watches r until Close, which comes before that of r.
func NewWatch(r *Rig) *Watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &Watch{
		Store: redis.NewClient(&redis.Options{
			Addr: r.Valkey.Addr(), Password: r.Valkey.Password(), PoolSize: 2, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}),
		rig: r, stop: stop, ended: make(chan struct{}), stored: map[string]time.Time{}, processes: map[int]bool{},
	}
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			w.Look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

// Close ends the watching; what was seen stays to be read.
func (w *Watch) Close() error {
	w.stop()
	<-w.ended
	return w.Store.Close()
}

// Look looks now. A store that is down has no results to tell.
func (w *Watch) Look(ctx context.Context) {
	fresh := w.rig.Fake.Calls()
	results := w.results(ctx)
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range fresh {
		if c.Seq > w.lastSeq {
			w.calls, w.lastSeq = append(w.calls, c), c.Seq
		}
	}
	for _, key := range results {
		if w.stored[key].IsZero() {
			w.stored[key] = now
		}
	}
	alive := 0
	for _, lane := range llmq.Lanes() {
		for _, p := range w.rig.Workers(lane) {
			w.processes[p.PID] = true
			alive++
		}
	}
	w.together = max(w.together, alive)
}

// results lists the keys of the stored results.
func (w *Watch) results(ctx context.Context) []string {
	var found []string
	var cursor uint64
	for {
		keys, next, err := w.Store.Scan(ctx, cursor, "llmq:*:res:*", 2000).Result()
		if err != nil {
			return found
		}
		found = append(found, keys...)
		if cursor = next; cursor == 0 {
			return found
		}
	}
}

// resultKey is where the result of a request of the rig's one tenant is stored.
func resultKey(id string) string {
	const tenant = "default"
	return "llmq:local:res:" + llmq.TenantHash(tenant) + ":{" + string(llmq.NewRID(tenant, id)) + "}"
}

// Calls are the provider calls that have ended, in that order.
func (w *Watch) Calls() []server.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// ByRequest sorts them by what was asked, in the order in which they began.
func (w *Watch) ByRequest() map[string][]server.Call {
	out := map[string][]server.Call{}
	for _, c := range w.Calls() {
		out[Asked(c)] = append(out[Asked(c)], c)
	}
	for _, calls := range out {
		slices.SortFunc(calls, func(a, b server.Call) int { return a.At.Compare(b.At) })
	}
	return out
}

// StoredAt is when a request's result was first seen; zero where it never was. A wipe of the store does not change it.
func (w *Watch) StoredAt(id string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored[resultKey(id)]
}

// Processes counts the worker processes that were seen, and those that lived together at most.
func (w *Watch) Processes() (seen, together int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.processes), w.together
}

// Stored is a request's stored end.
type Stored struct {
	Meta llmq.Meta
	Code llmq.Code // "" for a reply
}

// Results reads the stored ends of those requests that have one.
func (w *Watch) Results(ctx context.Context, ids []string) (map[string]Stored, error) {
	out := map[string]Stored{}
	for some := range slices.Chunk(ids, 500) {
		replies := make([]*redis.StringCmd, len(some))
		// A pipeline gives its first command's error, and each command its own.
		_, _ = w.Store.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range some {
				replies[i] = p.Get(ctx, resultKey(id))
			}
			return nil
		})
		for i, reply := range replies {
			b, err := reply.Bytes()
			if errors.Is(err, redis.Nil) {
				continue
			}
			var res struct {
				Meta  llmq.Meta
				Error struct{ Code llmq.Code }
			}
			if err == nil {
				err = json.Unmarshal(b, &res)
			}
			if err != nil {
				return nil, fmt.Errorf("result of %s: %w", some[i], err)
			}
			out[some[i]] = Stored{res.Meta, res.Error.Code}
		}
	}
	return out, nil
}

// Slots counts the slots of all targets and lanes that are taken and have not lapsed.
func (w *Watch) Slots(ctx context.Context) (int, error) {
	now, err := w.Store.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("slots: %w", err)
	}
	taken := 0
	for _, lane := range llmq.Lanes() {
		keys, err := w.Store.Keys(ctx, "llmq:*:cap:{cap}:*:"+string(lane)).Result()
		if err != nil {
			return 0, fmt.Errorf("slots: %w", err)
		}
		for _, k := range keys {
			n, err := w.Store.ZCount(ctx, k, "("+strconv.FormatInt(now.UnixMilli(), 10), "+inf").Result()
			if err != nil {
				return 0, fmt.Errorf("slots: %w", err)
			}
			taken += int(n)
		}
	}
	return taken, nil
}

// Together counts how many of the calls were in flight at once, at most. A call lies within what its slot spans, so the count
// never is too high for slots that are kept.
func Together(calls []server.Call) int {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, c := range calls {
		edges = append(edges, edge{c.At, 1}, edge{c.At.Add(c.Duration), -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.step, b.step)) })
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}
