package keyrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func bench() luatest.Bench {
	m := New(nil, luatest.Space())
	return luatest.Bench{
		Scripts: map[string]luatest.Runnable{"take": {Script: m.take, Keys: []string{"rate"}, Timed: true}},
		Keys:    map[string]string{"rate": m.space.Rate("0123456789")},
	}
}

func take(at int64, args, reply string) luatest.Step {
	return luatest.Step{Script: "take", At: at, Args: args, Reply: reply}
}

// The arguments are limit, window in ms, call. Nothing begins at 0: miniredis writes round scores as 2e+12, which its own Lua
// does not read.
var cases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name:  "counts, and says how many are left",
		Calls: []luatest.Step{take(1, "2 1000 a", "1 1 0 1000"), take(11, "2 1000 b", "1 0 0 1000")},
		State: map[string]string{"rate": "a=@1 b=@11 expires=@1011"},
	},
	{
		Name: "full until the oldest leaves, to the millisecond",
		Calls: []luatest.Step{
			take(1, "2 1000 a", "1 1 0 1000"), take(11, "2 1000 b", "1 0 0 1000"), take(21, "2 1000 c", "0 0 980 990"),
			take(1000, "2 1000 c", "0 0 1 11"), take(1001, "2 1000 c", "1 0 0 1000"), take(1001, "2 1000 d", "0 0 10 1000"),
		},
		State: map[string]string{"rate": "b=@11 c=@1001 expires=@2001"},
	},
	{
		Name:  "a repeat after a lost answer counts once",
		Calls: []luatest.Step{take(1, "1 1000 a", "1 0 0 1000"), take(6, "1 1000 a", "1 0 0 1000"), take(6, "1 1000 b", "0 0 995 995")},
		State: map[string]string{"rate": "a=@1 expires=@1001"},
	},
	{
		Name: "a lowered limit waits for as many as are too many",
		Calls: []luatest.Step{
			take(1, "3 1000 a", "1 2 0 1000"), take(11, "3 1000 b", "1 1 0 1000"), take(21, "3 1000 c", "1 0 0 1000"), take(31, "1 1000 d", "0 0 990 990"),
		},
	},
	{
		Name:  "a refused call leaves nothing",
		Calls: []luatest.Step{take(1, "1 1000 a", "1 0 0 1000"), take(501, "1 1000 b", "0 0 500 500")},
		State: map[string]string{"rate": "a=@1 expires=@1001"},
	},
}

func TestScripts_Cases(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, cases)
}

func TestScripts_HeadersBodiesAndCallsAgree(t *testing.T) {
	t.Parallel()
	want := luatest.ReadHeader(t, "take", takeText)
	c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
	var got luatest.Header
	c.AddHook(&luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
		if keys, args, ok := luatest.IsScript(cmds[0]); ok {
			got = luatest.Header{Keys: len(keys), Args: len(args)}
		}
		return nil
	}})
	if _, err := New(c, luatest.Space()).Take(t.Context(), "0123456789", 1, "a"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header and call (-header +call):\n%s", diff)
	}
}

func TestScripts_Luacheck(t *testing.T) {
	t.Parallel()
	luatest.Luacheck(t, "lua")
}

// A15: four doors count one key's calls together, on every store; another key's are its own.
func TestTake_HoldsOverFourDoors(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		space := luatest.Space()
		var in, out atomic.Int32
		var wg sync.WaitGroup
		for door := range 4 {
			m := New(c, space)
			m.within = time.Minute // a busy machine is not what is tested
			for i := range 50 {
				wg.Go(func() {
					r, err := m.Take(t.Context(), "0123456789", 30, fmt.Sprintf("%d-%d", door, i))
					switch {
					case err != nil:
						t.Error(err)
					case r.RetryAfter == 0:
						in.Add(1)
					case r.RetryAfter > time.Minute || r.Left != 0 || r.Reset < r.RetryAfter:
						t.Errorf("refused with %+v", r)
					default:
						out.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if in.Load() != 30 || out.Load() != 170 {
			t.Errorf("%d calls were let in and %d refused, want 30 and 170", in.Load(), out.Load())
		}
		if r, err := New(c, space).Take(t.Context(), "9876543210", 30, "a"); err != nil || r.Left != 29 {
			t.Errorf("another key: %+v, %v", r, err)
		}
	})
}

// A15: in no minute are there more calls than the rate, a refused caller who comes back when it was told is let in,
// and one who keeps an even pace is never refused.
func TestTake_NoMinuteHasMoreThanTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New(luatest.Pipe(t, llmqtest.NewMiniredis(t)), luatest.Space())
		const limit = 7
		rnd := rand.New(rand.NewPCG(1, 2))
		var at []time.Time
		n := 0
		call := func(kid string) auth.Rate {
			n++
			r, err := m.Take(t.Context(), kid, limit, fmt.Sprint(n))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for range 200 {
			r := call("0123456789")
			if r.RetryAfter > 0 {
				time.Sleep(r.RetryAfter)
				if again := call("0123456789"); again.RetryAfter > 0 {
					t.Fatalf("refused again, after the %v that it was told", r.RetryAfter)
				}
			}
			at = append(at, time.Now())
			time.Sleep(time.Duration(rnd.IntN(15_000)) * time.Millisecond)
		}
		for i := limit; i < len(at); i++ {
			if d := at[i].Sub(at[i-limit]); d < time.Minute {
				t.Fatalf("%d calls in %v", limit+1, d)
			}
		}
		for range 50 {
			if r := call("paced00000"); r.RetryAfter > 0 {
				t.Fatalf("an even pace was refused: %+v", r)
			}
			time.Sleep(time.Minute/limit + time.Millisecond)
		}
	})
}

func TestTake_StoreThatIsLostIsTold(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("lost") }})
	t.Cleanup(func() { _ = c.Close() }) // it never connected
	if _, err := New(c, luatest.Space()).Take(t.Context(), "0123456789", 1, "a"); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("got %v", err)
	}
}
