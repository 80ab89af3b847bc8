package claims

import "github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"

func do(script string, at int64, args, reply string) luatest.Step {
	return luatest.Step{Script: script, At: at, Args: args, Reply: reply}
}

// The arguments of cases: leases of 100 ms, a deadline at 1000, kept for 5000 more,
// results for 300. They prove what is the scripts' part of DS4 to DS8, DS12, DS15, DS17, DS18, DS24, DS28, DS30 and DS39.
const (
	takeA, takeB     = "A 100 @1000 5000 h 0", "B 100 @1000 5000 h 0"
	takeOther        = "C 100 @1000 5000 h2 0"
	renewA1          = "A 1 100 5000 0 p 0"
	expireA, expireB = "A expA @1000 300 5000 h wake 0", "B expB @1000 300 5000 h wake 0"
	cancelling       = "gone 300 5000 wake stop"
	// Of the next generation, whose deadline is later.
	againB, againC     = "B 100 @2000 5000 h 1", "C 100 @2000 5000 h 1"
	expireAgain        = "C expC @2000 300 5000 h wake 1"
	buryA1             = "A 1 deadA @1000 300 5000 wake 2"
	finishA1, finishB2 = "A 1 replyA @1000 300 5000 wake 0", "B 2 replyB @1000 300 5000 wake 0"
)

var cases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name:  "take: free",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 trying=1 until_ms=@100 expires=@6000"},
	},
	{
		Name:  "take: not after the deadline",
		Calls: []luatest.Step{do("take", 999, takeA, "1 1 0 0 0 0"), do("take", 1000, takeB, "-1 1 0 0 99 0"), do("take", 1099, takeB, "-4 1 1 1 0 0"), do("take", 1099, takeA, "-4 1 0 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 trying=1 until_ms=@1099 expires=@6000"},
	},
	{
		Name:  "take: of nothing after the deadline leaves nothing",
		Calls: []luatest.Step{do("take", 1000, takeA, "-4 0 0 0 0 0")},
		State: map[string]string{"clm": ""},
	},
	{
		Name:  "take: a deferral does not outlast the deadline",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 10, "A 1 5000 1 p 5000", "1"), do("take", 999, takeB, "-2 1 1 0 4011 0"), do("take", 1000, takeB, "-4 1 1 0 0 0")},
	},
	{
		Name: "take: hands on how far the last owner came, by its renewal or deferral",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 50, "A 1 100 5000 2 1,1,2,0,0,350 0", "1"),
			do("take", 150, takeB, "1 2 2 1 0 0 1 1 2 0 0 350"), do("defer", 160, "B 2 10 4 2,3,1,1,1,900 5000", "1"), do("take", 170, takeA, "1 3 4 1 0 0 2 3 1 1 1 900"),
		},
		State: map[string]string{"clm": "attempts=4 fence=3 hash=h next_ms=@170 owner=A progress=2,3,1,1,1,900 state=running takeovers=1 trying=1 until_ms=@270 expires=@6000"},
	},
	{
		Name: "take: counts the attempt that the last owner died over, noted or not",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 100, takeB, "1 2 1 1 0 0"), // at its first
			do("renew", 110, "B 2 100 5000 2 p 0", "1"), do("take", 210, takeA, "1 3 2 2 0 0"), // noted as the running one
			do("renew", 220, "A 3 100 5000 3 p 1", "1"), do("take", 320, takeB, "1 4 4 3 0 0"), // at the next
			do("defer", 330, "B 4 10 4 p 5000", "1"), do("take", 340, takeA, "1 5 4 3 0 0"), // given back
		},
		State: map[string]string{"clm": "attempts=4 fence=5 hash=h next_ms=@340 owner=A progress=p state=running takeovers=3 trying=1 until_ms=@440 expires=@6000"},
	},
	{
		Name:  "take: again by its owner renews the lease and nothing else",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 50, takeA, "1 1 0 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 trying=1 until_ms=@150 expires=@6000"},
	},
	{
		Name:  "take: again by its owner after the lapse",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 500, takeA, "1 1 0 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 trying=1 until_ms=@600 expires=@6000"},
	},
	{
		Name: "take: another's lease runs to its last millisecond",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 40, takeB, "-1 1 0 0 60 0"), do("take", 99, takeB, "-1 1 0 0 1 0"),
		},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=running takeovers=0 trying=1 until_ms=@100 expires=@6000"},
	},
	{
		Name: "take: a lapsed lease is taken over and counted",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 100, takeB, "1 2 1 1 0 0"), do("take", 200, takeA, "1 3 2 2 0 0"), do("take", 250, takeA, "1 3 2 2 0 0"),
		},
		State: map[string]string{"clm": "attempts=2 fence=3 hash=h owner=A state=running takeovers=2 trying=1 until_ms=@350 expires=@6000"},
	},
	{
		Name: "take: a deferred claim waits, then is no takeover, and keeps its attempts",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 10, "A 1 500 3 p 5000", "1"),
			do("take", 11, takeB, "-2 1 3 0 499 0"), do("take", 509, takeA, "-2 1 3 0 1 0"), do("take", 510, takeB, "1 2 3 0 0 0"),
		},
		State: map[string]string{"clm": "attempts=3 fence=2 hash=h next_ms=@510 owner=B progress=p state=running takeovers=0 trying=1 until_ms=@610 expires=@6000"},
	},
	{
		Name: "take: a stored result ends it",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 50, finishA1, "1"), do("take", 60, takeA, "0 1 0 0 0 0"), do("take", 900, takeB, "0 1 0 0 0 0"),
		},
		State: map[string]string{
			"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 trying=1 until_ms=@100 expires=@6000", "res": "replyA expires=@1300",
		},
	},
	{
		Name:  "take: a claim of before with its fields only",
		Given: []string{"HSET $clm state running fence 7 owner X until_ms @50 attempts 2 takeovers 4"},
		Calls: []luatest.Step{do("take", 10, takeA, "-1 7 2 4 40 0"), do("take", 50, takeA, "1 8 2 5 0 0")},
		State: map[string]string{"clm": "attempts=2 fence=8 hash=h owner=A state=running takeovers=5 trying=1 until_ms=@150 expires=@6000"},
	},
	{
		Name: "take: another body under the id is refused, whatever has become of the first",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 10, takeOther, "-3 1 0 0 0 0"), do("take", 200, takeOther, "-3 1 0 0 0 0"),
			do("defer", 210, "A 1 50 2 p 5000", "1"), do("take", 500, takeOther, "-3 1 2 0 0 0"),
			do("take", 600, takeA, "1 2 2 0 0 0"), do("renew", 610, "A 2 100 5000 2 p 0", "1"), do("take", 800, takeOther, "-3 2 2 0 0 0"),
			do("finish", 810, "A 2 x @1000 300 5000 wake 0", "1"), do("take", 820, takeOther, "-3 2 2 0 0 0"), do("take", 830, takeB, "0 2 2 0 0 0"),
		},
		State: map[string]string{"clm": "attempts=2 fence=2 hash=h next_ms=@260 owner=A progress=p state=done takeovers=0 trying=0 until_ms=@710 expires=@6000"},
	},
	{
		Name:  "take: a claim that was wiped and renewed takes the next one's body",
		Calls: []luatest.Step{do("renew", 0, renewA1, "1"), do("take", 100, takeB, "1 2 0 1 0 0"), do("take", 300, takeOther, "-3 2 0 1 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=2 hash=h owner=B progress=p state=running takeovers=1 trying=1 until_ms=@200 expires=@6000"},
	},
	{
		Name:  "renew: keeps the lease",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 90, renewA1, "1"), do("take", 150, takeB, "-1 1 0 0 40 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A progress=p state=running takeovers=0 trying=0 until_ms=@190 expires=@6000"},
	},
	{
		Name:  "renew: late but before another took it",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 300, renewA1, "1"), do("take", 350, takeB, "-1 1 0 0 50 0")},
	},
	{
		Name: "renew: lost to another, to a fence, to a deferral, to a result",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 10, "A 2 100 5000 0 p 0", "0"), do("renew", 10, "B 1 100 5000 0 p 0", "0"),
			do("take", 100, takeB, "1 2 1 1 0 0"), do("renew", 110, renewA1, "0"),
			do("defer", 120, "B 2 50 0 p 5000", "1"), do("renew", 130, "B 2 100 5000 0 p 0", "0"),
			do("take", 200, takeA, "1 3 0 1 0 0"), do("finish", 210, "A 3 x @1000 300 5000 wake 0", "1"), do("renew", 220, "A 3 100 5000 0 p 0", "0"),
		},
		State: map[string]string{"clm": "attempts=0 fence=3 hash=h next_ms=@170 owner=A progress=p state=done takeovers=1 trying=1 until_ms=@300 expires=@6000"},
	},
	{
		Name:  "renew: writes a wiped claim anew",
		Calls: []luatest.Step{do("renew", 10, "A 4 100 5000 0 p 0", "1"), do("take", 50, takeB, "-1 4 0 0 60 0"), do("take", 110, takeB, "1 5 0 1 0 0")},
	},
	{
		Name:  "defer: not by another, nor twice with another effect",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 1, "B 1 500 0 p 5000", "0"), do("defer", 1, "A 2 500 0 p 5000", "0"), do("defer", 1, "A 1 500 2 p 5000", "1"), do("defer", 1, "A 1 500 2 p 5000", "1")},
		State: map[string]string{"clm": "attempts=2 fence=1 hash=h next_ms=@501 owner=A progress=p state=deferred takeovers=0 trying=0 until_ms=@100 expires=@6000"},
	},
	{
		Name:  "defer: for no time",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 5, "A 1 0 1 p 5000", "1"), do("take", 5, takeB, "1 2 1 0 0 0")},
	},
	{
		Name:  "defer: writes a wiped claim anew, with what was tried",
		Calls: []luatest.Step{do("defer", 5, "A 3 100 2 1,1,2,0,0,350 5000", "1"), do("take", 50, takeB, "-2 3 2 0 55 0 1 1 2 0 0 350"), do("take", 105, takeB, "1 4 2 0 0 0 1 1 2 0 0 350")},
	},
	{
		Name:  "defer: after the result leaves it",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, finishA1, "1"), do("defer", 6, "A 1 0 1 p 5000", "0"), do("take", 7, takeB, "0 1 0 0 0 0")},
	},
	{
		Name:  "finish: repeated after a lost answer stores once",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, finishA1, "1"), do("finish", 50, "A 1 other @1000 300 5000 wake 0", "1")},
		State: map[string]string{"res": "replyA expires=@1300"},
	},
	{
		Name:  "finish: by a former owner stores nothing, running or done",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("take", 100, takeB, "1 2 1 1 0 0"), do("finish", 110, finishA1, "0"), do("finish", 120, finishB2, "1"), do("finish", 130, finishA1, "0")},
		State: map[string]string{"res": "replyB expires=@1300"},
	},
	{
		Name:  "finish: late, but nobody took it over",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5000, finishA1, "1")},
		State: map[string]string{
			"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 trying=1 until_ms=@100 expires=@10000", "res": "replyA expires=@5300",
		},
	},
	{
		Name:  "finish: after a wipe stores the paid result, once, and ends the request",
		Calls: []luatest.Step{do("finish", 5, finishA1, "1"), do("take", 6, takeB, "0 1 0 0 0 0"), do("finish", 7, "B 1 replyB @1000 300 5000 wake 0", "0")},
		State: map[string]string{"clm": "fence=1 owner=A state=done expires=@6000", "res": "replyA expires=@1300"},
	},
	{
		Name:  "finish: after a wipe and another's take of the same fence stores nothing",
		Calls: []luatest.Step{do("take", 0, takeB, "1 1 0 0 0 0"), do("finish", 5, finishA1, "0")},
		State: map[string]string{"res": ""},
	},
	{
		Name:  "expire: a request that nobody took, once, for good",
		Calls: []luatest.Step{do("expire", 1000, expireA, "1 0"), do("expire", 1001, expireA, "1 0"), do("expire", 1002, expireB, "0 0"), do("take", 1003, takeB, "0 1 0 0 0 0")},
		State: map[string]string{"clm": "fence=1 hash=h owner=A state=done expires=@6000", "res": "expA expires=@1300"},
	},
	{
		Name:  "expire: not before the deadline, on the store's clock",
		Calls: []luatest.Step{do("expire", 400, expireA, "-2 600"), do("expire", 999, expireA, "-2 1")},
		State: map[string]string{"clm": "", "res": ""},
	},
	{
		Name:  "expire: not under a live owner, who may do it itself",
		Calls: []luatest.Step{do("take", 950, takeA, "1 1 0 0 0 0"), do("expire", 1000, expireB, "-1 50"), do("expire", 1010, expireA, "1 0"), do("expire", 1010, expireA, "1 0"), do("renew", 1020, renewA1, "0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 trying=1 until_ms=@1050 expires=@6010", "res": "expA expires=@1310"},
	},
	{
		Name:  "expire: after an owner's lapse, who then stores nothing",
		Calls: []luatest.Step{do("take", 950, takeA, "1 1 0 0 0 0"), do("expire", 1050, expireB, "1 0"), do("finish", 1060, finishA1, "0")},
		State: map[string]string{"clm": "attempts=0 fence=2 hash=h owner=B state=done takeovers=0 trying=1 until_ms=@1050 expires=@6050", "res": "expB expires=@1350"},
	},
	{
		Name:  "expire: not over a result, nor for another body",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, finishA1, "1"), do("expire", 2000, expireB, "0 0"), do("expire", 2000, "B expB @1000 300 5000 h2 wake 0", "-3 0")},
		State: map[string]string{"res": "replyA expires=@1300"},
	},
	{
		Name:  "expire: a deferred claim",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 10, "A 1 5000 1 p 5000", "1"), do("expire", 1000, expireB, "1 0"), do("defer", 1001, "A 1 5 1 p 5000", "0")},
		State: map[string]string{"res": "expB expires=@1300"},
	},
	{
		Name:  "cancel: queued, then it is never run",
		Given: []string{"HSET $sub deadline_ms @1000"},
		Calls: []luatest.Step{do("cancel", 10, cancelling, "1 1"), do("cancel", 20, cancelling, "1 1"), do("take", 30, takeA, "0 1 0 0 0 1"), do("expire", 2000, expireA, "0 0")},
		State: map[string]string{"clm": "cancelled=1 fence=1 owner= state=done expires=@6000", "res": "gone expires=@1300"},
	},
	{
		Name:  "cancel: of an id that nobody knows yet",
		Calls: []luatest.Step{do("cancel", 10, cancelling, "1 0"), do("cancel", 20, cancelling, "1 1"), do("take", 30, takeA, "0 1 0 0 0 1")},
		State: map[string]string{"clm": "cancelled=1 fence=1 owner= state=done expires=@5010", "res": "gone expires=@310"},
	},
	{
		Name:  "cancel: deferred, and nobody can take it up any more",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 5, "A 1 500 1 p 5000", "1"), do("cancel", 10, cancelling, "1 1"), do("take", 600, takeB, "0 2 1 0 0 1"), do("defer", 20, "A 1 500 1 p 5000", "0")},
		State: map[string]string{"res": "gone expires=@310"},
	},
	{
		Name: "cancel: running, then its owner can store nothing else, and keeps its claim for that",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("cancel", 10, cancelling, "2 1"), do("cancel", 11, cancelling, "2 1"), do("renew", 20, renewA1, "2"), do("defer", 25, "A 1 50 1 p 5000", "2"),
			do("finish", 30, finishA1, "2"), do("expire", 1000, expireA, "2 0"), do("finish", 40, "A 1 told @1000 300 5000 wake 1", "1"), do("cancel", 50, cancelling, "1 1"), do("finish", 60, finishA1, "1"),
		},
		State: map[string]string{"clm": "attempts=0 cancelled=1 fence=1 hash=h owner=A progress=p state=done takeovers=0 trying=0 until_ms=@120 expires=@6000", "res": "told expires=@1300"},
	},
	{
		Name: "cancel: running under an owner that dies; the next is told, even past the deadline",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("cancel", 10, cancelling, "2 1"), do("take", 50, takeB, "-1 1 0 0 50 1"), do("expire", 2000, expireB, "2 0"),
			do("take", 2000, takeB, "1 2 1 1 0 1"), do("finish", 2010, "B 2 told @1000 300 5000 wake 1", "1"),
		},
		State: map[string]string{"res": "told expires=@2310"},
	},
	{
		Name:  "cancel: after an owner's lapse it ends at once, and the owner stores nothing",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("cancel", 100, cancelling, "1 1"), do("finish", 110, finishA1, "0"), do("renew", 110, renewA1, "0")},
		State: map[string]string{"clm": "attempts=0 cancelled=1 fence=2 hash=h owner= state=done takeovers=0 trying=1 until_ms=@100 expires=@5100", "res": "gone expires=@400"},
	},
	{
		Name:  "cancel: after the end changes nothing",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, finishA1, "1"), do("cancel", 10, cancelling, "0 1"), do("take", 20, takeB, "0 1 0 0 0 0")},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 trying=1 until_ms=@100 expires=@6000", "res": "replyA expires=@1300"},
	},
	{
		Name:  "generation: a later one begins a dead end anew, with its deadline, and the old result is gone",
		Given: []string{"HSET $sub deadline_ms @1000 sent 1"},
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 10, "A 1 100 5000 4 1,1,2 0", "1"), do("finish", 20, buryA1, "1"),
			do("take", 30, takeB, "-6 1 4 0 0 0 1 1 2"), do("take", 1500, againB, "1 2 0 0 0 0"),
			do("finish", 1501, buryA1, "0"), do("renew", 1501, renewA1, "0"),
		},
		State: map[string]string{
			"clm": "attempts=0 dead=0 fence=2 gen=1 hash=h owner=B progress= state=running takeovers=0 trying=1 until_ms=@1600 expires=@7000",
			"res": "", "sub": "deadline_ms=@2000 sent=1 expires=@7000",
		},
	},
	{
		Name: "generation: its take is repeated without another effect, and its end stands for its like",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 20, buryA1, "1"), do("take", 30, againB, "1 2 0 0 0 0"), do("renew", 40, "B 2 100 5000 1 3 0", "1"),
			do("take", 50, againB, "1 2 1 0 0 0 3"), do("take", 60, againC, "-1 2 1 0 90 0 3"), do("finish", 70, "B 2 deadB @2000 300 5000 wake 2", "1"),
			do("take", 80, againC, "-6 2 1 0 0 0 3"), do("take", 80, takeA, "-6 2 1 0 0 0 3"), do("take", 90, "C 100 @3000 5000 h 2", "1 3 0 0 0 0"),
		},
		State: map[string]string{"res": "", "sub": ""},
	},
	{
		Name: "generation: never over an end that is not dead",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, finishA1, "1"), do("take", 10, againB, "0 1 0 0 0 0"), do("expire", 2000, expireAgain, "0 0"),
		},
		State: map[string]string{"clm": "attempts=0 fence=1 hash=h owner=A state=done takeovers=0 trying=1 until_ms=@100 expires=@6000", "res": "replyA expires=@1300"},
	},
	{
		Name:  "generation: never over a cancellation",
		Calls: []luatest.Step{do("cancel", 10, cancelling, "1 0"), do("take", 20, againB, "0 1 0 0 0 1")},
		State: map[string]string{"res": "gone expires=@310"},
	},
	{
		Name: "generation: a cancelled request's end is its cancellation, never dead",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("cancel", 10, cancelling, "2 1"), do("finish", 20, buryA1, "2"), do("take", 200, againB, "1 2 0 0 0 1"),
		},
	},
	{
		Name: "generation: of what never ended: a live owner's lease runs, a lapsed one's is no takeover, a deferral is over",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("renew", 10, "A 1 100 5000 2 1,0,2 0", "1"), do("take", 50, againB, "-1 1 2 0 60 0 1 0 2"), do("take", 110, againB, "1 2 0 0 0 0"),
			do("defer", 120, "B 2 500 1 2 5000", "1"), do("take", 130, "C 100 @3000 5000 h 2", "1 3 0 0 0 0"),
		},
		State: map[string]string{"clm": "attempts=0 dead=0 fence=3 gen=2 hash=h next_ms=@620 owner=C progress= state=running takeovers=0 trying=1 until_ms=@230 expires=@8000"},
	},
	{
		Name: "generation: an earlier one has nothing to say any more, nor ends it",
		Calls: []luatest.Step{
			do("take", 0, againB, "1 1 0 0 0 0"), do("take", 10, takeA, "-5 1 0 0 0 0"), do("take", 1200, takeA, "-5 1 0 0 0 0"), do("expire", 1200, expireA, "-5 0"),
		},
		State: map[string]string{"clm": "attempts=0 dead=0 fence=1 gen=1 hash=h owner=B progress= state=running takeovers=0 trying=1 until_ms=@100 expires=@7000", "res": ""},
	},
	{
		Name: "generation: one whose deadline passed replaces a dead end, which is then none any more",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, buryA1, "1"), do("take", 2000, againC, "-4 1 0 0 0 0"), do("expire", 1999, expireAgain, "-2 1"),
			do("expire", 2000, expireAgain, "1 0"), do("expire", 2000, expireAgain, "1 0"), do("take", 2001, "D 100 @3000 5000 h 2", "0 2 0 0 0 0"),
		},
		State: map[string]string{"clm": "attempts=0 dead=0 fence=2 gen=1 hash=h owner=C state=done takeovers=0 trying=1 until_ms=@100 expires=@7000", "res": "expC expires=@2300"},
	},
	{
		Name:  "generation: past the deadline of the first, a dead end stands against what SQS moves back",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, buryA1, "1"), do("take", 2000, takeB, "-6 1 0 0 0 0"), do("expire", 2000, expireB, "0 0")},
		State: map[string]string{"res": "deadA expires=@1300"},
	},
	{
		Name: "cancel: of a dead end, whose message may have been sent again: it ends it, and no generation begins it any more",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, buryA1, "1"), do("cancel", 10, cancelling, "1 1"), do("cancel", 11, cancelling, "1 1"),
			do("finish", 12, buryA1, "0"), do("take", 20, againB, "0 2 0 0 0 1"), do("expire", 2000, expireAgain, "0 0"),
		},
		State: map[string]string{"clm": "attempts=0 cancelled=1 dead=0 fence=2 hash=h owner= state=done takeovers=0 trying=1 until_ms=@100 expires=@5010", "res": "gone expires=@310"},
	},
	{
		Name: "cancel: of a later generation that runs, and of one whose owner died",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 5, buryA1, "1"), do("take", 30, againB, "1 2 0 0 0 0"), do("cancel", 40, cancelling, "2 1"),
			do("cancel", 130, cancelling, "1 1"), do("take", 140, againC, "0 3 0 0 0 1"),
		},
		State: map[string]string{"res": "gone expires=@430"},
	},
	{
		Name:  "submit: new, then known, then another body",
		Calls: []luatest.Step{do("submit", 0, "h1 @1000 5000 0", "1 0 1000"), do("submit", 10, "h1 @2000 5000 0", "0 0 1000"), do("submit", 20, "h2 @1000 5000 0", "-1 0 1000")},
		State: map[string]string{"sub": "created_ms=@0 deadline_ms=@1000 hash=h1 sent=0 expires=@6000"},
	},
	{
		Name:  "submit: known as sent",
		Calls: []luatest.Step{do("submit", 0, "h1 @1000 5000 0", "1 0 1000"), do("sent", 0, "@1000", "1"), do("sent", 0, "@1000", "1"), do("submit", 10, "h1 @1000 5000 0", "0 1 1000")},
	},
	{
		Name:  "submit: another body than a claim's that came over a queue leaves nothing",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("submit", 10, "h2 @2000 5000 0", "-1 0 0"), do("submit", 20, "h @2000 5000 0", "1 0 2000")},
		State: map[string]string{"sub": "created_ms=@20 deadline_ms=@2000 hash=h sent=0 expires=@7000"},
	},
	{
		Name: "submit: another body than an ended claim's leaves nothing",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("finish", 50, finishA1, "1"), do("submit", 60, "h2 @2000 5000 0", "-1 0 0"), do("submit", 70, "h @2000 5000 0", "1 0 2000"),
		},
	},
	{
		Name: "submit: a record whose body was not the first taken gives way to that body's",
		Calls: []luatest.Step{
			do("submit", 0, "h2 @9000 5000 0", "1 0 9000"), do("sent", 0, "@9000", "1"), do("take", 10, takeA, "1 1 0 0 0 0"),
			do("submit", 20, "h2 @9000 5000 0", "-1 1 9000"), do("submit", 30, "h @2000 5000 0", "1 0 2000"), do("submit", 40, "h @3000 5000 0", "0 0 2000"),
		},
		State: map[string]string{"sub": "created_ms=@30 deadline_ms=@2000 hash=h sent=0 expires=@7000"},
	},
	{
		Name:  "submit: a claim that knows no body stands for any",
		Calls: []luatest.Step{do("cancel", 0, cancelling, "1 0"), do("submit", 10, "h1 @1000 5000 0", "1 0 1000"), do("submit", 20, "h2 @1000 5000 0", "-1 0 1000")},
	},
	{
		Name: "sent: the latest deadline that was sent stands",
		Calls: []luatest.Step{
			do("submit", 0, "h1 @1000 5000 0", "1 0 1000"), do("sent", 0, "@3000", "1"), do("submit", 10, "h1 @9000 5000 0", "0 1 3000"), do("sent", 20, "@2000", "1"),
		},
		State: map[string]string{"sub": "created_ms=@0 deadline_ms=@3000 hash=h1 sent=1 expires=@6000"},
	},
	{
		Name:  "sent: no record, no trace",
		Calls: []luatest.Step{do("sent", 0, "@1000", "0")},
		State: map[string]string{"sub": ""},
	},
}
