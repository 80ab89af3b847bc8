package capacity

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// lawScript is the least script around the law: one decision on a hash.
const lawScript = `
local fields = redis.call('HMGET', KEYS[1], unpack(law.FIELDS))
local now = tonumber(ARGV[1])
local s = law.load(now, ARGV[2], fields)
local out
if ARGV[3] == 'ask' then
  local why, wait = law.gate(s, now, ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
  local stamp = 0
  if why == 0 then stamp = law.started(s, ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6]) + 1) end
  out = { why, wait, stamp }
elseif ARGV[3] == 'facts' then
  return law.facts(s, now)
else
  law.ended(s, now, tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]))
  out = { 0, 0, 0 }
end
local changed = law.dump(s)
if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
return out
`

func newLawScript() luascript.Script {
	return luascript.New("law", "#!lua\n"+LawText()+lawScript)
}

// decisions plays a target of 25 slots for a while, from one seed, and gives every answer
// of the law in one number, and what it learned.
func decisions(t *testing.T, c redis.UniversalClient, key string) (string, []int64) {
	t.Helper()
	script, config := newLawScript(), DefaultLaw()
	config.MaxTokens = 400_000
	call := func(want int, args ...any) []int64 {
		var b luascript.Batch
		answer := b.Script(&script, []string{key}, args...)
		if err := b.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		v, err := answer.Ints(want)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	type flight struct{ ends, stamp, tokens int64 }
	var flights []flight
	r, digest, now := rand.New(rand.NewPCG(1, 2)), fnv.New64a(), int64(luatest.Epoch)
	for range 1500 {
		now += r.Int64N(60)
		for i := 0; i < len(flights); {
			f := flights[i]
			if f.ends > now {
				i++
				continue
			}
			flights = append(flights[:i], flights[i+1:]...)
			outcome := "ok"
			if f.tokens%10 == 0 || len(flights) >= 25 {
				outcome = "throttled"
			}
			call(3, now, config.Text(), outcome, f.stamp, f.tokens, f.tokens/2, 0, len(flights))
		}
		tokens, rt := 100+r.Int64N(900), r.Int64N(2)
		v := call(3, now, config.Text(), "ask", rt, tokens, len(flights), len(flights)/2)
		fmt.Fprintln(digest, v)
		if v[0] == 0 {
			flights = append(flights, flight{now + 100 + r.Int64N(1500), v[2], tokens})
		}
	}
	return fmt.Sprintf("%x", digest.Sum64()), call(learnedFacts, now, config.Text(), "facts")
}

// The law decides alike on every store; what it learned is put into words.
func TestLaw_DecidesAlikeOnEveryStore(t *testing.T) {
	t.Parallel()
	m := luatest.Pipe(t, llmqtest.NewMiniredis(t))
	want, _ := decisions(t, m, "law")
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		got, facts := decisions(t, c, "llmq:t:{cap}:"+t.Name())
		if got != want {
			t.Errorf("digest of the answers = %s, want %s as on miniredis", got, want)
		}
		l, err := ReadLearned(facts)
		if err != nil {
			t.Fatalf("facts: %v", err)
		}
		if l.Slots.Limit < 1 || l.Tokens.Limit <= 0 || l.Tokens.Limit > 400_000 || !strings.Contains(l.String(), " slots") {
			t.Errorf("learned %+v: %s", l, l)
		}
	})
}
