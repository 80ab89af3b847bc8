package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	store "github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

const (
	crowd = 10_000 // waiters of one process
	burst = 1000   // results that are ready at once
)

// onWire is a hub that reaches a real server in cluster mode over a wire. Its client is one beside the wire.
func onWire(t testing.TB) (hub, *llmqtest.Wire) {
	t.Helper()
	server, err := valkey.Start(t.Context(), valkey.Options{Engine: valkey.Real}) // its own: it announces the wire
	if errors.Is(err, valkey.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skipf("needs valkey-server: %v", err)
	}
	if err != nil {
		t.Fatalf("start valkey-server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stop valkey-server: %v", err)
		}
	})
	dial := func(address string, cluster bool) redis.UniversalClient {
		c, err := store.Dial(store.Options{Address: address, Password: server.Password(), Cluster: cluster, CommandTimeout: 5 * time.Second, DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	beside := dial(server.Addr(), false)
	w := llmqtest.NewWire(t, server.Addr())
	if err := beside.ConfigSet(t.Context(), "cluster-announce-port", strconv.Itoa(w.Port())).Err(); err != nil {
		t.Fatalf("announce the wire: %v", err)
	}
	h := newHub(t, dial(w.Addr(), true))
	h.client = beside
	return h, w
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

// subscribeMany makes waiters.
func (h hub) subscribeMany(t testing.TB, n int) ([]string, []*Waiter) {
	t.Helper()
	ids, ws := make([]string, n), make([]*Waiter, n)
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
	return ids, ws
}

// finishAll makes many results ready at once.
func (h hub) finishAll(t testing.TB, clients []redis.UniversalClient, ids []string) {
	t.Helper()
	for _, c := range clients {
		pipe := c.Pipeline()
		for _, id := range ids {
			k := h.store.keys.Call("t", request(id).RID())
			pipe.Set(t.Context(), k.Result, "result of "+id, 0)
			pipe.Publish(t.Context(), k.Wake, "1")
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatalf("finish: %v", err)
		}
	}
}

// reads are the trips of a wire that read results, as the number of their keys. Others fail the test.
func reads(t testing.TB, trips []llmqtest.Trip) (sizes []int, keys int) {
	t.Helper()
	for _, trip := range trips {
		if trip.Commands[0] != "get" {
			t.Errorf("a trip of %v", trip.Commands)
		}
		sizes, keys = append(sizes, len(trip.Commands)), keys+len(trip.Commands)
	}
	return sizes, keys
}

// Not parallel: it counts the goroutines of the whole process.
//
// E10: no polling loop a waiter, and a thousand results that are ready at once are read in two round trips,
// counted on the wire in cluster mode.
func TestHub_TenThousandWaitersShareTwoGoroutinesAndTwoConnections(t *testing.T) { //nolint:paralleltest // see above
	h, wire := onWire(t)
	ids, ws := h.subscribeMany(t, crowd)
	if n := hubGoroutines(); n != 2 {
		t.Errorf("%d goroutines for %d waiters, want 2", n, len(ids))
	}
	if now, made := wire.Conns(); now > 2 || made > 2 { // one to find the nodes and read, one subscription
		t.Errorf("%d connections, %d made, want 2", now, made)
	}
	// The wakes come at once, and a reply takes a while: longer than this machine, busy as it may be with other tests, takes
	// to hear a thousand wakes. TestHub_ResultsInQuickSuccessionAreGathered is about wakes that come one by one.
	wire.Delay(50 * time.Millisecond)
	var counts [][]int
	for round := range 5 {
		wire.Trips()
		ready := ids[round*burst : (round+1)*burst]
		release := wire.HoldMessages()
		h.finishAll(t, []redis.UniversalClient{h.client}, ready)
		release()
		for i, id := range ready {
			wantResult(t, ws[round*burst+i], id, time.Minute)
		}
		sizes, keys := reads(t, wire.Trips())
		counts = append(counts, sizes)
		if keys < burst || keys > burst+crowd { // a sweep may read the others beside
			t.Errorf("round %d read %d keys", round, keys)
		}
	}
	t.Logf("reads of %d results that were ready at once, as keys each: %v", burst, counts)
	best := len(counts[0])
	for _, c := range counts {
		best = min(best, len(c))
	}
	if best > 2 { // the best round: a sweep may fall into one, or the machine stand still
		t.Errorf("reads %v, want at most two a round", counts)
	}
	for _, w := range ws {
		w.Close()
	}
	if n := hubGoroutines(); n != 0 {
		t.Errorf("%d goroutines are left", n)
	}
}

// What becomes ready during one read is read by the next, in one pipeline. In a bubble,
// so that no sweep comes between.
func TestHub_AThousandReadyResultsCostTwoReads(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		ids, ws := h.subscribeMany(t, crowd)
		heard, first := make(chan struct{}), atomic.Bool{}
		trips := &luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
			if cmds[0].Name() == "get" && first.CompareAndSwap(false, true) {
				<-heard // the first read is held until every wake has been heard
			}
			return nil
		}}
		h.client.AddHook(trips)
		for _, id := range ids[:burst] {
			h.finish(t, id)
		}
		synctest.Wait()
		close(heard)
		for i, id := range ids[:burst] {
			wantResult(t, ws[i], id, time.Second)
		}
		var reads []int
		for _, trip := range trips.Seen() {
			if trip[0] == "get" {
				reads = append(reads, len(trip))
			}
		}
		if len(reads) > 2 || reads[0]+reads[len(reads)-1] < burst {
			t.Errorf("reads of %v keys, want at most two", reads)
		}
		for _, w := range ws {
			w.Close()
		}
	})
}

// Results that follow each other closely are gathered after the first.
func TestHub_ResultsInQuickSuccessionAreGathered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		ids, ws := h.subscribeMany(t, 100)
		trips := &luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
			if cmds[0].Name() == "get" {
				time.Sleep(time.Millisecond) // a round trip between two machines
			}
			return nil
		}}
		h.client.AddHook(trips)
		start := time.Now()
		for i, id := range ids {
			h.finish(t, id)
			if i%4 == 3 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		for i, id := range ids {
			wantResult(t, ws[i], id, time.Second)
		}
		took, reads := time.Since(start), 0
		for _, trip := range trips.Seen() {
			if trip[0] == "get" {
				reads++
			}
		}
		if reads != 2 || took > 10*time.Millisecond {
			t.Errorf("%d reads in %v, want 2 soon", reads, took)
		}
		for _, w := range ws {
			w.Close()
		}
	})
}

// E10: while nothing happens nothing is sent, but for sweeps that grow rare.
func TestHub_WaitingSendsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		_, ws := h.subscribeMany(t, crowd)
		trips := &luatest.Trips{}
		h.client.AddHook(trips)
		var seen []int
		for range 13 {
			time.Sleep(SweepEvery - time.Millisecond)
			if n := len(trips.Seen()); n != 0 {
				t.Errorf("%d reads between two sweeps", n)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			seen = append(seen, len(trips.Seen()))
		}
		// After 5, 10, 20, 40 and 70 s, each in pipelines of a thousand: at 65 s the last has not come.
		if got, want := fmt.Sprint(seen), "[10 10 0 10 0 0 0 10 0 0 0 0 0]"; got != want {
			t.Errorf("reads at the sweeps %s, want %s", got, want)
		}
		for _, w := range ws {
			w.Close()
		}
	})
}

// Who was woken and found nothing looks again soon, however long it has waited.
func TestHub_WakeWithoutAResultBringsTheSweepsBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *miniredis.Miniredis, h hub) {
		w := h.subscribe(t, "a")
		defer w.Close()
		time.Sleep(10 * time.Minute)
		h.wake(t, "a")
		synctest.Wait()
		h.put(t, "a")
		start := time.Now()
		wantResult(t, w, "a", time.Minute)
		if took := time.Since(start); took > SweepEvery {
			t.Errorf("found after %v, want at most %v", took, SweepEvery)
		}
	})
}

// In cluster mode the results of many requests lie on many nodes: each node is read as one is alone.
func TestHub_EachNodeIsReadInTwoPipelines(t *testing.T) {
	t.Parallel()
	nodes := []*miniredis.Miniredis{llmqtest.StartMiniredis(t), llmqtest.StartMiniredis(t)}
	var wires []*llmqtest.Wire
	var beside []redis.UniversalClient
	var slots []redis.ClusterSlot
	for i, m := range nodes {
		wires = append(wires, llmqtest.NewWire(t, m.Addr()))
		c := redis.NewClient(&redis.Options{Addr: m.Addr(), DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { _ = c.Close() })
		beside = append(beside, c)
		slots = append(slots, redis.ClusterSlot{Start: i * 8192, End: i*8192 + 8191, Nodes: []redis.ClusterNode{{Addr: wires[i].Addr()}}})
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots:    func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
		DisableIdentity: true, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	h := newHub(t, c)
	const rounds = 5 // the best counts: this machine may be busy with other tests
	ids, ws := h.subscribeMany(t, burst)
	var counts [][]int
	for round := range rounds {
		part := ids[round*burst/rounds : (round+1)*burst/rounds]
		var release []func()
		for _, w := range wires {
			w.Delay(100 * time.Millisecond)
			w.Trips()
			release = append(release, w.HoldMessages())
		}
		// Stored and told on both, since these two servers know nothing of each other; the hub listens at one.
		h.finishAll(t, beside, part)
		for _, pass := range release {
			pass()
		}
		for i, id := range part {
			wantResult(t, ws[round*burst/rounds+i], id, time.Minute)
		}
		counts = append(counts, []int{len(wires[0].Trips()), len(wires[1].Trips())})
	}
	t.Logf("round trips by node: %v", counts)
	if !slices.ContainsFunc(counts, func(c []int) bool { return min(c[0], c[1]) > 0 && max(c[0], c[1]) <= 2 }) {
		t.Errorf("round trips by node %v, want at most two each", counts)
	}
	for _, w := range ws {
		w.Close()
	}
}

// BenchmarkHub_Waiter is the memory of a waiter that waits, the client library's share included.
func BenchmarkHub_Waiter(b *testing.B) {
	h := newHub(b, servers.Dial(b, true))
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		_, ws := h.subscribeMany(b, crowd)
		b.ReportMetric((heap()-before)/crowd, "B/waiter")
		for _, w := range ws {
			w.Close()
		}
	}
}
