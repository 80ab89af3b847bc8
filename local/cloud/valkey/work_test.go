package valkey_test

import (
	"errors"
	"testing"

	"github.com/llm-queue/llmq/local/cloud/valkey"
)

// F6: what a script runs counts, each command by itself; the look at the counts does not.
func TestWork_CountsCommandsOfScriptsToo(t *testing.T) {
	t.Parallel()
	needReal(t)
	s := start(t, valkey.Options{Engine: valkey.Real, Standalone: true})
	before, err := s.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	value := make([]byte, 5000)
	if err := c.Set(t.Context(), "k", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Eval(t.Context(), `redis.call("GET", KEYS[1]) return redis.call("GET", KEYS[1])`, []string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	after, err := s.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// SET, EVAL, two GET, and what a connection begins with.
	if n := after.Commands - before.Commands; n < 4 || n > 8 {
		t.Errorf("%d commands, want the 4 and a few of connections", n)
	}
	if n := after.Bytes - before.Bytes; n < 10_000 || n > 30_000 {
		t.Errorf("%d bytes, want 5,000 each way and the rest", n)
	}
}

func TestWork_InProcessIsNotCounted(t *testing.T) {
	t.Parallel()
	if _, err := start(t, valkey.Options{Engine: valkey.InProcess}).Work(t.Context()); !errors.Is(err, valkey.ErrNotCounted) {
		t.Errorf("err = %v", err)
	}
}
