package capacity

import "github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"

// Leases of 100 ms, two slots. Replies of admit: missing, retry, in use, limit, stamp, at, place, wait.
var slotCases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name:  "admit: up to the cap, then asks again soon",
		Given: []string{known},
		Calls: []luatest.Step{admit(0, "a rt", "0 0 1 2 0 0 0 0"), admit(1, "b rt", "0 0 2 2 1 1 0 0"), admit(2, "c rt", "1 500 2 2 0 2 0 500")},
		State: map[string]string{"rt": "a=@100 b=@101", "pslots": "", "waiting": ""},
	},
	{
		Name:  "admit: again renews the same slot, even when full, and takes nothing again",
		Given: []string{known},
		Calls: []luatest.Step{
			do("admit", 0, "a rt 100 0 0 0 $law $shared $rpm10 $none $none $none", "0 0 1 2 0 0 0 0"), do("admit", 50, "a rt 100 0 0 0 $law $shared $rpm10 $none $none $none", "0 0 1 2 0 0 0 0"),
			do("peek", 50, "$law $rpm10 $none $none $none", "0 1 0 0 0 0 -1 1 -1 1 -1 -1 0 0 0 0 0 0 0 "+unused+idle),
		},
		State: map[string]string{"rt": "a=2000000000150.5", "pslots": "a=2000000000150.5"},
	},
	{
		Name:  "admit: a lapsed slot is free at its last millisecond, and counted as lapsed",
		Given: []string{known, "ZADD $rt @100 x @100 y"},
		Calls: []luatest.Step{admit(99, "b rt", "1 100 2 2 0 99 0 1000"), admit(100, "b rt", "0 0 1 2 100 100 0 0")},
		State: map[string]string{"rt": "b=@200"},
	},
	{
		Name:  "admit: a cap that was lowered admits nothing until below it",
		Given: []string{known, "ZADD $bulk @100 a @200 b @300 c"},
		Calls: []luatest.Step{admit(10, "d rt", "1 100 3 2 0 10 0 1000"), admit(100, "d rt", "1 100 2 2 0 100 0 1000"), admit(200, "d rt", "0 0 2 2 200 200 0 0")},
	},
	{
		Name:  "admit: background leaves a slot to rt, and may always use one",
		Given: []string{known},
		Calls: []luatest.Step{admit(0, "a bulk", "0 0 1 2 0 0 0 0"), admit(0, "b bg", "1 1000 1 2 0 0 0 1000"), admit(0, "c rt", "0 0 2 2 0 0 0 0")},
		State: map[string]string{"rt": "c=@100", "bulk": "a=@100", "bg": ""},
	},
	{
		Name:  "admit: a lane's cap",
		Given: []string{known},
		Calls: []luatest.Step{
			do("admit", 0, "a rt 100 0 0 0 $law $lane $none $none $none $none", "0 0 1 2 0 0 0 0"), do("admit", 0, "b rt 100 0 0 0 $law $lane $none $none $none $none", "6 1000 1 2 0 0 0 1000"),
			admit(0, "c bulk", "0 0 2 2 0 0 0 0"),
		},
	},
	{
		Name:  "admit: the provider's cap counts slots of other targets, and refuses without a trace",
		Given: []string{known, "ZADD $pslots @100 other"},
		Calls: []luatest.Step{
			do("admit", 0, "a rt 100 0 0 0 $law $shared $rpm10 $none $rpm10 $none", "7 100 0 2 0 0 0 1000"),
			do("admit", 100, "a rt 100 0 0 0 $law $shared $rpm10 $none $rpm10 $none", "0 0 1 2 100 100 0 0"),
		},
		State: map[string]string{"rt": "a=@200", "pslots": "a=@200"},
	},
	{
		Name:  "admit: a refused rt call waits until its deadline, the nearest first",
		Given: []string{known, "ZADD $rt @100 x @100 y"},
		Calls: []luatest.Step{
			do("admit", 10, "a rt 100 0 @5000 0 $law $caps $none $none $none $none", "1 100 2 2 0 10 1 1000"),
			do("admit", 10, "b rt 100 0 @4000 0 $law $caps $none $none $none $none", "1 100 2 2 0 10 1 2000"),
			do("admit", 10, "a rt 100 0 @5000 0 $law $caps $none $none $none $none", "1 200 2 2 0 10 2 2000"),
			do("admit", 4000, "c rt 100 0 @4001 0 $law $caps $none $none $none $none", "0 0 1 2 4000 4000 0 0"),
		},
		State: map[string]string{"waiting": "b=@4000 a=@5000"},
	},
	{
		Name:  "admit: who waits looks in within a second, and is told how long one that came anew would wait",
		Given: []string{known, "ZADD $waiting @5000 w1 @5000 w2 @5000 w3 @5000 w4 @5000 w5 @5000 w6 @5000 w7", "HSET $state waits @5000"},
		Calls: []luatest.Step{
			admit(0, "a rt", "0 0 1 2 0 0 0 0"), admit(0, "b rt", "0 0 2 2 0 0 0 0"), settle(1, "a rt ok", "1 0"), settle(1, "b rt ok", "1 0"),
			admit(2, "a2 rt", "0 0 1 2 2 2 0 0"), admit(2, "b2 rt", "0 0 2 2 2 2 0 0"), // four in a second
			do("admit", 3, "first rt 100 0 @4000 0 $law $caps $none $none $none $none", "1 250 2 2 0 3 1 2000"),
			do("admit", 3, "last rt 100 0 @9000 0 $law $caps $none $none $none $none", "1 1000 2 2 0 3 9 2250"),
		},
	},
	{
		Name:  "admit: out of budget, who waits is told when it has as many calls",
		Given: []string{known},
		Calls: []luatest.Step{
			do("admit", 0, "a rt 100 0 0 0 $law $caps $rpm10x2 $none $none $none", "0 0 1 2 0 0 0 0"), do("admit", 0, "b rt 100 0 0 0 $law $caps $rpm10x2 $none $none $none", "0 0 2 2 0 0 0 0"),
			do("admit", 100, "c rt 100 0 @60000 0 $law $caps $rpm10x2 $none $none $none", "8 5900 0 2 0 100 1 5900"),
			do("admit", 100, "d rt 100 0 @50000 0 $law $caps $rpm10x2 $none $none $none", "8 11900 0 2 0 100 1 11900"),
			do("admit", 100, "c rt 100 0 @60000 0 $law $caps $rpm10x2 $none $none $none", "8 5900 0 2 0 100 2 11900"),
		},
	},
	{
		Name:  "admit: a direct call is admitted only beyond the rt calls that wait",
		Given: []string{known, "ZADD $waiting @5000 w @10 gone", "HSET $state waits @5000"},
		Calls: []luatest.Step{
			do("admit", 20, "a rt 100 0 0 1 $law $caps $none $none $none $none", "0 0 1 2 20 20 0 0"), do("admit", 20, "b rt 100 0 0 1 $law $caps $none $none $none $none", "1 1000 1 2 0 20 0 2000"),
			do("admit", 20, "w rt 100 0 @5000 0 $law $caps $none $none $none $none", "0 0 2 2 20 20 0 0"),
		},
		State: map[string]string{"waiting": "gone=@10"},
	},
	{
		Name:  "admit: a wiped store admits nothing for 15 s",
		Calls: []luatest.Step{admit(0, "a rt", "13 15000 0 0 0 0 0 15000"), admit(14_999, "a rt", "13 1 0 0 0 14999 0 1"), admit(15_000, "a rt", "0 0 1 2 15000 15000 0 0")},
		State: map[string]string{"epoch": "@15000"},
	},
	{
		Name:  "admit: a clock that stepped back waits no longer than that",
		Given: []string{"SET $epoch @100000"},
		Calls: []luatest.Step{admit(0, "a rt", "13 15000 0 0 0 0 0 15000")},
		State: map[string]string{"epoch": "@15000"},
	},
	{
		Name:  "renew: registers what is in flight after a wipe, which then holds above the cap if need be",
		Calls: []luatest.Step{do("renew", 0, "100000 0 $l:ab", "2 2"), admit(15_000, "c rt", "1 100 2 2 0 15000 0 1000"), do("renew", 20, "100 1 $l:a", "1 0")},
		State: map[string]string{"epoch": "@15000", "rt": "a=2000000000120.5", "bg": "b=2000000100000.5", "pslots": "a=2000000000120.5"},
	},
	{
		Name:  "settle: frees the slot and counts once",
		Given: []string{known},
		Calls: []luatest.Step{
			admit(0, "a rt", "0 0 1 2 0 0 0 0"), settle(1, "a rt ok", "1 0"), settle(1, "a rt ok", "0 0"), settle(2, "a rt throttled", "0 0"),
			do("peek", 2, "$law $none $none $none $none", "0 0 0 0 0 -1 -1 -1 -1 0 -1 -1 0 0 1 0 0 0 0 1 1 0 0 0 0 "+idle),
		},
	},
	{
		Name:  "settle: undone ends the waiting too, and of a slot that nobody holds nothing else",
		Given: []string{known, "ZADD $waiting @5000 a @5000 b"},
		Calls: []luatest.Step{settle(0, "a rt undone", "0 0"), settle(0, "b bg undone", "0 0")},
		State: map[string]string{"waiting": "b=@5000", "state": ""},
	},
}
