package capacity

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// run adds one call to a batch, runs it, and returns its answer.
func run[T any](t testing.TB, c redis.UniversalClient, add func(b *luascript.Batch) luascript.Pending[T]) T {
	t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	got, err := pending()
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	return got
}

func target(most int) llmq.Target {
	return llmq.Target{Model: "m", Name: "t", MaxConcurrency: most}
}

func TestGate_ALifeOfASlot(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		g, at := New(luatest.Space()), target(1)
		admit := func(id string) Admission {
			return run(t, c, func(b *luascript.Batch) luascript.Pending[Admission] { return g.Admit(b, at, id) })
		}
		a := admit("a")
		if !a.Granted || a.InUse != 1 || a.Retry != 0 {
			t.Fatalf("first = %+v, want it granted", a)
		}
		if b := admit("b"); b.Granted || b.InUse != 1 || b.Retry != RetryFull {
			t.Errorf("second = %+v, want it refused with a time to retry", b)
		}
		run(t, c, func(b *luascript.Batch) luascript.Pending[struct{}] { return g.Renew(b, a.Slot) })
		for _, e := range []Ending{Throttled, OK} { // the second is a repeat
			run(t, c, func(b *luascript.Batch) luascript.Pending[struct{}] { return g.Settle(b, a.Slot, e) })
		}
		got := run(t, c, func(b *luascript.Batch) luascript.Pending[State] { return g.Peek(b, at) })
		if diff := cmp.Diff(State{Ended: map[Ending]int{Throttled: 1}}, got); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		other := at
		other.Name = "u"
		if got := run(t, c, func(b *luascript.Batch) luascript.Pending[Admission] { return g.Admit(b, other, "x") }); !got.Granted {
			t.Errorf("another target's slot = %+v, want it granted", got)
		}
		if b := admit("b"); !b.Granted {
			t.Errorf("after the settle = %+v, want it granted", b)
		}
	})
}

// A killed worker's slot is back when its lease ends, by the server's own clock.
func TestGate_SlotLapsesWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
		g, at := New(luatest.Space()), target(1)
		admit := func(id string) Admission {
			return run(t, c, func(b *luascript.Batch) luascript.Pending[Admission] { return g.Admit(b, at, id) })
		}
		a := admit("a")
		time.Sleep(Lease - time.Second)
		run(t, c, func(b *luascript.Batch) luascript.Pending[struct{}] { return g.Renew(b, a.Slot) })
		time.Sleep(Lease - time.Second)
		if got := admit("b"); got.Granted {
			t.Errorf("a renewed slot was given away: %+v", got)
		}
		time.Sleep(time.Second)
		if got := admit("b"); !got.Granted || got.InUse != 1 {
			t.Errorf("a lapsed slot was not given away: %+v", got)
		}
	})
}

// In use is never above the cap, a free slot is never refused, a repeat gets its own slot,
// and only a held slot is counted: under any order of admissions, renewals, settles and
// lapses. Renewals come from those who hold a slot, as the gate's contract says.
func TestGate_FollowsItsRule(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		ctx := t.Context()
		rapid.Check(t, func(rt *rapid.T) { checkGate(ctx, rt, c) })
	})
}

func checkGate(ctx context.Context, rt *rapid.T, c redis.UniversalClient) {
	const lease = 100
	g := New(luatest.Space())
	k := g.keys.Target(target(1))
	most := rapid.IntRange(1, 4).Draw(rt, "cap")
	now := int64(luatest.Epoch)
	ends := map[string]int64{} // held slots: when they lapse
	tally := map[string]int{}
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
	call := func(script *luascript.Script, keys []string, args ...any) []int64 {
		var b luascript.Batch
		done := b.Script(script, keys, args...)
		if err := b.Run(ctx, c); err != nil {
			rt.Fatalf("run: %v", err)
		}
		v, err := done.Ints(1)
		if err != nil {
			rt.Fatalf("answer: %v", err)
		}
		return v
	}
	live := func() int {
		n := 0
		for _, end := range ends {
			if end > now {
				n++
			}
		}
		return n
	}
	rt.Repeat(map[string]func(*rapid.T){
		"wait": func(rt *rapid.T) { now += rapid.Int64Range(1, 60).Draw(rt, "ms") },
		"admit": func(rt *rapid.T) {
			id := ids.Draw(rt, "id")
			for range rapid.IntRange(1, 2).Draw(rt, "times") {
				held := ends[id] > now
				free := held || live() < most
				v := call(&g.admit, []string{k.Slots}, now, id, lease, most)
				if granted := v[0] == 1; granted != free {
					rt.Fatalf("admit %s = %v with %d of %d in use (held %v)", id, v, live(), most, held)
				}
				for other, end := range ends { // an admission clears what has lapsed
					if end <= now {
						delete(ends, other)
					}
				}
				if free {
					ends[id] = now + lease
				}
				if v[1] != int64(live()) {
					rt.Fatalf("admit %s says %d in use, the rule says %d", id, v[1], live())
				}
			}
		},
		"renew": func(rt *rapid.T) {
			id := ids.Draw(rt, "id")
			if ends[id] <= now {
				return
			}
			call(&g.renew, []string{k.Slots}, now, lease, id)
			ends[id] = now + lease
		},
		"settle": func(rt *rapid.T) {
			id, ending := ids.Draw(rt, "id"), rapid.SampledFrom([]string{"ok", "throttled", "failed", "abandoned"}).Draw(rt, "ending")
			for range rapid.IntRange(1, 2).Draw(rt, "times") {
				_, held := ends[id] // also one that lapsed and is not cleared away yet
				want := int64(0)
				if held {
					want = 1
					tally[ending]++
					delete(ends, id)
				}
				if v := call(&g.settle, []string{k.Slots, k.Tally}, id, ending); v[0] != want {
					rt.Fatalf("settle %s = %v, want %d", id, v, want)
				}
			}
		},
		"": func(rt *rapid.T) {
			if live() > most {
				rt.Fatalf("%d slots in use of %d", live(), most)
			}
			stored := c.ZRangeByScore(ctx, k.Slots, &redis.ZRangeBy{Min: fmt.Sprintf("(%d", now), Max: "+inf"}).Val()
			if len(stored) != live() {
				rt.Fatalf("in use: %v stored, %d by the rule", stored, live())
			}
			counted := c.HGetAll(ctx, k.Tally).Val()
			for ending, n := range tally {
				if counted[ending] != fmt.Sprint(n) {
					rt.Fatalf("tally is %v, the rule says %v", counted, tally)
				}
			}
		},
	})
}

func BenchmarkAdmitAndSettle(b *testing.B) {
	for _, cluster := range []bool{false, true} {
		name := "valkey"
		if cluster {
			name = "valkey-cluster"
		}
		b.Run(name, func(b *testing.B) {
			c := servers.Dial(b, cluster)
			g, at := New(luatest.Space()), target(10)
			b.ReportAllocs()
			for b.Loop() {
				a := run(b, c, func(batch *luascript.Batch) luascript.Pending[Admission] { return g.Admit(batch, at, "call") })
				if !a.Granted {
					b.Fatalf("admit = %+v", a)
				}
				run(b, c, func(batch *luascript.Batch) luascript.Pending[struct{}] { return g.Settle(batch, a.Slot, OK) })
			}
		})
	}
}
