package results

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/pubsub"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// line is a way to a miniredis whose connections are counted, and can fall dead: then
// nothing passes and nobody is told, as when a peer vanishes.
type line struct {
	m     *miniredis.Miniredis
	dials atomic.Int32

	mu    sync.Mutex // guards conns
	conns []*lineConn
}

type lineConn struct {
	net.Conn
	dead atomic.Bool
}

func (c *lineConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.dead.Load() {
			return n, err
		}
	}
}

func (c *lineConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (l *line) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.dead.Store(true)
	}
}

func (l *line) client(t testing.TB) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: 500 * time.Millisecond,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			l.dials.Add(1)
			conn, err := l.m.Dial()
			if err != nil {
				return nil, err
			}
			lc := &lineConn{Conn: conn}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.conns = append(l.conns, lc)
			return lc, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestHub_DeadConnectionIsReplacedWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{m: llmqtest.NewMiniredis(t)}
		h := newHub(t, l.client(t))
		w := h.subscribe(t, "a")
		defer w.Close()
		time.Sleep(time.Minute) // quiet, but alive: pings keep it
		dials := l.dials.Load()
		l.die()
		time.Sleep(3 * SweepEvery)
		if l.dials.Load() == dials {
			t.Fatal("the dead connection was kept")
		}
		h.finish(t, "a")
		wantResult(t, w, "a", time.Second) // by a wake: the subscription stands again
		other := h.subscribe(t, "b")       // and new ones can
		other.Close()
	})
}

// Nothing has been sent while a caller waits for its subscription: it is told soon, however
// long its own deadline is.
func TestHub_SubscriptionThatNobodyConfirmsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{m: llmqtest.NewMiniredis(t)}
		h := newHub(t, l.client(t))
		w := h.subscribe(t, "a")
		defer w.Close()
		l.die()
		start := time.Now()
		if other, err := h.Subscribe(t.Context(), request("b")); !errors.Is(err, llmq.CodeQueueUnavailable) {
			t.Errorf("subscribe = %v, %v; want queue_unavailable", other, err)
		}
		if took := time.Since(start); took < confirmWithin || took > confirmWithin+stopWithin {
			t.Errorf("given up after %v, want %v", took, confirmWithin)
		}
	})
}

func TestHub_QuietConnectionIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{m: llmqtest.NewMiniredis(t)}
		h := newHub(t, l.client(t))
		w := h.subscribe(t, "a")
		defer w.Close()
		time.Sleep(SweepEvery + time.Second) // by now the pool has its connection for the sweeps
		dials := l.dials.Load()
		time.Sleep(2 * time.Minute)
		if got := l.dials.Load(); got != dials {
			t.Errorf("%d dials in two quiet minutes, want none", got-dials)
		}
	})
}

func TestHub_IdleConnectionIsReusedWhileFreshAndDroppedWhenStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{m: llmqtest.NewMiniredis(t)}
		h := newHub(t, l.client(t))
		cycle := func(id string) {
			w := h.subscribe(t, id)
			w.Close()
		}
		cycle("a")
		one := l.dials.Load()
		time.Sleep(pubsub.TrustedFor)
		cycle("b")
		if got := l.dials.Load(); got != one {
			t.Errorf("a fresh idle connection was not used again: %d dials, want %d", got, one)
		}
		time.Sleep(pubsub.TrustedFor + time.Millisecond)
		l.die() // what a freeze may do to it
		start := time.Now()
		cycle("c")
		if got := l.dials.Load(); got != one+1 {
			t.Errorf("a stale idle connection was not replaced: %d dials, want %d", got, one+1)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("replacing it took %v", took)
		}
	})
}

func TestHub_NothingIsSubscribedWhileNobodyWaits(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		w := h.subscribe(t, "a")
		channel := w.channel
		subscribers := func() int64 { return c.PubSubNumSub(t.Context(), channel).Val()[channel] }
		if n := subscribers(); n != 1 {
			t.Errorf("%d subscribers while one waits", n)
		}
		h.mu.Lock()
		used := h.session.sub
		h.mu.Unlock()
		w.Close()
		if n := subscribers(); n != 0 {
			t.Errorf("%d subscribers while nobody waits", n)
		}
		next := h.spare.Take(t.Context(), c)
		if next != used {
			t.Error("the connection was not kept for the next waiter")
		}
		h.spare.Keep(next)
	})
}

// The one who leaves may send its UNSUBSCRIBE after the one who comes has subscribed.
func TestHub_LateUnsubscribeDoesNotSilenceANewcomer(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"in the same session", "in the next session"} {
		t.Run(between, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
				keeper, leaver := h.subscribe(t, "other"), h.subscribe(t, "a")
				old, left := h.remove(leaver) // the first half of Close
				if left != noneHere {
					t.Fatalf("left = %v", left)
				}
				if between == "in the next session" {
					w := h.subscribe(t, "a")
					keeper.Close()
					w.Close()
				}
				newcomer := h.subscribe(t, "a")
				old.unsubscribe(leaver.channel) // the second half, late
				synctest.Wait()
				h.finish(t, "a")
				wantResult(t, newcomer, "a", time.Second)
				newcomer.Close()
				keeper.Close()
			})
		})
	}
}

// named connects to a real server under a name that CLIENT LIST shows.
func named(t *testing.T, name string) redis.UniversalClient {
	t.Helper()
	s := servers.Real(t, false)
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: s.Password(), ClientName: name, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// killSubscriber ends the named client's pub/sub connection as a server does.
func killSubscriber(t *testing.T, c redis.UniversalClient, name string) {
	t.Helper()
	list, err := c.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		t.Fatalf("client list: %v", err)
	}
	killed := false
	for line := range strings.Lines(list) {
		if id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(line, " name="+name+" ") {
			if err := c.ClientKillByFilter(t.Context(), "ID", id).Err(); err != nil {
				t.Fatalf("client kill: %v", err)
			}
			killed = true
		}
	}
	if !killed {
		t.Fatalf("no connection named %s in:\n%s", name, list)
	}
}

func TestHub_CutConnectionIsSubscribedAgainAndReadAgain(t *testing.T) {
	t.Parallel()
	c := named(t, "hub-cut")
	h := newHub(t, c)
	quiet, woken := h.subscribe(t, "a"), h.subscribe(t, "b")
	defer quiet.Close()
	defer woken.Close()
	killSubscriber(t, c, "hub-cut")
	h.put(t, "a") // its wake, sent while nobody listens, is lost
	wantResult(t, quiet, "a", SweepEvery*3/4)
	h.finish(t, "b")
	wantResult(t, woken, "b", SweepEvery*3/4)
}

func TestHub_CutIdleConnectionIsNoHarm(t *testing.T) {
	t.Parallel()
	c := named(t, "hub-idle")
	h := newHub(t, c)
	w := h.subscribe(t, "a")
	id, err := c.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil || !strings.Contains(id, "name=hub-idle") {
		t.Fatalf("client list: %v", err)
	}
	// Killed while subscribed, so that CLIENT LIST can tell it from the pool's; closed at once.
	killSubscriber(t, c, "hub-idle")
	w.Close()
	again := h.subscribe(t, "b")
	h.finish(t, "b")
	wantResult(t, again, "b", SweepEvery*3/4)
	again.Close()
}

func BenchmarkHub_WakeAndRead(b *testing.B) {
	h := newHub(b, servers.Dial(b, true))
	for i := range 1000 { // others that wait must cost nothing
		w := h.subscribe(b, fmt.Sprint("other", i))
		defer w.Close()
	}
	b.ReportAllocs()
	for b.Loop() {
		id := llmq.NewID()
		w := h.subscribe(b, id)
		h.finish(b, id)
		wantResult(b, w, id, time.Minute)
		w.Close()
	}
}
