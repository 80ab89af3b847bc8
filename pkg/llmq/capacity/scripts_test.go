package capacity

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// bench is one target, two slots to begin with and a cap of two, whose store was preset.
func bench() luatest.Bench {
	t := llmq.Target{Model: "m", Name: "t", Provider: "p", MaxConcurrency: 2}
	g := New(luatest.Space())
	k, p := g.names(t)
	calls := func(rates llmq.Rates) string { c, _ := budgetsOf(rates); return c.text() }
	tokens := func(rates llmq.Rates) string { _, t := budgetsOf(rates); return t.text() }
	return luatest.Bench{
		Scripts: map[string]luatest.Runnable{
			"admit":  {Script: g.admit, Keys: []string{"epoch", "state", "rt", "bg", "bulk", "waiting", "pslots", "pstate", "heard"}, Timed: true},
			"attend": {Script: g.attend, Keys: []string{"epoch", "heard", "callers"}, Timed: true},
			"settle": {Script: g.settle, Keys: []string{"state", "rt", "bg", "bulk", "waiting", "pslots", "pstate"}, Timed: true},
			"renew":  {Script: g.renew, Keys: []string{"epoch", "rt", "bg", "bulk", "pslots"}, Timed: true},
			"peek":   {Script: g.peek, Keys: []string{"epoch", "state", "rt", "bg", "bulk", "waiting", "pslots", "pstate"}, Timed: true},
		},
		Keys: map[string]string{
			"epoch": g.keys.Epoch(), "heard": g.keys.Callers().Heard, "callers": g.keys.Callers().Alive, "state": k.State, "rt": k.RT, "bg": k.BG, "bulk": k.Bulk, "waiting": k.Waiting, "pslots": p.Slots, "pstate": p.State,
		},
		Args: map[string]string{
			"law": g.lawText(t), "none": "", "caps": "2 0 0", "lane": "2 1 0", "shared": "2 0 1",
			"rpm10": calls(llmq.Rates{RPM: 10}), "rpm10x2": calls(llmq.Rates{RPM: 10, Burst: 2}), "minute2": calls(llmq.Rates{RPM: 2, Fixed: true}),
			"minute5": calls(llmq.Rates{RPM: 5, Fixed: true, RTShare: 0.2}), "tpm": tokens(llmq.Rates{TPM: 1000, Fixed: true}), "smooth": tokens(llmq.Rates{TPM: 6000}), "slow": tokens(llmq.Rates{TPM: 600}),
			"breaker": breakerConfig(llmq.Breaker{Threshold: 2, Window: time.Minute, Cooldown: time.Second}),
			"l:a":     "rt a", "l:ab": "rt a bg b",
		},
	}
}

func do(script string, at int64, args, reply string) luatest.Step {
	return luatest.Step{Script: script, At: at, Args: args, Reply: reply}
}

// admit is a step for a lease of 100 ms without budgets, given id and lane.
func admit(at int64, idLane, reply string) luatest.Step {
	return do("admit", at, idLane+" 100 0 0 0 $law $caps $none $none $none $none", reply)
}

// settle is a step for a call whose admission was at 0 and that reserved nothing, given id, lane
// and ending.
func settle(at int64, end, reply string) luatest.Step {
	return do("settle", at, end+" @0 @0 0 0 0 0 $law $none $none $none $none $breaker 100 1", reply)
}

// idle is the law's facts of a target that was never throttled: 2 slots, as configured.
const idle = "0 2000 4 0 0 0 0 0 0 0 0"

// unused is what was run on a target that ended no call.
const unused = "0 0 0 0 0 0 "

const known = "SET $epoch 1"

func TestScripts_Cases(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, slotCases)
	servers.Run(t, bench, rateCases)
	servers.Run(t, bench, breakerCases)
}

// Each Go call gives its script exactly the keys and arguments of its header.
func TestScripts_HeadersBodiesAndCallsAgree(t *testing.T) {
	t.Parallel()
	want := map[string]luatest.Header{}
	for name, text := range map[string]string{"admit": admitText, "settle": settleText, "renew": renewText, "peek": peekText, "forget": forgetText, "attend": attendText} {
		want[whole(text)] = luatest.ReadHeader(t, name, text)
	}
	got := map[string]luatest.Header{}
	g := New(luatest.Space())
	c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
	c.AddHook(&luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if keys, args, ok := luatest.IsScript(cmd); ok && cmd.Name() == "eval" { // the store is new: every script comes with its text once
				text, _ := cmd.Args()[1].(string)
				got[text] = luatest.Header{Keys: len(keys), Args: len(args)}
			}
		}
		return nil
	}})
	a := Ask{Target: llmq.Target{Model: "m", Name: "t", Provider: "p", MaxConcurrency: 1}, Lane: llmq.LaneRT, CallID: "a"}
	var b luascript.Batch
	g.Admit(&b, a)
	g.Renew(&b, Slot{ask: a})
	g.Settle(&b, Slot{ask: a}, Outcome{Ending: OK})
	g.Peek(&b, a.Target)
	g.ForgetLimits(&b, a.Target)
	g.Attend(&b, "a", Joins)
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers and calls (-header +call):\n%s", diff)
	}
}

func TestScripts_Luacheck(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"admit": admitText, "settle": settleText, "renew": renewText, "peek": peekText, "forget": forgetText, "attend": attendText} {
		luatest.LuacheckText(t, name+".lua", whole(text))
	}
}
