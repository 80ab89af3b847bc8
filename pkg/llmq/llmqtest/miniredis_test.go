package llmqtest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// pipeClient speaks to m through Dial. The address is an IP so that nothing asks DNS.
func pipeClient(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:1",
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

func TestHookLua_EvalshaNoscriptEvalEvalsha(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	ctx := t.Context()
	script := redis.NewScript("#!lua\n-- adds\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])\n")

	if err := script.EvalSha(ctx, c, []string{"n"}, 2).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Fatalf("first EVALSHA: got %v, want NOSCRIPT", err)
	}
	if got, err := script.Eval(ctx, c, []string{"n"}, 2).Int(); err != nil || got != 2 {
		t.Fatalf("EVAL = %d, %v; want 2", got, err)
	}
	if got, err := script.EvalSha(ctx, c, []string{"n"}, 3).Int(); err != nil || got != 5 {
		t.Fatalf("second EVALSHA = %d, %v; want 5", got, err)
	}
}

func TestHookLua_EvalshaInPipelineAfterRun(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	script := redis.NewScript("#!lua\nreturn ARGV[1]")
	if err := script.Run(t.Context(), c, nil, "x").Err(); err != nil {
		t.Fatalf("run: %v", err)
	}
	var a, b *redis.Cmd
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		a = script.EvalSha(t.Context(), p, nil, "one")
		b = script.EvalSha(t.Context(), p, nil, "two")
		return nil
	})
	if err != nil {
		t.Fatalf("pipeline: %v", err)
	}
	if diff := cmp.Diff([]any{"one", "two"}, []any{a.Val(), b.Val()}); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
}

func TestHookLua_InMultiExec(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	script := redis.NewScript("#!lua\nreturn redis.call('INCR', KEYS[1])")
	var first, second *redis.Cmd
	_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		first = script.Eval(t.Context(), p, []string{"n"})
		second = script.EvalSha(t.Context(), p, []string{"n"})
		return nil
	})
	if err != nil {
		t.Fatalf("transaction: %v", err)
	}
	if diff := cmp.Diff([]any{int64(1), int64(2)}, []any{first.Val(), second.Val()}); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
}

func TestHookLua_LoadAndExistsUseTheOriginalHash(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	ctx := t.Context()
	script, other := redis.NewScript("#!lua\nreturn 7"), redis.NewScript("return 8")
	for _, s := range []*redis.Script{script, other} {
		want := s.Hash()
		if got, err := s.Load(ctx, c).Result(); err != nil || got != want {
			t.Fatalf("SCRIPT LOAD = %q, %v; want %q", got, err, want)
		}
	}
	exists, err := c.ScriptExists(ctx, script.Hash(), strings.Repeat("0", 40), other.Hash()).Result()
	if err != nil {
		t.Fatalf("SCRIPT EXISTS: %v", err)
	}
	if diff := cmp.Diff([]bool{true, false, true}, exists); diff != "" {
		t.Errorf("SCRIPT EXISTS (-want +got):\n%s", diff)
	}
	if got, err := script.EvalSha(ctx, c, nil).Int(); err != nil || got != 7 {
		t.Errorf("EVALSHA = %d, %v; want 7", got, err)
	}
}

func TestHookLua_FlushForgets(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	script := redis.NewScript("#!lua\nreturn 7")
	if err := script.Load(t.Context(), c).Err(); err != nil {
		t.Fatalf("SCRIPT LOAD: %v", err)
	}
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatalf("SCRIPT FLUSH: %v", err)
	}
	if err := script.EvalSha(t.Context(), c, nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("EVALSHA after a flush: got %v, want NOSCRIPT", err)
	}
}

func TestHookLua_ErrorKeepsItsLine(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	err := c.Eval(t.Context(), "#!lua\n\nerror('boom')\n", nil).Err()
	if err == nil || !strings.Contains(err.Error(), ":3: boom") {
		t.Errorf("got %v, want an error of line 3", err)
	}
}

// The wanted errors are what Valkey 8.0.1 answered to the same texts.
func TestHookLua_RefusesWhatValkeyRefuses(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	for _, tc := range []struct{ name, text, want string }{
		{"no newline", "#!lua", "ERR Invalid script shebang"},
		{"engine", "#!foo\nreturn 1", "ERR Unexpected engine in script shebang: #!foo"},
		{"engine in capitals", "#!LUA\nreturn 1", "ERR Unexpected engine in script shebang: #!LUA"},
		{"space before the engine", "#! lua\nreturn 1", "ERR Unexpected engine in script shebang: #!"},
		{"option", "#!lua name=x\nreturn 1", "ERR Unknown lua shebang option: name=x"},
		{"flag", "#!lua flags=zz\nreturn 1", "ERR Unexpected flag in script shebang: zz"},
		{"empty flag", "#!lua flags=,\nreturn 1", "ERR Unexpected flag in script shebang: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for name, err := range map[string]error{
				"EVAL":        c.Eval(t.Context(), tc.text, nil).Err(),
				"SCRIPT LOAD": c.ScriptLoad(t.Context(), tc.text).Err(),
			} {
				if err == nil || err.Error() != tc.want {
					t.Errorf("%s: got %v, want %q", name, err, tc.want)
				}
			}
		})
	}
}

func TestHookLua_NoWritesFlagHolds(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	ctx := t.Context()
	writes := redis.NewScript("#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'x')")
	err := writes.Run(ctx, c, []string{"k"}).Err()
	if err == nil || !strings.Contains(err.Error(), "Write commands are not allowed") {
		t.Errorf("write under no-writes: got %v", err)
	}
	reads := redis.NewScript("#!lua flags=no-writes\nreturn redis.call('EXISTS', KEYS[1])")
	for range 2 { // by EVAL_RO, then by EVALSHA_RO
		if got, err := reads.RunRO(ctx, c, []string{"k"}).Int(); err != nil || got != 0 {
			t.Errorf("read-only run = %d, %v; want 0 and no key written", got, err)
		}
	}
	plain := redis.NewScript("#!lua\nreturn 1")
	err = plain.EvalRO(ctx, c, nil).Err()
	if err == nil || !strings.Contains(err.Error(), "*_ro command") {
		t.Errorf("EVAL_RO of a script without no-writes: got %v", err)
	}
}

func TestHookLua_LeavesOtherScriptsAlone(t *testing.T) {
	t.Parallel()
	c := pipeClient(t, llmqtest.NewMiniredis(t))
	script := redis.NewScript("return ARGV[1]")
	for range 2 {
		if got, err := script.Run(t.Context(), c, nil, "#!lua").Text(); err != nil || got != "#!lua" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestHookLua_ManyClients(t *testing.T) {
	t.Parallel()
	m := llmqtest.NewMiniredis(t)
	c := pipeClient(t, m)
	script := redis.NewScript("#!lua\nreturn redis.call('INCR', KEYS[1])")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if err := script.Run(t.Context(), c, []string{"n"}).Err(); err != nil {
					t.Errorf("run: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got, err := c.Get(t.Context(), "n").Int(); err != nil || got != 200 {
		t.Errorf("n = %d, %v; want 200", got, err)
	}
}

func TestHookLua_PanicsBeforeStart(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("want a panic: the hook would be lost")
		}
	}()
	llmqtest.HookLua(miniredis.NewMiniRedis())
}

func TestNewMiniredis_TTLsFollowTheBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := pipeClient(t, llmqtest.NewMiniredis(t))
		if err := c.Set(t.Context(), "k", "v", time.Minute).Err(); err != nil {
			t.Fatalf("SET: %v", err)
		}
		time.Sleep(59 * time.Second) // bubble time
		if got, err := c.PTTL(t.Context(), "k").Result(); err != nil || got != time.Second {
			t.Errorf("PTTL = %v, %v; want 1s", got, err)
		}
		time.Sleep(time.Second)
		if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET after the TTL: got %v, want redis.Nil", err)
		}
	})
}

// A ClusterClient needs CLUSTER SLOTS and COMMAND; miniredis has both, as one node with all slots.
func TestStartMiniredis_ServesAClusterClient(t *testing.T) {
	t.Parallel()
	m := llmqtest.StartMiniredis(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()}, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	script := redis.NewScript("#!lua\nreturn redis.call('INCR', KEYS[1])")
	for want := 1; want <= 2; want++ {
		if got, err := script.Run(t.Context(), c, []string{"{a}:n"}).Int(); err != nil || got != want {
			t.Fatalf("run = %d, %v; want %d", got, err, want)
		}
	}
	var counts []*redis.IntCmd
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, key := range []string{"{a}:n", "{b}:n", "{c}:n"} {
			counts = append(counts, p.Incr(t.Context(), key))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("pipeline over slots: %v", err)
	}
	if counts[0].Val() != 3 || counts[1].Val() != 1 || counts[2].Val() != 1 {
		t.Errorf("counts = %v", counts)
	}
	sub := c.Subscribe(t.Context(), "wake")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatalf("SUBSCRIBE: %v", err)
	}
	if got, err := c.Publish(t.Context(), "wake", "x").Result(); err != nil || got != 1 {
		t.Errorf("PUBLISH = %d, %v; want 1 receiver", got, err)
	}
}
