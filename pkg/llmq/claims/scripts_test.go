package claims

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

func bench() luatest.Bench {
	s, k := New(luatest.Space()), luatest.Space().Call("t", llmq.NewRID("t", "r"))
	return luatest.Bench{
		Scripts: map[string]luatest.Runnable{
			"submit": {Script: s.submit, Keys: []string{"sub"}, Timed: true},
			"sent":   {Script: s.sent, Keys: []string{"sub"}},
			"take":   {Script: s.take, Keys: []string{"clm"}, Timed: true},
			"renew":  {Script: s.renew, Keys: []string{"clm"}, Timed: true},
			"defer":  {Script: s.giveBack, Keys: []string{"clm"}, Timed: true},
			"finish": {Script: s.finish, Keys: []string{"clm", "res"}, Timed: true},
		},
		Keys: map[string]string{"sub": k.Submission, "clm": k.Claim, "res": k.Result},
	}
}

func do(script string, at int64, args, reply string) luatest.Step {
	return luatest.Step{Script: script, At: at, Args: args, Reply: reply}
}

// The arguments of cases: leases of 100 ms, a deadline at 1000, kept for 5000 more,
// results for 300.
const (
	takeA, takeB       = "A 100 @1000 5000 h", "B 100 @1000 5000 h"
	takeOther          = "C 100 @1000 5000 h2"
	renewA1            = "A 1 100 5000"
	finishA1, finishB2 = "A 1 replyA @1000 300 5000 wake", "B 2 replyB @1000 300 5000 wake"
)

var cases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name:  "take: free",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@100 expires=@6000"},
	},
	{
		Name:  "take: after the deadline, the claim lives on from now",
		Calls: []luatest.Step{do("take", 2000, takeA, "1 1 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@2100 expires=@7000"},
	},
	{
		Name:  "take: again by its owner renews the lease and nothing else",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("take", 50, takeA, "1 1 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@150 expires=@6000"},
	},
	{
		Name:  "take: again by its owner after the lapse",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("take", 500, takeA, "1 1 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@600 expires=@6000"},
	},
	{
		Name: "take: another's lease runs to its last millisecond",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("take", 40, takeB, "-1 1 0 0 60"), do("take", 99, takeB, "-1 1 0 0 1"),
		},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@100 expires=@6000"},
	},
	{
		Name: "take: a lapsed lease is taken over and counted",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("take", 100, takeB, "1 2 0 1 0"), do("take", 200, takeA, "1 3 0 2 0"), do("take", 250, takeA, "1 3 0 2 0"),
		},
		State: map[string]string{"clm": "attempts=0 fence=3 hash=h owner=A state=running takeovers=2 until_ms=@350 expires=@6000"},
	},
	{
		Name: "take: a deferred claim waits, then is no takeover, and keeps its attempts",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("defer", 10, "A 1 500 3", "1"),
			do("take", 11, takeB, "-2 1 3 0 499"), do("take", 509, takeA, "-2 1 3 0 1"), do("take", 510, takeB, "1 2 3 0 0"),
		},
		State: map[string]string{"clm": "attempts=3 fence=2 hash=h next_ms=@510 owner=B state=running takeovers=0 until_ms=@610 expires=@6000"},
	},
	{
		Name: "take: a stored result ends it",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("finish", 50, finishA1, "1"), do("take", 60, takeA, "0 1 0 0 0"), do("take", 900, takeB, "0 1 0 0 0"),
		},
		State: map[string]string{
			"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 until_ms=@100 expires=@6000", "res": "replyA expires=@1300",
		},
	},
	{
		Name:  "take: a claim of before with its fields only",
		Given: []string{"HSET $clm state running fence 7 owner X until_ms @50 attempts 2 takeovers 4"},
		Calls: []luatest.Step{do("take", 10, takeA, "-1 7 2 4 40"), do("take", 50, takeA, "1 8 2 5 0")},
		State: map[string]string{"clm": "attempts=2 fence=8 hash=h owner=A state=running takeovers=5 until_ms=@150 expires=@6000"},
	},
	{
		Name: "take: another body under the id is refused, whatever has become of the first",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("take", 10, takeOther, "-3 1 0 0 0"), do("take", 200, takeOther, "-3 1 0 0 0"),
			do("defer", 210, "A 1 50 2", "1"), do("take", 500, takeOther, "-3 1 2 0 0"),
			do("take", 600, takeA, "1 2 2 0 0"), do("renew", 610, "A 2 100 5000", "1"), do("take", 800, takeOther, "-3 2 2 0 0"),
			do("finish", 810, "A 2 x @1000 300 5000 wake", "1"), do("take", 820, takeOther, "-3 2 2 0 0"), do("take", 830, takeB, "0 2 2 0 0"),
		},
		State: map[string]string{"clm": "attempts=2 fence=2 hash=h next_ms=@260 owner=A state=done takeovers=0 until_ms=@710 expires=@6000"},
	},
	{
		Name:  "take: a claim that was wiped and renewed takes the next one's body",
		Calls: []luatest.Step{do("renew", 0, renewA1, "1"), do("take", 100, takeB, "1 2 0 1 0"), do("take", 300, takeOther, "-3 2 0 1 0")},
		State: map[string]string{"clm": "attempts=0 fence=2 hash=h owner=B state=running takeovers=1 until_ms=@200 expires=@6000"},
	},
	{
		Name:  "renew: keeps the lease",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("renew", 90, renewA1, "1"), do("take", 150, takeB, "-1 1 0 0 40")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 until_ms=@190 expires=@6000"},
	},
	{
		Name:  "renew: late but before another took it",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("renew", 300, renewA1, "1"), do("take", 350, takeB, "-1 1 0 0 50")},
	},
	{
		Name: "renew: lost to another, to a fence, to a deferral, to a result",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0"), do("renew", 10, "A 2 100 5000", "0"), do("renew", 10, "B 1 100 5000", "0"),
			do("take", 100, takeB, "1 2 0 1 0"), do("renew", 110, renewA1, "0"),
			do("defer", 120, "B 2 50 0", "1"), do("renew", 130, "B 2 100 5000", "0"),
			do("take", 200, takeA, "1 3 0 1 0"), do("finish", 210, "A 3 x @1000 300 5000 wake", "1"), do("renew", 220, "A 3 100 5000", "0"),
		},
		State: map[string]string{"clm": "attempts=0 fence=3 hash=h next_ms=@170 owner=A state=done takeovers=1 until_ms=@300 expires=@6000"},
	},
	{
		Name:  "renew: writes a wiped claim anew",
		Calls: []luatest.Step{do("renew", 10, "A 4 100 5000", "1"), do("take", 50, takeB, "-1 4 0 0 60"), do("take", 110, takeB, "1 5 0 1 0")},
	},
	{
		Name:  "defer: not by another, nor twice with another effect",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("defer", 1, "B 1 500 0", "0"), do("defer", 1, "A 2 500 0", "0"), do("defer", 1, "A 1 500 2", "1"), do("defer", 1, "A 1 500 2", "1")},
		State: map[string]string{"clm": "attempts=2 fence=1 hash=h next_ms=@501 owner=A state=deferred takeovers=0 until_ms=@100 expires=@6000"},
	},
	{
		Name:  "defer: for no time",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("defer", 5, "A 1 0 1", "1"), do("take", 5, takeB, "1 2 1 0 0")},
	},
	{
		Name:  "defer: of a claim that is gone leaves nothing",
		Calls: []luatest.Step{do("defer", 5, "A 1 0 1", "0")},
		State: map[string]string{"clm": ""},
	},
	{
		Name:  "defer: after the result leaves it",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("finish", 5, finishA1, "1"), do("defer", 6, "A 1 0 1", "0"), do("take", 7, takeB, "0 1 0 0 0")},
	},
	{
		Name:  "finish: repeated after a lost answer stores once",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("finish", 5, finishA1, "1"), do("finish", 50, "A 1 other @1000 300 5000 wake", "1")},
		State: map[string]string{"res": "replyA expires=@1300"},
	},
	{
		Name:  "finish: by a former owner stores nothing, running or done",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("take", 100, takeB, "1 2 0 1 0"), do("finish", 110, finishA1, "0"), do("finish", 120, finishB2, "1"), do("finish", 130, finishA1, "0")},
		State: map[string]string{"res": "replyB expires=@1300"},
	},
	{
		Name:  "finish: late, but nobody took it over",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0"), do("finish", 5000, finishA1, "1")},
		State: map[string]string{
			"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 until_ms=@100 expires=@10000", "res": "replyA expires=@5300",
		},
	},
	{
		Name:  "finish: after a wipe stores the paid result, once, and ends the request",
		Calls: []luatest.Step{do("finish", 5, finishA1, "1"), do("take", 6, takeB, "0 1 0 0 0"), do("finish", 7, "B 1 replyB @1000 300 5000 wake", "0")},
		State: map[string]string{"clm": "fence=1 owner=A state=done expires=@6000", "res": "replyA expires=@1300"},
	},
	{
		Name:  "finish: after a wipe and another's take of the same fence stores nothing",
		Calls: []luatest.Step{do("take", 0, takeB, "1 1 0 0 0"), do("finish", 5, finishA1, "0")},
		State: map[string]string{"res": ""},
	},
	{
		Name:  "submit: new, then known, then another body",
		Calls: []luatest.Step{do("submit", 0, "h1 @1000 5000", "1 0 1000"), do("submit", 10, "h1 @2000 5000", "0 0 1000"), do("submit", 20, "h2 @1000 5000", "-1 0 1000")},
		State: map[string]string{"sub": "created_ms=@0 deadline_ms=@1000 hash=h1 sent=0 expires=@6000"},
	},
	{
		Name:  "submit: known as sent",
		Calls: []luatest.Step{do("submit", 0, "h1 @1000 5000", "1 0 1000"), do("sent", 0, "@1000", "1"), do("sent", 0, "@1000", "1"), do("submit", 10, "h1 @1000 5000", "0 1 1000")},
	},
	{
		Name: "sent: the latest deadline that was sent stands",
		Calls: []luatest.Step{
			do("submit", 0, "h1 @1000 5000", "1 0 1000"), do("sent", 0, "@3000", "1"), do("submit", 10, "h1 @9000 5000", "0 1 3000"), do("sent", 20, "@2000", "1"),
		},
		State: map[string]string{"sub": "created_ms=@0 deadline_ms=@3000 hash=h1 sent=1 expires=@6000"},
	},
	{
		Name:  "sent: no record, no trace",
		Calls: []luatest.Step{do("sent", 0, "@1000", "0")},
		State: map[string]string{"sub": ""},
	},
}

func TestScripts_Cases(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, cases)
}

// Scripts date by the server's clock when they are given none; every call in Go does so.
func TestScripts_ServerTime(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(luatest.Space())
		r := llmq.Request{ID: "r", Tenant: "t", Deadline: time.Now().Add(time.Minute)}
		var b luascript.Batch
		takes := s.Take(&b, r, "h", "A")
		if err := b.Run(t.Context(), c); err != nil {
			t.Fatalf("run: %v", err)
		}
		if take, err := takes(); err != nil || take.State != Taken {
			t.Fatalf("take = %+v, %v", take, err)
		}
		ms, err := c.HGet(t.Context(), s.keys.Call("t", r.RID()).Claim, "until_ms").Int64()
		if lease := time.Until(time.UnixMilli(ms)); err != nil || lease > Lease || lease < Lease-10*time.Second {
			t.Errorf("the lease runs for %v, %v; want %v", lease, err, Lease)
		}
	})
}

// Each Go call gives its script exactly the keys and arguments of its header.
func TestScripts_HeadersBodiesAndCallsAgree(t *testing.T) {
	t.Parallel()
	want := map[string]luatest.Header{}
	for name, text := range map[string]string{
		"submit": submitText, "sent": sentText, "take": takeText, "renew": renewText, "defer": deferText, "finish": finishText,
	} {
		want[text] = luatest.ReadHeader(t, name, text)
	}
	got := map[string]luatest.Header{}
	texts := map[string]string{}
	s := New(luatest.Space())
	for _, script := range []luascript.Script{s.submit, s.sent, s.take, s.renew, s.giveBack, s.finish} {
		texts[script.Text()] = script.Text()
	}
	c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
	c.AddHook(&luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() != "eval" { // the store is new: every script comes with its text once
				continue
			}
			if keys, args, ok := luatest.IsScript(cmd); ok {
				text, known := cmd.Args()[1].(string)
				if !known {
					t.Errorf("script is sent as %T", cmd.Args()[1])
				}
				got[texts[text]] = luatest.Header{Keys: len(keys), Args: len(args)}
			}
		}
		return nil
	}})
	r := llmq.Request{ID: "r", Tenant: "t", Deadline: time.Now().Add(time.Minute)}
	var b luascript.Batch
	claim := Claim{Fence: 1, keys: s.keys.Call("t", r.RID()), owner: "A", deadline: r.Deadline}
	s.Submit(&b, r, "h")
	s.MarkSent(&b, r)
	s.Take(&b, r, "h", "A")
	s.Renew(&b, claim)
	s.Defer(&b, claim, time.Second, 1)
	s.Finish(&b, claim, []byte("{}"))
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
