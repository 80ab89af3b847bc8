package valkey_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud/valkey"
)

// A crash of the deployed store loses everything too: it saves nothing.
func TestRestart_SameAddressNothingKept(t *testing.T) {
	t.Parallel()
	needReal(t)
	dir := t.TempDir()
	s := start(t, valkey.Options{Dir: dir, Engine: valkey.Real})
	if err := dial(t, s).Set(t.Context(), "a", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := s.Done()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-before:
	default:
		t.Error("the first server has not ended")
	}
	if err := dial(t, s).Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after the restart = %v, want no such key", err)
	}
	testServes(t, s)
	testLeavesNothing(t, s, dir)
}

func TestRestart_NotInProcess(t *testing.T) {
	t.Parallel()
	s := start(t, valkey.Options{Engine: valkey.InProcess})
	if err := s.Restart(t.Context()); !errors.Is(err, valkey.ErrNotRestartable) {
		t.Errorf("got %v, want ErrNotRestartable", err)
	}
}
