package capacity

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func bench() luatest.Bench {
	space := luatest.Space()
	g, k := New(space), space.Target(llmq.Target{Model: "m", Name: "t"})
	return luatest.Bench{
		Scripts: map[string]luatest.Runnable{
			"admit":  {Script: g.admit, Keys: []string{"slots"}, Timed: true},
			"renew":  {Script: g.renew, Keys: []string{"slots"}, Timed: true},
			"settle": {Script: g.settle, Keys: []string{"slots", "tally"}},
		},
		Keys: map[string]string{"slots": k.Slots, "tally": k.Tally},
	}
}

func do(script string, at int64, args, reply string) luatest.Step {
	return luatest.Step{Script: script, At: at, Args: args, Reply: reply}
}

// Leases of 100 ms, two slots.
var cases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name:  "admit: up to the cap",
		Calls: []luatest.Step{do("admit", 0, "a 100 2", "1 1"), do("admit", 1, "b 100 2", "1 2"), do("admit", 2, "c 100 2", "0 2")},
		State: map[string]string{"slots": "a=@100 b=@101"},
	},
	{
		Name:  "admit: again renews the same slot, even when full",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("admit", 50, "a 100 1", "1 1"), do("admit", 60, "b 100 1", "0 1")},
		State: map[string]string{"slots": "a=@150"},
	},
	{
		Name:  "admit: a lapsed slot is free at its last millisecond",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("admit", 99, "b 100 1", "0 1"), do("admit", 100, "b 100 1", "1 1")},
		State: map[string]string{"slots": "b=@200"},
	},
	{
		Name:  "admit: many lapse at once",
		Given: []string{"ZADD $slots @1 a @2 b @3 c @500 d"},
		Calls: []luatest.Step{do("admit", 10, "e 100 2", "1 2"), do("admit", 10, "f 100 2", "0 2")},
		State: map[string]string{"slots": "e=@110 d=@500"},
	},
	{
		Name:  "admit: a cap that was lowered admits nothing until below it",
		Given: []string{"ZADD $slots @100 a @200 b @300 c"},
		Calls: []luatest.Step{do("admit", 10, "d 100 2", "0 3"), do("admit", 100, "d 100 2", "0 2"), do("admit", 200, "d 100 2", "1 2")},
	},
	{
		Name:  "admit: its own slot that lapsed is asked for anew",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("admit", 100, "b 100 1", "1 1"), do("admit", 101, "a 100 1", "0 1")},
	},
	{
		Name:  "settle: frees the slot and counts once",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("settle", 0, "a ok", "1"), do("settle", 0, "a ok", "0"), do("settle", 0, "a throttled", "0"), do("admit", 1, "b 100 1", "1 1")},
		State: map[string]string{"slots": "b=@101", "tally": "ok=1"},
	},
	{
		Name:  "settle: each ending by its name",
		Given: []string{"ZADD $slots @100 a @100 b @100 c @100 d"},
		Calls: []luatest.Step{do("settle", 0, "a ok", "1"), do("settle", 0, "b throttled", "1"), do("settle", 0, "c failed", "1"), do("settle", 0, "d abandoned", "1")},
		State: map[string]string{"slots": "", "tally": "abandoned=1 failed=1 ok=1 throttled=1"},
	},
	{
		Name:  "settle: of a slot that nobody holds counts nothing",
		Calls: []luatest.Step{do("settle", 0, "a ok", "0")},
		State: map[string]string{"slots": "", "tally": ""},
	},
	{
		Name:  "settle: late, but before the lapsed slot was cleared away",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("settle", 5000, "a failed", "1")},
		State: map[string]string{"slots": "", "tally": "failed=1"},
	},
	{
		Name:  "renew: keeps the slot",
		Calls: []luatest.Step{do("admit", 0, "a 100 1", "1 1"), do("renew", 90, "100 a", "1"), do("admit", 150, "b 100 1", "0 1"), do("admit", 190, "b 100 1", "1 1")},
	},
	{
		Name:  "renew: a call in flight is counted after a wipe, above the cap if need be",
		Calls: []luatest.Step{do("admit", 0, "b 100 1", "1 1"), do("renew", 10, "100 a", "2"), do("admit", 20, "c 100 1", "0 2")},
		State: map[string]string{"slots": "b=@100 a=@110"},
	},
}

func TestScripts_Cases(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, cases)
}

// Each Go call gives its script exactly the keys and arguments of its header.
func TestScripts_HeadersBodiesAndCallsAgree(t *testing.T) {
	t.Parallel()
	want := map[string]luatest.Header{}
	for name, text := range map[string]string{"admit": admitText, "renew": renewText, "settle": settleText} {
		want[text] = luatest.ReadHeader(t, name, text)
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
	target := llmq.Target{Model: "m", Name: "t", MaxConcurrency: 1}
	slot := Slot{target: g.keys.Target(target), callID: "a"}
	var b luascript.Batch
	g.Admit(&b, target, "a")
	g.Renew(&b, slot)
	g.Settle(&b, slot, OK)
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers and calls (-header +call):\n%s", diff)
	}
}

func TestScripts_Luacheck(t *testing.T) {
	t.Parallel()
	luatest.Luacheck(t, "lua")
}
