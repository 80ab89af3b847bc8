package claims

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// E10: the end of a request that is kept lives keep_ms (5000) from then on, whichever end it is, and no shorter than any other's.
var keptCases = []luatest.Case{ //nolint:gochecknoglobals // a table
	{
		Name: "kept: a reply; the take tells, and a repeat without the mark takes nothing back",
		Calls: []luatest.Step{
			do("submit", 0, "h @1000 5000 1", "1 0 1000"), do("submit", 5, "h @1000 5000 0", "0 0 1000"), do("take", 10, takeA, "1 1 0 0 0 2"), do("finish", 50, finishA1, "1"),
		},
		State: map[string]string{
			"sub": "created_ms=@0 deadline_ms=@1000 hash=h kept=1 sent=0 expires=@6000",
			"res": "replyA expires=@5050",
		},
	},
	{
		Name:  "kept: asked for while it runs",
		Calls: []luatest.Step{do("submit", 0, "h @1000 5000 0", "1 0 1000"), do("take", 10, takeA, "1 1 0 0 0 0"), do("submit", 20, "h @1000 5000 1", "0 0 1000"), do("finish", 50, finishA1, "1")},
		State: map[string]string{"res": "replyA expires=@5050"},
	},
	{
		Name:  "kept: cancelled, queued or running",
		Calls: []luatest.Step{do("submit", 0, "h @1000 5000 1", "1 0 1000"), do("take", 10, takeA, "1 1 0 0 0 2"), do("cancel", 20, cancelling, "2 1"), do("take", 30, takeA, "1 1 0 0 0 3"), do("cancel", 500, cancelling, "1 1")},
		State: map[string]string{"res": "gone expires=@5500"},
	},
	{
		Name:  "kept: expired",
		Calls: []luatest.Step{do("submit", 0, "h @1000 5000 1", "1 0 1000"), do("expire", 1000, expireA, "1 0")},
		State: map[string]string{"res": "expA expires=@6000"},
	},
}

func TestScripts_KeptEnds(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, keptCases)
}

// A9, A10: what a request's record and its claim tell of it.
func TestStanding_OfEachState(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(luatest.Space())
		look := func(id string) Standing {
			t.Helper()
			var b luascript.Batch
			stands := s.Standing(&b, "t", id)
			if err := b.Run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			st, err := stands()
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		run := func(add func(b *luascript.Batch)) {
			t.Helper()
			var b luascript.Batch
			add(&b)
			if err := b.Run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		r := llmq.Request{ID: "r-standing", Tenant: "t", Deadline: time.UnixMilli(time.Now().Add(time.Minute).UnixMilli()), Kept: true}
		if got := look(r.ID); got != (Standing{}) {
			t.Errorf("unknown: %+v", got)
		}
		run(func(b *luascript.Batch) { s.Submit(b, r, "h") })
		queued := look(r.ID)
		if !queued.Known || queued.Created.IsZero() || !queued.Deadline.Equal(r.Deadline) || queued.Done || !queued.LeaseEnds.IsZero() {
			t.Errorf("queued: %+v", queued)
		}
		var takes luascript.Pending[Take]
		run(func(b *luascript.Batch) { takes = s.Take(b, r, "h", "A") })
		take, err := takes()
		if err != nil || !take.Claim.Kept || take.Claim.Cancelled {
			t.Fatalf("take: %+v, %v", take, err)
		}
		if got := look(r.ID); time.Until(got.LeaseEnds) <= 0 || got.Done {
			t.Errorf("running: %+v", got)
		}
		run(func(b *luascript.Batch) { s.Append(b, take.Claim, 0, []byte("data: x\n\n")) })
		run(func(b *luascript.Batch) { s.Defer(b, take.Claim, time.Minute, Progress{Attempts: 2}) })
		if got := look(r.ID); got.Attempts != 2 || time.Until(got.Next) <= 0 || got.Streamed != 9 || !got.LeaseEnds.IsZero() {
			t.Errorf("deferred: %+v", got)
		}
		run(func(b *luascript.Batch) { s.Cancel(b, "t", r.ID, []byte("{}")) })
		if got := look(r.ID); !got.Done || !got.Cancelled || got.Dead {
			t.Errorf("cancelled: %+v", got)
		}
	})
}
