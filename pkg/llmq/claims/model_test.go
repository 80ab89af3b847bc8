package claims

import (
	"context"
	"fmt"
	"strings"
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
	trying              int64
	result              string
	cancelled           int64
	gen                 int64
	dead                bool
	progress            []int64
	highest             int64            // fence ever given
	fenceOf             map[string]int64 // as each owner was told
}

func (m *model) holds(owner string, fence int64) bool {
	return m.owner == owner && m.fence == fence
}

func (m *model) take(now int64, owner, hash string, gen int64) []int64 {
	answer := func(code, wait int64) []int64 {
		return append([]int64{code, m.fence, m.attempts, m.takeovers, wait, m.cancelled}, m.progress...)
	}
	switch {
	case m.hash != "" && m.hash != hash:
		return answer(-3, 0)
	case m.stands(gen) && m.dead:
		return answer(-6, 0)
	case m.stands(gen):
		return answer(0, 0)
	case gen < m.gen:
		return answer(-5, 0)
	case m.runs(now) && m.owner != owner:
		return answer(-1, m.until-now)
	case m.cancelled == 0 && now >= deadlineOf(gen):
		v := answer(-4, 0)
		if m.state == "running" && m.owner != owner { // told, not kept
			v[2], v[3] = v[2]+m.trying, v[3]+1
		}
		return v
	case m.cancelled == 0 && m.state == "deferred" && m.next > now && gen == m.gen:
		return answer(-2, m.next-now)
	case m.state == "running" && m.owner == owner:
	default:
		if m.state == "running" {
			m.takeovers++
			m.attempts += m.trying
		}
		m.trying = 1
		m.fence++
	}
	if gen > m.gen {
		m.gen, m.attempts, m.takeovers, m.progress = gen, 0, 0, nil
		if m.dead {
			m.dead, m.result = false, ""
		}
	}
	m.state, m.owner, m.hash, m.until = "running", owner, hash, now+testLease
	return answer(1, 0)
}

// stands reports whether the request has ended, for a message of that generation.
func (m *model) stands(gen int64) bool { return m.state == "done" && (!m.dead || gen <= m.gen) }

// runs reports whether an owner's lease runs.
func (m *model) runs(now int64) bool { return m.state == "running" && m.until > now }

func (m *model) renew(now int64, owner string, fence, attempts int64, progress []int64, trying int64) []int64 {
	if m.state != "running" || !m.holds(owner, fence) {
		return []int64{0}
	}
	m.until, m.attempts, m.trying, m.progress = now+testLease, attempts, trying, progress
	return []int64{1 + m.cancelled}
}

func (m *model) giveBack(now int64, owner string, fence, delay, attempts int64, progress []int64) []int64 {
	if m.state == "done" || !m.holds(owner, fence) {
		return []int64{0}
	}
	if m.cancelled == 1 {
		return []int64{2}
	}
	m.state, m.next, m.attempts, m.trying, m.progress = "deferred", now+delay, attempts, 0, progress
	return []int64{1}
}

func (m *model) finish(owner string, fence int64, result string, kind int64) []int64 {
	switch {
	case !m.holds(owner, fence):
		return []int64{0}
	case m.state == "done":
		return []int64{1}
	case m.cancelled == 1 && kind != endCancelled:
		return []int64{2}
	}
	m.state, m.result, m.dead = "done", result, kind == endDead
	return []int64{1}
}

func (m *model) expire(now int64, owner, hash string, gen int64) []int64 {
	switch {
	case m.hash != "" && m.hash != hash:
		return []int64{-3, 0}
	case m.stands(gen) && m.owner == owner:
		return []int64{1, 0}
	case m.stands(gen):
		return []int64{0, 0}
	case gen < m.gen:
		return []int64{-5, 0}
	case m.runs(now) && m.owner != owner:
		return []int64{-1, m.until - now}
	case m.cancelled == 1:
		return []int64{2, 0}
	case now < deadlineOf(gen):
		return []int64{-2, deadlineOf(gen) - now}
	}
	if m.state != "running" || m.owner != owner {
		m.fence++
	}
	m.state, m.owner, m.hash, m.result, m.gen, m.dead = "done", owner, hash, "expired", gen, false
	return []int64{1, 0}
}

func (m *model) cancel(now int64) []int64 {
	known := int64(1)
	switch {
	case m.state == "done" && !m.dead:
		return []int64{m.cancelled, 1}
	case m.runs(now):
		m.cancelled = 1
		return []int64{2, 1}
	case m.state == "":
		known = 0
	}
	m.state, m.owner, m.result, m.cancelled, m.dead = "done", "", "cancelled", 1, false
	m.fence++
	return []int64{1, known}
}

// The model's deadline is near enough to be passed in most runs.
const (
	testLease    = 100
	testDeadline = luatest.Epoch + 2000
)

// deadlineOf is that of a generation's message: each is sent later.
func deadlineOf(gen int64) int64 { return testDeadline + 700*gen }

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
	const lease, deadline, resultLife, keep = testLease, testDeadline, 1_000_000, 10_000_000
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
	generation := func(rt *rapid.T) int64 {
		return max(0, m.gen+rapid.SampledFrom([]int64{0, 0, 0, 0, 1, -1, 2}).Draw(rt, "generation"))
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
			gen := generation(rt)
			same("take", func() []int64 { return m.take(now, o, h, gen) }, func() []int64 {
				v := call(&s.take, []string{k.Claim, k.Result, k.Submission}, now, o, lease, deadlineOf(gen), keep, h, gen)
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
			f, n, p, ahead := fence(o), rapid.Int64Range(0, 5).Draw(rt, "attempts"), drawProgress(rt), rapid.Int64Range(0, 1).Draw(rt, "ahead")
			if m.state == "" {
				return // renewing what was wiped is a case of its own
			}
			same("renew", func() []int64 { return m.renew(now, o, f, n, p, ahead) }, func() []int64 {
				return call(&s.renew, []string{k.Claim}, now, o, f, lease, keep, n, commas(p), ahead)
			})
		},
		"defer": func(rt *rapid.T) {
			o, d, n := owners.Draw(rt, "owner"), rapid.Int64Range(0, 200).Draw(rt, "delay"), rapid.Int64Range(0, 5).Draw(rt, "attempts")
			f, p := fence(o), drawProgress(rt)
			if m.state == "" {
				return // deferring what was wiped is a case of its own
			}
			same("defer", func() []int64 { return m.giveBack(now, o, f, d, n, p) }, func() []int64 {
				return call(&s.giveBack, []string{k.Claim}, now, o, f, d, n, commas(p), keep)
			})
		},
		"finish": func(rt *rapid.T) {
			o := owners.Draw(rt, "owner")
			f, result, says := fence(o), rapid.StringMatching(`[a-z]{4}`).Draw(rt, "result"), rapid.SampledFrom([]int64{endFinal, endCancelled, endDead, endDead}).Draw(rt, "kind")
			if m.state == "" {
				return // finishing what was wiped is a case of its own
			}
			same("finish", func() []int64 { return m.finish(o, f, result, says) }, func() []int64 {
				return call(&s.finish, []string{k.Claim, k.Result, k.Submission}, now, o, f, result, deadline, resultLife, keep, k.Wake, says)
			})
		},
		"expire": func(rt *rapid.T) {
			o, gen := owners.Draw(rt, "owner"), generation(rt)
			same("expire", func() []int64 { return m.expire(now, o, "h", gen) }, func() []int64 {
				return call(&s.expire, []string{k.Claim, k.Result, k.Submission}, now, o, "expired", deadlineOf(gen), resultLife, keep, "h", k.Wake, gen)
			})
		},
		"cancel": func(rt *rapid.T) {
			if rapid.IntRange(0, 3).Draw(rt, "rarely") > 0 {
				return
			}
			first := m.cancel(now)
			again := m.cancel(now)
			for _, want := range [][]int64{first, again} {
				if got := call(&s.cancel, []string{k.Claim, k.Result, k.Submission}, now, "cancelled", resultLife, keep, k.Wake, s.keys.Stop("")); fmt.Sprint(got) != fmt.Sprint(want) {
					rt.Fatalf("cancel = %v, the rule says %v", got, want)
				}
			}
		},
		"": func(rt *rapid.T) {
			got := c.HMGet(ctx, k.Claim, "state", "fence", "owner", "hash", "gen").Val()
			want := []any{m.state, fmt.Sprint(m.fence), m.owner, m.hash, fmt.Sprint(m.gen)}
			if m.gen == 0 {
				want[4] = nil
			}
			if m.state == "" {
				want = []any{nil, nil, nil, nil, nil}
			} else if m.hash == "" {
				want[3] = nil // it was cancelled before its first take
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

func drawProgress(rt *rapid.T) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(0, 900), 0, 6).Draw(rt, "progress")
}

func commas(p []int64) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(p), "[]"), " ", ",") }

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
				take := b.Script(&s.take, []string{k.Claim, k.Result, k.Submission}, now, owner, 100, now+1000, 10_000_000, "h", 0)
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
					b.Script(&s.giveBack, []string{k.Claim}, now, owner, fence, 300, takes, "", 5000)
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
