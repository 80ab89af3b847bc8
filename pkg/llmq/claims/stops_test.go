package claims

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func newStops(t testing.TB, c redis.UniversalClient, s *Store) *Stops {
	t.Helper()
	stops := NewStops(c, s.keys)
	t.Cleanup(func() {
		if err := stops.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return stops
}

func told() (func(), chan struct{}) {
	c := make(chan struct{}, 10)
	return func() { c <- struct{}{} }, c
}

func nothing() {}

func wantTold(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was told in 10 s")
	}
}

// subscribed returns when the stops' channel is heard.
func subscribed(t testing.TB, c redis.UniversalClient, s *Stops) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		heard := false
		each(t, c, func(ctx context.Context, node redis.Cmdable) {
			n, err := node.PubSubNumSub(ctx, s.channel).Result()
			heard = heard || err == nil && n[s.channel] == 1
		})
		if heard {
			return
		}
		<-tick.C
	}
	t.Fatal("the subscription does not stand")
}

func each(t testing.TB, c redis.UniversalClient, do func(context.Context, redis.Cmdable)) {
	t.Helper()
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		do(t.Context(), c)
		return
	}
	if err := cluster.ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error { do(ctx, node); return nil }); err != nil {
		t.Fatalf("ask the shards: %v", err)
	}
}

// A5: the owner of a running request hears of its cancellation, and no other run does.
func TestStops_OwnerIsTold(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s, r := New(luatest.Space()), request()
		stops, elsewhere := newStops(t, c, s), newStops(t, c, s)
		stop, stopped := told()
		owner := stops.Owner()
		w := stops.Watch(owner, stop, nothing)
		defer w.Close()
		neighbour := stops.Watch(stops.Owner(), func() { t.Error("a neighbour was told") }, nothing)
		defer neighbour.Close()
		other := elsewhere.Watch(elsewhere.Owner(), func() { t.Error("another process was told") }, nothing)
		defer other.Close()
		subscribed(t, c, stops)
		subscribed(t, c, elsewhere)
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Take] { return s.Take(b, r, BodyHash(r), owner) }); err != nil || got.State != Taken {
			t.Fatalf("take = %+v, %v", got, err)
		}
		w.Begun()
		got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Cancellation] {
			return s.Cancel(b, r.Tenant, r.ID, []byte("x"))
		})
		if err != nil || got != (Cancellation{State: CancelTold, Known: true}) {
			t.Fatalf("cancel = %+v, %v", got, err)
		}
		wantTold(t, stopped)
	})
}

// DS21: when nothing runs, no subscription and no goroutine is left, and the connection serves the next run.
func TestStops_NothingOutlivesTheLastRun(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(luatest.Space())
		stops := newStops(t, c, s)
		var first *redis.PubSub
		for i := range 3 {
			w, second := stops.Watch("a", nothing, nothing), stops.Watch("b", nothing, nothing)
			subscribed(t, c, stops)
			w.Close()
			subscribed(t, c, stops)
			second.Leave()
			second.Close()
			second.Close()
			each(t, c, func(ctx context.Context, node redis.Cmdable) {
				if n := node.PubSubNumSub(ctx, stops.channel).Val()[stops.channel]; n != 0 {
					t.Errorf("round %d: %d subscriptions are left", i, n)
				}
			})
			kept := stops.spare.Take(t.Context(), c)
			if stops.session != nil || (first != nil && kept != first) {
				t.Fatalf("round %d: session %v, connection kept %v", i, stops.session, kept == first)
			}
			stops.spare.Keep(kept)
			first = kept
		}
	})
}

// A run whose subscription stands later than its take, however little, asks soon whether a word was missed.
func TestStops_LateSubscriptionAsks(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{time.Millisecond, time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			lateSubscriptionAsks(t, late)
		})
	}
}

func lateSubscriptionAsks(t *testing.T, late time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true, DialTimeout: time.Minute,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(late)
				return m.Dial()
			},
		})
		defer c.Close()
		stops := newStops(t, c, New(luatest.Space()))
		var looked atomic.Int32
		w := stops.Watch(stops.Owner(), nothing, func() { looked.Add(1) })
		w.Begun()
		idle := stops.Watch(stops.Owner(), nothing, func() { t.Error("who has taken nothing has missed nothing") })
		time.Sleep(late + stopsAsk + time.Millisecond)
		if n := looked.Load(); n != 1 {
			t.Errorf("looked %d times, want once", n)
		}
		time.Sleep(time.Minute)
		if n := looked.Load(); n != 1 {
			t.Errorf("looked %d times in the end, want once", n)
		}
		idle.Close()
		w.Close()
	})
}

// H30: a store that can't be reached keeps nobody from beginning or ending. (In real time: the library dials under a
// lock, for which a bubble's clock does not wait.)
func TestStops_UnreachableStoreIsLeftInTime(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true, DialTimeout: time.Minute, MaxRetries: -1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	defer c.Close()
	stops := newStops(t, c, New(luatest.Space()))
	start := time.Now()
	stops.Watch(stops.Owner(), nothing, nothing).Close()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("closed after %v", took)
	}
}

// A connection that breaks is made anew, and those that run ask.
func TestStops_BrokenConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		var dialled atomic.Int32
		var last atomic.Pointer[net.Conn]
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := m.Dial()
				last.Store(&conn)
				dialled.Add(1)
				return conn, err
			},
		})
		defer c.Close()
		space := luatest.Space()
		stops := newStops(t, c, New(space))
		var looked atomic.Int32
		stop, stopped := told()
		owner := stops.Owner()
		w := stops.Watch(owner, stop, func() { looked.Add(1) })
		defer w.Close()
		w.Begun()
		time.Sleep(time.Second)
		if err := (*last.Load()).Close(); err != nil {
			t.Fatalf("break the connection: %v", err)
		}
		time.Sleep(time.Second)
		if n, l := dialled.Load(), looked.Load(); n != 2 || l != 1 {
			t.Errorf("dialled %d times, looked %d times; want 2 and 1", n, l)
		}
		if err := c.Publish(t.Context(), stops.channel, owner).Err(); err != nil {
			t.Fatalf("publish: %v", err)
		}
		wantTold(t, stopped)
	})
}

func TestStops_OwnersAreUniqueAndNameTheirProcess(t *testing.T) {
	t.Parallel()
	space := luatest.Space()
	s := NewStops(nil, space)
	a, b := s.Owner(), s.Owner()
	worker, _, _ := strings.Cut(a, "/")
	if a == b || s.channel != space.Stop(worker) {
		t.Errorf("owners %s and %s, channel %s", a, b, s.channel)
	}
	if other := NewStops(nil, luatest.Space()); other.worker == s.worker {
		t.Error("two processes share a name")
	}
}
