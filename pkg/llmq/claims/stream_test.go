package claims

import "github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"

// The cases of streams: 10 bytes are kept, until 1300. They prove what is the scripts' part of FEATURES A22 and DS49.
const (
	brokenAsk = "brokeX @1000 300 5000 wake"
	keep10    = " 10 @1300 wake"
)

var streamCases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name: "append: pieces by the offsets of their ends",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 abc"+keep10, "1"), do("append", 0, "A 1 3 de"+keep10, "1"),
		},
		State: map[string]string{
			"st":  "3-0=[abc] 5-0=[de] expires=@1300",
			"clm": "attempts=0 fence=1 hash=h owner=A state=running streamed=5 takeovers=0 trying=1 until_ms=@100 expires=@6000",
		},
	},
	{
		Name: "append: said again, with more behind it, nothing is kept twice",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 abc"+keep10, "1"), do("append", 0, "A 1 0 abc"+keep10, "1"),
			do("append", 0, "A 1 0 abcdef"+keep10, "1"), do("append", 0, "A 1 3 def"+keep10, "1"), do("append", 0, "A 1 3 defg"+keep10, "1"),
		},
		State: map[string]string{"st": "3-0=[abc] 6-0=[def] 7-0=[g] expires=@1300"},
	},
	{
		Name: "append: the last bytes are kept, and a piece more at most",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 abcde"+keep10, "1"), do("append", 0, "A 1 5 fghij"+keep10, "1"),
			do("append", 0, "A 1 10 klm"+keep10, "1"), do("append", 0, "A 1 13 nop"+keep10, "1"),
		},
		State: map[string]string{"st": "10-0=[fghij] 13-0=[klm] 16-0=[nop] expires=@1300"},
	},
	{
		Name: "append: a piece larger than what is kept is a gap",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 ab"+keep10, "1"), do("append", 0, "A 1 2 cdefghijklmn"+keep10, "1"), do("append", 0, "A 1 14 o"+keep10, "1"),
		},
		State: map[string]string{
			"st":  "15-0=[o] expires=@1300",
			"clm": "attempts=0 fence=1 hash=h owner=A state=running streamed=15 takeovers=0 trying=1 until_ms=@100 expires=@6000",
		},
	},
	{
		Name: "append: by the claim's owner alone",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "B 1 0 x"+keep10, "0"), do("append", 0, "A 2 0 x"+keep10, "0"), do("append", 0, "A 1 0 a"+keep10, "1"),
			do("take", 100, takeB, "1 2 1 1 0 0"), do("append", 0, "A 1 1 x"+keep10, "0"), do("finish", 110, finishB2, "1"), do("append", 0, "B 2 1 x"+keep10, "0"),
		},
		State: map[string]string{"st": "1-0=[a] expires=@1300"},
	},
	{
		Name:  "append: not after a deferral",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("defer", 5, "A 1 500 1 p 5000", "1"), do("append", 0, "A 1 0 x"+keep10, "0")},
		State: map[string]string{"st": ""},
	},
	{
		Name:  "append: a cancelled request's owner is told",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("cancel", 5, cancelling, "2 1"), do("append", 0, "A 1 0 a"+keep10, "2"), do("append", 0, "A 1 0 a"+keep10, "2")},
		State: map[string]string{"st": "1-0=[a] expires=@1300"},
	},
	{
		Name:  "append: after a wipe goes on where it was, and leaves the claim to a renewal",
		Calls: []luatest.Step{do("append", 0, "A 1 7 abc"+keep10, "1"), do("renew", 10, renewA1, "1"), do("append", 0, "A 1 10 d"+keep10, "1"), do("broken", 110, brokenAsk, "1 0")},
		State: map[string]string{
			"st":  "10-0=[abc] 11-0=[d] expires=@1300",
			"clm": "attempts=0 fence=2 owner= progress=p state=done streamed=11 trying=0 until_ms=@110 expires=@6000", "res": "brokeX expires=@1300",
		},
	},
	{
		Name: "broken: not while the owner lives, then once, and the owner stores nothing",
		Calls: []luatest.Step{
			do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 a"+keep10, "1"), do("broken", 99, brokenAsk, "-1 1"), do("broken", 100, brokenAsk, "1 0"), do("broken", 101, brokenAsk, "0 0"),
			do("finish", 102, finishA1, "0"), do("append", 0, "A 1 1 x"+keep10, "0"), do("renew", 103, renewA1, "0"), do("take", 104, takeB, "0 2 0 0 0 0"),
		},
		State: map[string]string{"res": "brokeX expires=@1300"},
	},
	{
		Name:  "broken: past the deadline its result lives on from now",
		Calls: []luatest.Step{do("take", 950, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 a"+keep10, "1"), do("broken", 2000, brokenAsk, "1 0")},
		State: map[string]string{"res": "brokeX expires=@2300", "clm": "attempts=0 fence=2 hash=h owner= state=done streamed=1 takeovers=0 trying=1 until_ms=@1050 expires=@7000"},
	},
	{
		Name:  "broken: not where nothing was said, nor over another end",
		Calls: []luatest.Step{do("broken", 0, brokenAsk, "-2 0"), do("take", 0, takeA, "1 1 0 0 0 0"), do("broken", 500, brokenAsk, "-2 0"), do("finish", 510, finishA1, "1"), do("broken", 520, brokenAsk, "0 0")},
		State: map[string]string{"res": "replyA expires=@1300"},
	},
	{
		Name:  "broken: a cancellation is told by whoever takes it",
		Calls: []luatest.Step{do("take", 0, takeA, "1 1 0 0 0 0"), do("append", 0, "A 1 0 a"+keep10, "1"), do("cancel", 10, cancelling, "2 1"), do("broken", 200, brokenAsk, "-2 0"), do("take", 210, takeB, "1 2 1 1 0 1")},
		State: map[string]string{"res": ""},
	},
}
