package luascript_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// tagged makes a script whose text no other test has sent, since servers remember.
func tagged(t *testing.T, body string) luascript.Script {
	t.Helper()
	return luascript.New("probe", "#!lua\n-- "+string(llmq.NewRID(t.Name(), llmq.NewID()))+"\n"+body+"\n")
}

func key(t *testing.T, name string) string {
	t.Helper()
	return "llmq:t:" + luatest.Space().Call("t", llmq.NewRID(t.Name(), name)).Claim
}

func TestBatch_UnknownScriptsAreSentAgainAndKnownOnesAreNot(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		trips := &luatest.Trips{}
		known := tagged(t, "return { redis.call('INCR', KEYS[1]) }")
		unknown := tagged(t, "return { redis.call('INCRBY', KEYS[1], ARGV[1]) }")
		var first luascript.Batch
		warm := first.Script(&known, []string{key(t, "warm")})
		if err := first.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		if v, err := warm.Ints(1); err != nil || v[0] != 1 {
			t.Fatalf("warm = %v, %v; want 1", v, err)
		}
		c.AddHook(trips)

		k := key(t, "n")
		var b luascript.Batch
		plain := b.Command("SET", k, 10)
		a := b.Script(&known, []string{k})
		z := b.Script(&unknown, []string{k}, 5)
		if err := b.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		var got []any
		text, ok, err := plain.Text()
		got = append(got, text, ok, err)
		for _, call := range []*luascript.Call{a, z} {
			v, err := call.Ints(1)
			got = append(got, v[0], err)
		}
		if diff := cmp.Diff([]any{"OK", true, nil, int64(11), nil, int64(16), nil}, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([][]string{{"set", "evalsha", "evalsha"}, {"eval"}}, trips.Seen()); diff != "" {
			t.Errorf("round trips (-want +got):\n%s", diff)
		}

		var again luascript.Batch
		again.Script(&known, []string{k})
		again.Script(&unknown, []string{k}, 1)
		if err := again.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		if diff := cmp.Diff([][]string{{"evalsha", "evalsha"}}, trips.Seen()); diff != "" {
			t.Errorf("round trips once known (-want +got):\n%s", diff)
		}
	})
}

func TestBatch_OneFailedEffectLeavesTheOthers(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		bad, good := tagged(t, "return redis.call('HGET', KEYS[1], 'x')"), tagged(t, "return { 7 }")
		k := key(t, "string")
		var b luascript.Batch
		b.Command("SET", k, "v")
		failed, fine := b.Script(&bad, []string{k}), b.Script(&good, []string{k})
		if err := b.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v; a server's answer is no failure of the transport", err)
		}
		_, err := failed.Ints(1)
		if err == nil || !errors.Is(err, llmq.CodeInternal) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("wrong type = %v, want internal_error with the server's words", err)
		}
		if v, err := fine.Ints(1); err != nil || v[0] != 7 {
			t.Errorf("its neighbour = %v, %v; want 7", v, err)
		}
	})
}

func TestBatch_LostTransportIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"broken off", io.EOF},
		{"refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}},
		{"deadline", context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
			c.AddHook(&luatest.Trips{After: func(context.Context, []redis.Cmder) error { return tc.err }})
			s := tagged(t, "return { 1 }")
			var b luascript.Batch
			b.Script(&s, nil)
			err := b.Run(t.Context(), c)
			if !errors.Is(err, llmq.CodeQueueUnavailable) || !errors.Is(err, tc.err) {
				t.Errorf("run = %v, want queue_unavailable because of %v", err, tc.err)
			}
		})
	}
}

// What a server answers while it can't serve is no fault of a script's.
func TestCall_AnswersOfAServerThatCannotServeAreUnavailable(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]llmq.Code{
		"LOADING the server is loading the dataset in memory":          llmq.CodeQueueUnavailable,
		"CLUSTERDOWN The cluster is down":                              llmq.CodeQueueUnavailable,
		"MASTERDOWN Link with MASTER is down":                          llmq.CodeQueueUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":      llmq.CodeQueueUnavailable,
		"READONLY You can't write against a read only replica.":        llmq.CodeQueueUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":      llmq.CodeQueueUnavailable,
		"BUSY the server is busy running a script.":                    llmq.CodeQueueUnavailable,
		"MISCONF the server is configured to save RDB snapshots":       llmq.CodeQueueUnavailable,
		"ERR max number of clients reached":                            llmq.CodeQueueUnavailable,
		"NOPERM this user has no permissions to run the 'get' command": llmq.CodeInternal,
		"WRONGTYPE Operation against a key of another kind":            llmq.CodeInternal,
		"ERR user_script:3: boom":                                      llmq.CodeInternal,
	} {
		t.Run(answer[:strings.IndexByte(answer, ' ')], func(t *testing.T) {
			t.Parallel()
			m := llmqtest.NewMiniredis(t)
			c := luatest.Pipe(t, m)
			if err := c.Ping(t.Context()).Err(); err != nil { // connected before the server turns bad
				t.Fatalf("ping: %v", err)
			}
			m.SetError(answer)
			var b luascript.Batch
			call := b.Command("GET", "k")
			err := b.Run(t.Context(), c)
			if err == nil {
				_, _, err = call.Text()
			}
			if got := llmq.AsError(err).Code; got != want {
				t.Errorf("code = %v (%v), want %v", got, err, want)
			}
		})
	}
}

func TestCall_AnswersOfAnotherShapeAreErrors(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		short, text := tagged(t, "return { 1 }"), tagged(t, "return 'x'")
		k := key(t, "k")
		var b luascript.Batch
		few, word, none := b.Script(&short, []string{k}), b.Script(&text, []string{k}), b.Command("GET", k)
		empty, set := b.Command("HGETALL", k), b.Command("HSET", k+"h", "a", 1, "b", 2)
		filled := b.Command("HGETALL", k+"h")
		if err := b.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		if v, err := few.Ints(2); err == nil {
			t.Errorf("one integer where two are due = %v, want an error", v)
		}
		if v, err := word.Ints(1); err == nil {
			t.Errorf("a text where integers are due = %v, want an error", v)
		}
		if s, ok, err := none.Text(); s != "" || ok || err != nil {
			t.Errorf("no value = %q, %v, %v; want none and no error", s, ok, err)
		}
		if m, err := empty.Map(); err != nil || len(m) != 0 {
			t.Errorf("no hash = %v, %v; want an empty map", m, err)
		}
		if n, err := set.Int(); err != nil || n != 2 {
			t.Errorf("HSET = %d, %v; want 2", n, err)
		}
		m, err := filled.Map()
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, maps.Clone(m)); diff != "" || err != nil {
			t.Errorf("hash: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestNew_RefusesATextThatValkeyWouldNotGuard(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "return 1", "#!LUA\nreturn 1"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%q) did not panic", text)
				}
			}()
			luascript.New("x", text)
		}()
	}
}

// In cluster mode a script may not touch a key of another slot behind the declared one.
func TestScript_UndeclaredKeyOfAnotherSlotIsRefusedInClusterMode(t *testing.T) {
	t.Parallel()
	c := servers.Dial(t, true)
	s := tagged(t, "return { redis.call('INCR', '{another}:slot') }")
	var b luascript.Batch
	call := b.Script(&s, []string{key(t, "k")})
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	if _, err := call.Ints(1); err == nil {
		t.Error("the script wrote to another slot")
	}
}
