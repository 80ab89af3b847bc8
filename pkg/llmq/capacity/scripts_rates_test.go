package capacity

import "github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"

// ask is an admission without a cap in the way: lease, tokens and budgets given.
func ask(at int64, idLane, tokens, budgets, reply string) luatest.Step {
	return do("admit", at, idLane+" 99999 "+tokens+" 0 0 $law $caps "+budgets, reply)
}

func paid(at int64, end, reservedUsed, budgets, reply string) luatest.Step {
	return do("settle", at, end+" @0 @0 "+reservedUsed+" 0 0 $law "+budgets+" $breaker 99999 1", reply)
}

// Epoch is 20 s past a minute of the calendar: the next begins at 40,000 ms.
var rateCases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{ // R01, R03
		Name:  "smooth: the burst back to back, then the rate",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "0", "$rpm10x2 $none $none $none", "0 0 1 2 0 0 0 0"), ask(0, "b rt", "0", "$rpm10x2 $none $none $none", "0 0 2 2 0 0 0 0"),
			settle(0, "a rt ok", "1 0"), settle(0, "b rt ok", "1 0"),
			ask(1000, "c rt", "0", "$rpm10x2 $none $none $none", "8 5000 0 2 0 1000 0 5000"), ask(5999, "c rt", "0", "$rpm10x2 $none $none $none", "8 500 0 2 0 5999 0 500"),
			ask(6000, "c rt", "0", "$rpm10x2 $none $none $none", "0 0 1 2 6000 6000 0 0"),
		},
	},
	{ // R02
		Name:  "fixed: the whole budget from each calendar minute, not one more",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(39_998, "a rt", "0", "$minute2 $none $none $none", "0 0 1 2 39998 39998 0 0"), ask(39_998, "b rt", "0", "$minute2 $none $none $none", "0 0 2 2 39998 39998 0 0"),
			settle(39_998, "a rt ok", "1 0"),
			ask(39_999, "c rt", "0", "$minute2 $none $none $none", "8 500 1 2 0 39999 0 500"), ask(40_000, "c rt", "0", "$minute2 $none $none $none", "0 0 2 2 40000 40000 0 0"),
		},
	},
	{ // R04
		Name:  "fixed: background gets its part, rt all",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a bg", "0", "$minute5 $none $none $none", "0 0 1 2 0 0 0 0"), settle(0, "a bg failed", "1 0"),
			ask(0, "b bg", "0", "$minute5 $none $none $none", "0 0 1 2 0 0 0 0"), settle(0, "b bg failed", "1 0"),
			ask(0, "c bg", "0", "$minute5 $none $none $none", "0 0 1 2 0 0 0 0"), settle(0, "c bg failed", "1 0"),
			ask(0, "d bg", "0", "$minute5 $none $none $none", "0 0 1 2 0 0 0 0"), settle(0, "d bg failed", "1 0"),
			ask(0, "e bulk", "0", "$minute5 $none $none $none", "8 40000 0 2 0 0 0 40000"), ask(0, "f rt", "0", "$minute5 $none $none $none", "0 0 1 2 0 0 0 0"),
			ask(0, "g rt", "0", "$minute5 $none $none $none", "8 40000 1 2 0 0 0 40000"),
		},
	},
	{ // H13
		Name:  "tokens: reserved before, settled after; the refused leave no trace",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 0 0 0 0"), ask(0, "b rt", "400", "$none $tpm $none $none", "0 0 2 2 0 0 0 0"), ask(0, "c rt", "400", "$none $tpm $none $none", "9 40000 2 2 0 0 0 40000"),
			paid(1, "a rt ok", "400 50", "$none $tpm $none $none", "1 0"), paid(1, "b rt ok", "400 50", "$none $tpm $none $none", "1 0"), paid(1, "b rt ok", "400 50", "$none $tpm $none $none", "0 0"),
			do("peek", 1, "$law $none $tpm $none $none", "0 0 0 0 0 -1 900 -1 100 0 -1 -1 0 0 2 0 0 0 0 2 2 0 0 0 0 "+idle),
		},
	},
	{ // C13
		Name:  "tokens: a lapsed reservation stays charged",
		Given: []string{known},
		Calls: []luatest.Step{
			do("admit", 0, "a rt 100 900 0 0 $law $caps $none $tpm $none $none", "0 0 1 2 0 0 0 0"), ask(200, "b rt", "200", "$none $tpm $none $none", "9 39800 0 2 0 200 0 39800"),
			paid(300, "a rt ok", "900 10", "$none $tpm $none $none", "0 0"), do("peek", 300, "$law $none $tpm $none $none", "0 0 0 0 0 -1 100 -1 900 0 -1 -1 0 0 0 0 0 0 1 "+unused+idle),
		},
	},
	{
		Name:  "tokens: what an earlier minute reserved is not given to this one, what it owes is",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 0 0 0 0"), ask(0, "b rt", "400", "$none $tpm $none $none", "0 0 2 2 0 0 0 0"),
			paid(40_000, "a rt ok", "400 50", "$none $tpm $none $none", "1 0"), paid(40_000, "b rt ok", "400 600", "$none $tpm $none $none", "1 0"),
			do("peek", 40_000, "$law $none $tpm $none $none", "0 0 0 0 0 -1 800 -1 200 0 -1 -1 0 0 2 0 0 0 0 2 80000 0 0 0 0 "+idle),
		},
	},
	{
		Name:  "undone: calls and tokens come back, though the answer was lost",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "500", "$none $smooth $none $none", "0 0 1 2 0 0 0 0"), do("peek", 0, "$law $none $smooth $none $none", "0 1 0 0 0 -1 100 -1 500 0 -1 -1 0 0 0 0 0 0 0 "+unused+idle),
			do("settle", 1, "a rt undone 0 0 500 0 0 0 $law $none $smooth $none $none $breaker 99999 0", "1 0"),
			do("peek", 1, "$law $none $smooth $none $none", "0 0 0 0 0 -1 600 -1 0 0 -1 -1 0 0 0 0 0 1 0 "+unused+idle),
		},
	},
	{
		Name:  "undone: of a lease that was prolonged nobody knows the minute, so a calendar minute gets nothing back",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(39_000, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 39000 39000 0 0"), do("renew", 41_000, "99999 0 $l:a", "1 0"),
			ask(41_000, "b rt", "400", "$none $tpm $none $none", "0 0 2 2 41000 41000 0 0"),
			do("settle", 41_001, "a rt undone 0 0 400 0 0 0 $law $none $tpm $none $none $breaker 99999 0", "1 0"),
			do("peek", 41_001, "$law $none $tpm $none $none", "0 1 0 0 0 -1 600 -1 400 0 -1 -1 0 0 0 0 0 1 0 "+unused+idle),
		},
	},
	{
		Name:  "undone: a repeat in a later minute still tells when its admission was, once it was prolonged no more",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(39_000, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 39000 39000 0 0"), ask(41_000, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 41000 39000 0 0"),
			ask(41_001, "a rt", "400", "$none $tpm $none $none", "0 0 1 2 41001 0 0 0"), ask(41_001, "b rt", "400", "$none $tpm $none $none", "0 0 2 2 41001 41001 0 0"),
			do("settle", 41_002, "a rt ok 0 0 400 50 0 0 $law $none $tpm $none $none $breaker 99999 0", "1 0"),
			do("peek", 41_002, "$law $none $tpm $none $none", "0 1 0 0 0 -1 600 -1 400 0 -1 -1 0 0 1 0 0 0 0 "+unused+idle),
		},
	},
	{
		Name:  "smooth: the deepest debt is over in a minute, of a limit that was lowered too",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "0", "$none $smooth $none $none", "0 0 1 2 0 0 0 0"), paid(0, "a rt ok", "0 1000000", "$none $smooth $none $none", "1 0"),
			ask(1, "b rt", "60", "$none $smooth $none $none", "9 60599 0 2 0 1 0 60599"), ask(60_599, "b rt", "60", "$none $smooth $none $none", "9 1000 0 2 0 60599 0 1000"),
			ask(60_600, "b rt", "60", "$none $smooth $none $none", "0 0 1 2 60600 60600 0 0"), paid(60_600, "b rt ok", "60 1000000", "$none $smooth $none $none", "1 0"),
			ask(60_600, "c rt", "60", "$none $slow $none $none", "9 66000 0 2 0 60600 0 66000"), ask(126_600, "c rt", "60", "$none $slow $none $none", "0 0 1 2 126600 126600 0 0"),
		},
	},
	{ // R09
		Name:  "shared: the provider's budget bounds all its targets, and the longer wait is told",
		Given: []string{known},
		Calls: []luatest.Step{
			ask(0, "a rt", "0", "$none $none $rpm10 $none", "0 0 1 2 0 0 0 0"), ask(0, "b rt", "0", "$rpm10 $none $rpm10 $none", "10 6000 1 2 0 0 0 6000"),
			ask(0, "c rt", "0", "$minute2 $none $minute2 $none", "0 0 2 2 0 0 0 0"),
		},
	},
	{ // C12
		Name: "rates: a wipe fills no budget",
		Calls: []luatest.Step{
			admit(0, "x rt", "13 15000 0 0 0 0 0 15000"), ask(15_000, "a rt", "0", "$minute2 $none $none $none", "8 25000 0 2 0 15000 0 25000"),
			ask(40_000, "a rt", "0", "$minute2 $none $none $none", "0 0 1 2 40000 40000 0 0"),
		},
	},
}

var breakerCases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{ // H17, D6: threshold 2, cooldown 1 s
		Name:  "breaker: failures open it, throttles count for nothing, one probe at a time closes it",
		Given: []string{known, "ZADD $rt @9000 a @9000 b @9000 c @9000 d"},
		Calls: []luatest.Step{
			broken(0, "a rt failed", "1 0"), settle(0, "b rt throttled", "1 0"), settle(1, "c rt failed", "1 0"), broken(2, "d rt failed", "1 1000"),
			admit(2, "e rt", "12 1000 0 2 0 2 0 1000"),
			admit(1002, "e rt", "0 0 1 2 1002 1002 0 0"), admit(1003, "f bulk", "12 1000 1 2 0 1003 0 1000"),
			settle(1004, "e rt throttled", "1 0"), admit(1005, "g rt", "0 0 1 2 1005 1005 0 0"), settle(1006, "g rt ok", "1 0"),
			admit(1007, "h rt", "0 0 1 2 1007 1007 0 0"), admit(1007, "i rt", "0 0 2 2 1007 1007 0 0"),
		},
	},
	{
		Name:  "breaker: a probe that fails opens it again, one that lapses gives its place away",
		Given: []string{known, "ZADD $rt @9000 a @9000 b"},
		Calls: []luatest.Step{
			broken(0, "a rt failed", "1 0"), broken(0, "b rt failed", "1 1000"), admit(1000, "c rt", "0 0 1 2 1000 1000 0 0"),
			admit(1099, "d rt", "12 1000 1 2 0 1099 0 1000"), admit(1100, "d rt", "0 0 1 2 1100 1100 0 0"), broken(1150, "d rt failed", "1 1000"),
			admit(1151, "e rt", "12 999 0 2 0 1151 0 999"),
		},
	},
	{
		Name:  "breaker: a few failures among many answers, or spread over time, do not open it",
		Given: []string{known, "ZADD $rt @90000 a @90000 b @90000 c @90000 d @90000 e"},
		Calls: []luatest.Step{
			broken(0, "a rt failed", "1 0"), settle(0, "b rt ok", "1 0"), settle(0, "c rt ok", "1 0"), settle(0, "d rt ok", "1 0"),
			broken(0, "e rt failed", "1 0"), admit(60_000, "f rt", "0 0 1 2 60000 60000 0 0"), broken(60_001, "f rt failed", "1 0"),
		},
	},
	{
		Name:  "breaker: what began before it opened decides nothing",
		Given: []string{known, "ZADD $rt @9000 a @9000 b @9000 c @9000 d"},
		Calls: []luatest.Step{
			broken(0, "a rt failed", "1 0"), broken(0, "b rt failed", "1 1000"), settle(1, "c rt ok", "1 999"), broken(999, "d rt failed", "1 1"),
			admit(1000, "e rt", "0 0 1 2 1000 1000 0 0"),
		},
	},
	{
		Name:  "breaker: a refused call is no probe",
		Given: []string{known, "ZADD $rt @9000 a @9000 b @9000 x @9000 y"},
		Calls: []luatest.Step{
			broken(0, "a rt failed", "1 0"), broken(0, "b rt failed", "1 1000"), admit(1000, "e rt", "1 100 2 2 0 1000 0 1000"),
			settle(1001, "x rt abandoned", "1 0"), admit(1002, "f rt", "0 0 2 2 1002 1002 0 0"),
		},
	},
}

func broken(at int64, end, reply string) luatest.Step {
	return do("settle", at, end+" @0 @0 0 0 0 1 $law $none $none $none $none $breaker 100 1", reply)
}
