package results

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// hub is a hub under test, with what tests do to it.
type hub struct {
	*Hub
	client redis.UniversalClient
}

func newHub(t testing.TB, c redis.UniversalClient) hub {
	t.Helper()
	h := hub{NewHub(New(c, luatest.Space(), nil, 1<<20)), c}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close hub: %v", err)
		}
	})
	return h
}

func request(id string) llmq.Request { return llmq.Request{ID: id, Tenant: "t"} }

func (h hub) subscribe(t testing.TB, id string) *Waiter {
	t.Helper()
	w, err := h.Subscribe(t.Context(), request(id))
	if err != nil {
		t.Fatalf("subscribe %s: %v", id, err)
	}
	return w
}

// put stores a result without a word; wake says so.
func (h hub) put(t testing.TB, id string) {
	t.Helper()
	k := h.store.keys.Call("t", request(id).RID())
	if err := h.client.Set(t.Context(), k.Result, "result of "+id, 0).Err(); err != nil {
		t.Fatalf("store: %v", err)
	}
}

func (h hub) wake(t testing.TB, id string) {
	t.Helper()
	k := h.store.keys.Call("t", request(id).RID())
	if err := h.client.Publish(t.Context(), k.Wake, "1").Err(); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

func (h hub) finish(t testing.TB, id string) {
	t.Helper()
	h.put(t, id)
	h.wake(t, id)
}

// wantResult waits for a waiter's own result for at most the given time.
func wantResult(t testing.TB, w *Waiter, id string, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	got, err := w.Result(ctx)
	if want := "result of " + id; err != nil || string(got) != want {
		t.Errorf("waiter of %s got %q, %v; want %q", id, got, err, want)
	}
}
