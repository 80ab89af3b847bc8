package luatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// Epoch is the time 0 of cases, in ms: 13 digits as real times have, and in the
// future (2033), so that a real server does not expire at once what a script dates.
const Epoch = 2_000_000_000_000

// Case is a script's behaviour as data: a state, calls with their replies, the state
// after them.
type Case struct {
	Name  string
	Given []string          // plain commands
	Calls []Step            // in order
	State map[string]string // by key's name; "" is a key that must not be there
}

// Step is one call of a script.
type Step struct {
	Script string
	At     int64  // now_ms since [Epoch]; a script without the argument ignores it
	Args   string // the other arguments, by spaces
	Reply  string // integers, by spaces
}

// Bench is what cases run with. In commands and arguments, $name stands for a key or an
// argument of that name and @n for n ms after [Epoch]; in states, times are written as the
// latter.
type Bench struct {
	Scripts map[string]Runnable
	Keys    map[string]string
	Args    map[string]string // arguments that hold spaces, or nothing
}

// Runnable is a script and the keys it is given.
type Runnable struct {
	Script luascript.Script
	Keys   []string // names in Bench.Keys
	Timed  bool     // its first argument is now_ms
}

// Run runs cases on every store, each with keys of its own.
func (s *Servers) Run(t *testing.T, bench func() Bench, cases []Case) {
	t.Helper()
	// miniredis keeps how long a key has still to live, so its clock must stand still for
	// an expiry to be read back as it was set.
	still := func(t testing.TB) *miniredis.Miniredis {
		m := llmqtest.NewMiniredis(t)
		m.SetTime(time.UnixMilli(Epoch))
		return m
	}
	s.each(t, still, func(t *testing.T, c redis.UniversalClient) {
		for _, tc := range cases {
			t.Run(tc.Name, func(t *testing.T) {
				t.Parallel()
				bench().run(t, c, tc)
			})
		}
	})
}

func (b Bench) run(t *testing.T, c redis.UniversalClient, tc Case) {
	t.Helper()
	for _, line := range tc.Given {
		if err := c.Do(t.Context(), b.words(line)...).Err(); err != nil {
			t.Fatalf("given %q: %v", line, err)
		}
	}
	for i, s := range tc.Calls {
		if got := b.call(t, c, s); got != s.Reply {
			t.Errorf("call %d: %s %s at %d = %q, want %q", i+1, s.Script, s.Args, s.At, got, s.Reply)
		}
	}
	got := map[string]string{}
	for name := range tc.State {
		got[name] = state(t.Context(), c, b.Keys[name])
	}
	if diff := cmp.Diff(tc.State, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func (b Bench) call(t *testing.T, c redis.UniversalClient, s Step) string {
	t.Helper()
	r, ok := b.Scripts[s.Script]
	if !ok {
		t.Fatalf("no script %q", s.Script)
	}
	var names []string
	for _, k := range r.Keys {
		names = append(names, b.Keys[k])
	}
	var args []any
	if r.Timed {
		args = append(args, Epoch+s.At)
	}
	args = append(args, b.words(s.Args)...)
	var batch luascript.Batch
	call := batch.Script(&r.Script, names, args...)
	if err := batch.Run(t.Context(), c); err != nil {
		t.Fatalf("run %s: %v", s.Script, err)
	}
	v, err := call.Ints(0)
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.Trim(fmt.Sprint(relative(v)), "[]")
}

// relative writes times as ms since Epoch.
func relative(v []int64) []int64 {
	out := slices.Clone(v)
	for i, n := range out {
		if n >= Epoch {
			out[i] = n - Epoch
		}
	}
	return out
}

func (b Bench) words(line string) []any {
	var out []any
	for _, w := range strings.Fields(line) {
		if name, ok := strings.CutPrefix(w, "$"); ok {
			value, isKey := b.Keys[name]
			if !isKey {
				if value, ok = b.Args[name]; !ok {
					panic("luatest: no key and no argument: " + name)
				}
			}
			w = value
		} else if n, ok := strings.CutPrefix(w, "@"); ok {
			ms, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				panic("luatest: no number: " + w)
			}
			w = strconv.FormatInt(Epoch+ms, 10)
		}
		out = append(out, w)
	}
	return out
}

// state writes a key's value on one line, with its expiry where it has one.
func state(ctx context.Context, c redis.UniversalClient, key string) string {
	var parts []string
	switch kind := c.Type(ctx, key).Val(); kind {
	case "none":
		return ""
	case "string":
		parts = append(parts, since(c.Get(ctx, key).Val()))
	case "hash":
		m := c.HGetAll(ctx, key).Val()
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, k+"="+since(m[k]))
		}
	case "zset":
		for _, z := range c.ZRangeWithScores(ctx, key, 0, -1).Val() {
			parts = append(parts, fmt.Sprintf("%v=%s", z.Member, since(strconv.FormatFloat(z.Score, 'f', -1, 64))))
		}
	case "stream":
		for _, e := range c.XRange(ctx, key, "-", "+").Val() {
			parts = append(parts, fmt.Sprintf("%s=%v", e.ID, slices.Collect(maps.Values(e.Values))))
		}
	default:
		return "a " + kind
	}
	if at := c.Do(ctx, "PEXPIRETIME", key).Val(); at != int64(-1) {
		parts = append(parts, "expires="+since(fmt.Sprint(at)))
	}
	return strings.Join(parts, " ")
}

func since(s string) string {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= Epoch {
		return "@" + strconv.FormatInt(n-Epoch, 10)
	}
	return s
}
