package claims

import (
	"context"
	"slices"
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
			"submit": {Script: s.submit, Keys: []string{"sub", "clm"}, Timed: true},
			"sent":   {Script: s.sent, Keys: []string{"sub"}},
			"take":   {Script: s.take, Keys: []string{"clm", "res", "sub"}, Timed: true},
			"renew":  {Script: s.renew, Keys: []string{"clm"}, Timed: true},
			"defer":  {Script: s.giveBack, Keys: []string{"clm"}, Timed: true},
			"finish": {Script: s.finish, Keys: []string{"clm", "res", "sub"}, Timed: true},
			"expire": {Script: s.expire, Keys: []string{"clm", "res", "sub"}, Timed: true},
			"cancel": {Script: s.cancel, Keys: []string{"clm", "res", "sub"}, Timed: true},
			"append": {Script: s.append, Keys: []string{"clm", "st"}},
			"broken": {Script: s.broken, Keys: []string{"clm", "res", "sub"}, Timed: true},
		},
		Keys: map[string]string{"sub": k.Submission, "clm": k.Claim, "res": k.Result, "st": k.Stream},
	}
}

func TestScripts_Cases(t *testing.T) {
	t.Parallel()
	servers.Run(t, bench, slices.Concat(cases, streamCases))
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
		"expire": expireText, "cancel": cancelText, "append": appendText, "broken": brokenText,
	} {
		want[text] = luatest.ReadHeader(t, name, text)
	}
	got := map[string]luatest.Header{}
	texts := map[string]string{}
	s := New(luatest.Space())
	for _, script := range []luascript.Script{s.submit, s.sent, s.take, s.renew, s.giveBack, s.finish, s.expire, s.cancel, s.append, s.broken} {
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
	s.Renew(&b, claim, Progress{}, false)
	s.Defer(&b, claim, time.Second, Progress{})
	s.Finish(&b, claim, []byte("{}"), false)
	s.Bury(&b, claim, []byte("{}"))
	s.Expire(&b, r, "h", "A", []byte("{}"))
	s.Cancel(&b, "t", "r", []byte("{}"))
	s.Append(&b, claim, 0, []byte("x"))
	s.Break(&b, r, []byte("{}"))
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
