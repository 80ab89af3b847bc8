package claims

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// model is the claim's rule, told once more in Go.
type model struct {
	state               string // "", running, deferred, done
	fence, until, next  int64
	owner, hash         string
	attempts, takeovers int64
	result              string
	highest             int64            // fence ever given
	fenceOf             map[string]int64 // as each owner was told
}

func (m *model) holds(owner string, fence int64) bool {
	return m.owner == owner && m.fence == fence
}

func (m *model) take(now int64, owner, hash string, lease int64) []int64 {
	answer := func(code, wait int64) []int64 { return []int64{code, m.fence, m.attempts, m.takeovers, wait} }
	switch {
	case m.hash != "" && m.hash != hash:
		return answer(-3, 0)
	case m.state == "done":
		return answer(0, 0)
	case m.state == "running" && m.owner != owner && m.until > now:
		return answer(-1, m.until-now)
	case m.state == "deferred" && m.next > now:
		return answer(-2, m.next-now)
	case m.state == "running" && m.owner == owner:
	default:
		if m.state == "running" {
			m.takeovers++
		}
		m.fence++
	}
	m.state, m.owner, m.hash, m.until = "running", owner, hash, now+lease
	return answer(1, 0)
}

func (m *model) renew(now int64, owner string, fence, lease int64) []int64 {
	if m.state != "running" || !m.holds(owner, fence) {
		return []int64{0}
	}
	m.until = now + lease
	return []int64{1}
}

func (m *model) giveBack(now int64, owner string, fence, delay, attempts int64) []int64 {
	if m.state == "done" || !m.holds(owner, fence) {
		return []int64{0}
	}
	m.state, m.next, m.attempts = "deferred", now+delay, attempts
	return []int64{1}
}

func (m *model) finish(owner string, fence int64, result string) []int64 {
	if !m.holds(owner, fence) {
		return []int64{0}
	}
	if m.state != "done" {
		m.state, m.result = "done", result
	}
	return []int64{1}
}

// A claim follows its rule under any order of takes, renewals, deferrals and results by
// any owner, in time and late, once and repeated.
func TestClaim_FollowsItsRule(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		ctx := t.Context()
		rapid.Check(t, func(rt *rapid.T) { checkClaim(ctx, rt, c) })
	})
}

func checkClaim(ctx context.Context, rt *rapid.T, c redis.UniversalClient) {
	const lease, deadline, resultLife, keep = 100, luatest.Epoch + 1_000_000, 1_000_000, 10_000_000
	s := New(luatest.Space())
	k := s.keys.Call("t", llmq.NewRID("t", "r"))
	now := int64(luatest.Epoch)
	m := &model{fenceOf: map[string]int64{}}
	owners := rapid.SampledFrom([]string{"A", "B", "C"})
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
	// same runs a call once or, as after a lost answer, twice, and compares each answer.
	same := func(what string, want func() []int64, got func() []int64) {
		for range rapid.IntRange(1, 2).Draw(rt, "times") {
			if w, g := fmt.Sprint(want()), fmt.Sprint(got()); w != g {
				rt.Fatalf("%s = %s, the rule says %s", what, g, w)
			}
		}
	}
	fence := func(owner string) int64 {
		if rapid.IntRange(0, 9).Draw(rt, "stray") == 0 {
			return rapid.Int64Range(0, 4).Draw(rt, "fence")
		}
		return m.fenceOf[owner]
	}
	rt.Repeat(map[string]func(*rapid.T){
		"wait": func(rt *rapid.T) { now += rapid.Int64Range(1, 150).Draw(rt, "ms") },
		"take": func(rt *rapid.T) {
			o, h := owners.Draw(rt, "owner"), rapid.SampledFrom([]string{"h", "h", "h", "h2"}).Draw(rt, "hash")
			same("take", func() []int64 { return m.take(now, o, h, lease) }, func() []int64 {
				v := call(&s.take, []string{k.Claim}, now, o, lease, deadline, keep, h)
				if v[0] == 1 {
					if v[1] < m.highest || (v[1] == m.highest && m.fenceOf[o] != v[1]) {
						rt.Fatalf("fence %d after %d: it was given twice or fell", v[1], m.highest)
					}
					m.highest, m.fenceOf[o] = v[1], v[1]
				}
				return v
			})
		},
		"renew": func(rt *rapid.T) {
			o := owners.Draw(rt, "owner")
			f := fence(o)
			if m.state == "" {
				return // renewing what was wiped is a case of its own
			}
			same("renew", func() []int64 { return m.renew(now, o, f, lease) }, func() []int64 {
				return call(&s.renew, []string{k.Claim}, now, o, f, lease, keep)
			})
		},
		"defer": func(rt *rapid.T) {
			o, d, n := owners.Draw(rt, "owner"), rapid.Int64Range(0, 200).Draw(rt, "delay"), rapid.Int64Range(0, 5).Draw(rt, "attempts")
			f := fence(o)
			same("defer", func() []int64 { return m.giveBack(now, o, f, d, n) }, func() []int64 {
				return call(&s.giveBack, []string{k.Claim}, now, o, f, d, n)
			})
		},
		"finish": func(rt *rapid.T) {
			o := owners.Draw(rt, "owner")
			f, result := fence(o), rapid.StringMatching(`[a-z]{4}`).Draw(rt, "result")
			if m.state == "" {
				return // finishing what was wiped is a case of its own
			}
			same("finish", func() []int64 { return m.finish(o, f, result) }, func() []int64 {
				return call(&s.finish, []string{k.Claim, k.Result}, now, o, f, result, deadline, resultLife, keep, k.Wake)
			})
		},
		"": func(rt *rapid.T) {
			got := c.HMGet(ctx, k.Claim, "state", "fence", "owner", "hash").Val()
			want := []any{m.state, fmt.Sprint(m.fence), m.owner, m.hash}
			if m.state == "" {
				want = []any{nil, nil, nil, nil}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Fatalf("the claim is %v, the rule says %v", got, want)
			}
			if stored := c.Get(ctx, k.Result).Val(); stored != m.result {
				rt.Fatalf("the result is %q, the rule says %q", stored, m.result)
			}
		},
	})
}

// Nobody is locked out: whatever happened before, a claim without a result can be taken
// by anyone once its lease or deferral is over.
func TestClaim_IsAlwaysTakenInTheEnd(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		ctx := t.Context()
		rapid.Check(t, func(rt *rapid.T) {
			s := New(luatest.Space())
			k := s.keys.Call("t", llmq.NewRID("t", "r"))
			now := int64(luatest.Epoch)
			var takes, fence int64
			for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
				owner := rapid.StringMatching(`[a-z]{8}`).Draw(rt, "owner")
				var b luascript.Batch
				take := b.Script(&s.take, []string{k.Claim}, now, owner, 100, now+1000, 10_000_000, "h")
				if err := b.Run(ctx, c); err != nil {
					rt.Fatalf("run: %v", err)
				}
				v, err := take.Ints(5)
				if err != nil || v[0] != 1 || v[1] <= fence {
					rt.Fatalf("take %d = %v, %v; want it taken with a higher fence", takes, v, err)
				}
				takes, fence = takes+1, v[1]
				if rapid.Bool().Draw(rt, "defers") {
					var b luascript.Batch
					b.Script(&s.giveBack, []string{k.Claim}, now, owner, fence, 300, takes)
					if err := b.Run(ctx, c); err != nil {
						rt.Fatalf("run: %v", err)
					}
					now += 300
					continue
				}
				now += 100
			}
		})
	})
}
