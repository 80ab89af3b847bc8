package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
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
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// hub is a hub under test, with what tests do to it.
type hub struct {
	*Hub
	client redis.UniversalClient
}

func newHub(t testing.TB, c redis.UniversalClient) hub {
	t.Helper()
	h := hub{NewHub(New(c, luatest.Space(), nil, 1<<20)), c}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close hub: %v", err)
		}
	})
	return h
}

func request(id string) llmq.Request { return llmq.Request{ID: id, Tenant: "t"} }

func (h hub) subscribe(t testing.TB, id string) *Waiter {
	t.Helper()
	w, err := h.Subscribe(t.Context(), request(id))
	if err != nil {
		t.Fatalf("subscribe %s: %v", id, err)
	}
	return w
}

// put stores a result without a word; wake says so.
func (h hub) put(t testing.TB, id string) {
	t.Helper()
	k := h.store.keys.Call("t", request(id).RID())
	if err := h.client.Set(t.Context(), k.Result, "result of "+id, 0).Err(); err != nil {
		t.Fatalf("store: %v", err)
	}
}

func (h hub) wake(t testing.TB, id string) {
	t.Helper()
	k := h.store.keys.Call("t", request(id).RID())
	if err := h.client.Publish(t.Context(), k.Wake, "1").Err(); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

func (h hub) finish(t testing.TB, id string) {
	t.Helper()
	h.put(t, id)
	h.wake(t, id)
}

// wantResult waits for a waiter's own result for at most the given time.
func wantResult(t testing.TB, w *Waiter, id string, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	got, err := w.Result(ctx)
	if want := "result of " + id; err != nil || string(got) != want {
		t.Errorf("waiter of %s got %q, %v; want %q", id, got, err, want)
	}
}

func TestHub_WokenWaiterGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		ids := []string{"a", "b", "c"}
		var ws []*Waiter
		for _, id := range ids {
			ws = append(ws, h.subscribe(t, id))
		}
		for _, id := range slices.Backward(ids) {
			h.finish(t, id)
		}
		for i, w := range ws {
			wantResult(t, w, ids[i], SweepEvery/2) // by the wake, not by the sweep
			w.Close()
		}
	})
}

func TestHub_TwoWaitersOfOneRequestAreBothServed(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		first, second := h.subscribe(t, "a"), h.subscribe(t, "a")
		third := h.subscribe(t, "a")
		third.Close() // the others stay subscribed
		h.finish(t, "a")
		wantResult(t, first, "a", SweepEvery/2)
		wantResult(t, second, "a", SweepEvery/2)
		first.Close()
		second.Close()
		second.Close() // again: nothing
	})
}

func TestHub_ManySubscribeAndLeaveAtOnce(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for round := range 5 {
					id := fmt.Sprintf("%d-%d", i/2, round) // two of each id at the same time
					w, err := h.Subscribe(t.Context(), request(id))
					if err != nil {
						t.Errorf("subscribe: %v", err)
						return
					}
					h.finish(t, id)
					wantResult(t, w, id, 2*SweepEvery)
					w.Close()
				}
			})
		}
		all.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.session != nil || len(h.waiting) != 0 || h.due != nil {
			t.Errorf("something is left: session %v, %d channels, %d due", h.session, len(h.waiting), len(h.due))
		}
	})
}

// hubGoroutines counts the hubs' goroutines of this process.
func hubGoroutines() int {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	n := 0
	for g := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if bytes.Contains(g, []byte("results.(*session)")) {
			n++
		}
	}
	return n
}

// Not parallel: it counts the goroutines of the whole process.
func TestHub_TenThousandWaitersCostTwoGoroutinesAndAThousandResultsTwoReads(t *testing.T) { //nolint:paralleltest // see above
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprintf("cluster=%v", cluster), func(t *testing.T) { //nolint:paralleltest // see above
			c := servers.Dial(t, cluster)
			h := newHub(t, c)
			ids := make([]string, 10_000)
			ws := make([]*Waiter, len(ids))
			var all sync.WaitGroup
			for part := range 20 {
				all.Go(func() {
					for i := part; i < len(ids); i += 20 {
						ids[i] = fmt.Sprint(i)
						ws[i] = h.subscribe(t, ids[i])
					}
				})
			}
			all.Wait()
			if n := hubGoroutines(); n != 2 {
				t.Errorf("%d goroutines for %d waiters, want 2", n, len(ids))
			}
			// The first read is held until every wake has been heard.
			heard, first := make(chan struct{}), atomic.Bool{}
			trips := &luatest.Trips{}
			trips.Before = func(_ context.Context, cmds []redis.Cmder) error {
				if cmds[0].Name() == "get" && first.CompareAndSwap(false, true) {
					<-heard
				}
				return nil
			}
			c.AddHook(trips)
			for i := range 1000 {
				h.finish(t, ids[i])
			}
			trips.Seen()
			waitFor(t, func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.due) >= 990 // the rest is in the read that is held
			})
			close(heard)
			for i := range 1000 {
				wantResult(t, ws[i], ids[i], time.Minute)
			}
			reads, read := 0, 0
			for _, trip := range trips.Seen() {
				if trip[0] == "get" {
					reads++
					read += len(trip)
				}
			}
			if reads > 1 || read < 990 { // the one that was held had begun before
				t.Errorf("the results came in %d more reads of %d keys in all, want one", reads, read)
			}
			for _, w := range ws {
				w.Close()
			}
			if n := hubGoroutines(); n != 0 {
				t.Errorf("%d goroutines are left", n)
			}
		})
	}
}

// waitFor polls a condition of real processes.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true in 20 s")
		}
	}
}

// bubble runs a test of a hub on miniredis in a bubble; dial, when set, replaces the way
// to it.
func bubble(t *testing.T, test func(t *testing.T, m *miniredis.Miniredis, h hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		test(t, m, newHub(t, luatest.Pipe(t, m)))
	})
}

func TestHub_SweepFindsWhatAWakeDidNotTell(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		w, noisy := h.subscribe(t, "a"), h.subscribe(t, "b")
		defer w.Close()
		defer noisy.Close()
		h.put(t, "a")
		start := time.Now()
		go func() { // others' wakes all the while must not keep the sweep away
			for range 5 {
				time.Sleep(time.Second)
				h.wake(t, "b")
			}
		}()
		wantResult(t, w, "a", 3*SweepEvery)
		if took := time.Since(start); took > SweepEvery+time.Second {
			t.Errorf("found after %v, want at most %v", took, SweepEvery+time.Second)
		}
		time.Sleep(SweepEvery)
	})
}

func TestHub_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		w := h.subscribe(t, "a")
		defer w.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := w.Result(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v; want the context's end", got, err)
		}
		h.finish(t, "a")
		synctest.Wait()
		if got, err := w.Result(ctx); err != nil || string(got) != "result of a" {
			t.Errorf("a result that is there = %q, %v; want it even when the context has ended", got, err)
		}
	})
}

func TestHub_FailedReadIsMadeAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		var fails atomic.Int32
		fails.Store(3)
		h.client.AddHook(&luatest.Trips{After: func(_ context.Context, cmds []redis.Cmder) error {
			if cmds[0].Name() == "get" && fails.Add(-1) >= 0 {
				return errors.New("connection reset")
			}
			return nil
		}})
		w := h.subscribe(t, "a")
		defer w.Close()
		h.finish(t, "a")
		wantResult(t, w, "a", SweepEvery/2)
	})
}

// Not in a bubble: the library holds its mutex while it dials.
func TestHub_SubscribeFailsInTimeWhenTheStoreIsDown(t *testing.T) {
	t.Parallel()
	hole, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	c := redis.NewClient(&redis.Options{
		Addr: hole.Addr().String(), DisableIdentity: true, ContextTimeoutEnabled: true,
		ReadTimeout: 200 * time.Millisecond, DialTimeout: 200 * time.Millisecond, MaxRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close(); _ = hole.Close() })
	h := newHub(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if w, err := h.Subscribe(ctx, request("a")); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("subscribe = %v, %v; want queue_unavailable", w, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil {
		t.Error("a session is left")
	}
}

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
		time.Sleep(idleFor)
		cycle("b")
		if got := l.dials.Load(); got != one {
			t.Errorf("a fresh idle connection was not used again: %d dials, want %d", got, one)
		}
		time.Sleep(idleFor + time.Millisecond)
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
		w.Close()
		if n := subscribers(); n != 0 {
			t.Errorf("%d subscribers while nobody waits", n)
		}
		h.mu.Lock()
		kept := h.idle != nil
		h.mu.Unlock()
		if !kept {
			t.Error("the connection was not kept for the next waiter")
		}
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
		Addr: s.Addr, Password: s.Password, ClientName: name, DisableIdentity: true, ContextTimeoutEnabled: true,
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
