package live

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

func rpm(n string) config.Overrides {
	return config.Overrides{Models: map[string]config.Values{"a": {"rpm": n}}}
}

// E2: a change is stored with its audit, of the revision that it was made of or not at all.
func TestStore_KeepsChangesInOrder(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(c, luatest.Space())
		st, err := s.Load(t.Context())
		if err != nil || st.Revision != 0 || st.Err != nil {
			t.Fatalf("an empty store: %+v %v", st, err)
		}
		at := time.Unix(1_800_000_000, 0).UTC()
		if got, err := s.Save(t.Context(), 0, rpm("5"), settings.Change{At: at, By: "ops", Verb: "set", Changed: settings.Differences(config.Overrides{}, rpm("5"))}); err != nil || got != 1 {
			t.Fatalf("first change: %d %v", got, err)
		}
		if got, err := s.Save(t.Context(), 0, rpm("6"), settings.Change{}); !errors.Is(err, ErrConflict) || got != 1 {
			t.Errorf("a change of an old revision: %d %v", got, err)
		}
		if got, err := s.Save(t.Context(), 1, rpm("7"), settings.Change{At: at, By: "eve", Verb: "set"}); err != nil || got != 2 {
			t.Errorf("second change: %d %v", got, err)
		}
		st, err = s.Load(t.Context())
		if diff := cmp.Diff(rpm("7"), st.Overrides); err != nil || st.Revision != 2 || st.Err != nil || diff != "" {
			t.Errorf("stored: %+v %v", st, err)
		}
		history, err := s.History(t.Context(), 10)
		if err != nil || len(history) != 2 || history[0].By != "eve" || history[0].Revision != 2 || history[1].By != "ops" || !history[1].At.Equal(at) || *history[1].Changed[0].After != "5" {
			t.Errorf("history: %+v %v", history, err)
		}
	})
}

// A change whose answer was lost is sent again, and is one change; the audit is bounded.
func TestStore_ARepeatIsOneChange(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(c, luatest.Space())
		keys := []string{s.names.Settings, s.names.Audit}
		for i := range 3 { // each of them twice
			for range 2 {
				got, err := c.Eval(t.Context(), s.save.Text(), keys, i, `{"schema":1}`, fmt.Sprint("change-", i), fmt.Sprint(i), 2).Int64Slice()
				if diff := cmp.Diff([]int64{1, int64(i + 1)}, got); err != nil || diff != "" {
					t.Fatalf("change %d: %v %v", i, got, err)
				}
			}
		}
		if got := c.LRange(t.Context(), s.names.Audit, 0, -1).Val(); !cmp.Equal(got, []string{"2", "1"}) {
			t.Errorf("audit: %v", got)
		}
	})
}

// E2: what is stored and can't be read says so, and a later change mends it.
func TestStore_TellsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s := New(c, luatest.Space())
		for document, want := range map[string]error{`{"schema":7}`: settings.ErrNewer, `nonsense`: settings.ErrUnreadable} {
			c.HSet(t.Context(), s.names.Settings, "revision", 4, "document", document)
			if st, err := s.Load(t.Context()); err != nil || st.Revision != 4 || !errors.Is(st.Err, want) {
				t.Errorf("%s: %+v %v", document, st, err)
			}
		}
		if got, err := s.Save(t.Context(), 4, rpm("5"), settings.Change{}); err != nil || got != 5 {
			t.Errorf("saved over it: %d %v", got, err)
		}
		c.Set(t.Context(), s.names.Settings, "of another type", 0)
		if _, err := s.Load(t.Context()); err == nil {
			t.Error("a key of another type is read")
		}
	})
}

func TestScripts_HeadersBodiesAndCallsAgree(t *testing.T) {
	t.Parallel()
	want := luatest.ReadHeader(t, "save", saveText)
	c := luatest.Pipe(t, llmqtest.NewMiniredis(t))
	var got luatest.Header
	c.AddHook(&luatest.Trips{Before: func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if keys, args, ok := luatest.IsScript(cmd); ok {
				got = luatest.Header{Keys: len(keys), Args: len(args)}
			}
		}
		return nil
	}})
	if _, err := New(c, luatest.Space()).Save(t.Context(), 0, config.Overrides{}, settings.Change{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header and call (-header +call):\n%s", diff)
	}
}

func TestScripts_Luacheck(t *testing.T) {
	t.Parallel()
	luatest.Luacheck(t, "lua")
}
