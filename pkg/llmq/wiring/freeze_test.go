package wiring

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/relay"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// counted is a provider that answers at once and counts.
type counted struct{ calls atomic.Int32 }

func (c *counted) Call(context.Context, provider.Request) (*provider.Response, error) {
	c.calls.Add(1)
	return ok(`{"x":1}`), nil
}

// H30 a: a deadline holds for a command that has been sent, too.
func TestTake_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	wire := llmqtest.NewWire(t, server.Addr())
	rdb := dial(t, server, wire.Addr(), false, 5*time.Second)
	p := newProcess(t, rdb, preset(t, rdb))
	take := func(id string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var b luascript.Batch
		r := request(id)
		taken := p.claims.Take(&b, r, claims.BodyHash(r), p.stops.Owner())
		if err := b.Run(ctx, rdb); err != nil {
			return err
		}
		_, err := taken()
		return err
	}
	if err := take("warm", 5*time.Second); err != nil {
		t.Fatalf("take: %v", err)
	}
	wire.Delay(2 * time.Second)
	start := time.Now()
	if err := take("r-1", 300*time.Millisecond); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("take = %v, want queue_unavailable", err)
	}
	took := time.Since(start)
	t.Logf("given up after %v", took)
	if took < 300*time.Millisecond || took > 1500*time.Millisecond {
		t.Errorf("given up after %v, want about 300 ms", took)
	}
}

// H30 a at the worker: no claim, no call; the message goes back before a reply could have come.
func TestWorker_SlowStoreIsGivenUp(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	wire := llmqtest.NewWire(t, server.Addr())
	rdb := dial(t, server, wire.Addr(), false, 300*time.Millisecond)
	calls := &counted{}
	p := newProcess(t, rdb, preset(t, rdb))
	w := p.worker("w", calls)
	if got := handle(t.Context(), w, message("warm")); got != "ack ok" {
		t.Fatalf("warm: %s", got)
	}
	wire.Delay(2 * time.Second)
	start := time.Now()
	if got := handle(t.Context(), w, message("r-1")); got != "keep store_unavailable" {
		t.Errorf("r-1: %s", got)
	}
	took := time.Since(start)
	t.Logf("handed back after %v", took)
	if took > 2*time.Second || calls.calls.Load() != 1 {
		t.Errorf("handed back after %v with %d provider calls, want no second one", took, calls.calls.Load()-1)
	}
}

// many warms a worker until its pool holds all the connections it may.
func many(t *testing.T, w *worker.Worker, ids ...string) {
	t.Helper()
	var batch []queue.Message
	for _, id := range ids {
		batch = append(batch, message(id))
	}
	for i, out := range w.Handle(t.Context(), batch) {
		if out.Action != worker.Ack {
			t.Fatalf("%s: %+v", ids[i], out)
		}
	}
}

// wantQuiet fails when a log tells of trouble.
func wantQuiet(t *testing.T, log *syncBuffer) {
	t.Helper()
	if text := log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the log tells of trouble:\n%s", text)
	}
}

// H30 b: the server has closed every pooled connection; the next message is served at its first delivery.
func TestWorker_KilledConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	rdb := dial(t, server, server.Addr(), false, 500*time.Millisecond)
	calls := &counted{}
	p := newProcess(t, rdb, preset(t, rdb))
	w := p.worker("w", calls)
	many(t, w, "a", "b", "c", "d", "e", "f", "g", "h")
	for _, id := range []string{"r-1", "r-2", "r-3"} {
		admin := direct(t, server)
		for _, kind := range []string{"pubsub", "normal"} {
			if err := admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err(); err != nil {
				t.Fatalf("client kill: %v", err)
			}
		}
		if got := handle(t.Context(), w, message(id)); got != "ack ok" {
			t.Errorf("%s: %s", id, got)
		}
	}
	if n := calls.calls.Load(); n != 11 {
		t.Errorf("%d provider calls, want 11", n)
	}
	wantQuiet(t, p.log)
}

// H30 b as a load balancer makes it: nobody has told the client, and each pooled connection is reset by its next use. The repeat
// of a command must not be wasted on another of them.
func TestWorker_LapsedConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	link, err := relay.New(t.Context(), server.Addr())
	if err != nil {
		t.Fatalf("relay: %v", err)
	}
	t.Cleanup(link.Close)
	rdb := dial(t, server, link.Addr(), false, 500*time.Millisecond)
	space := preset(t, direct(t, server))
	calls := &counted{}
	p := newProcess(t, rdb, space)
	w := p.worker("w", calls)
	many(t, w, "a", "b", "c", "d", "e", "f", "g", "h")
	if open := link.Counts().Open; open < 3 {
		t.Fatalf("%d connections are pooled; with so few the test says nothing", open)
	}
	link.Lapse()
	for _, id := range []string{"r-1", "r-2", "r-3"} {
		if got := handle(t.Context(), w, message(id)); got != "ack ok" {
			t.Errorf("%s: %s", id, got)
		}
	}
	if n := calls.calls.Load(); n != 11 {
		t.Errorf("%d provider calls, want 11", n)
	}
	wantQuiet(t, p.log)
}

// H30 c: the connection dies after the claim was written and before its answer is read. The repeat of the same owner finds its
// own claim; so does one that asks anew.
func TestWorker_LostAnswerOfAClaimIsItsOwn(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	wire := llmqtest.NewWire(t, server.Addr())
	rdb := dial(t, server, wire.Addr(), false, 500*time.Millisecond)
	calls := &counted{}
	p := newProcess(t, rdb, preset(t, rdb))
	w := p.worker("w", calls)
	if got := handle(t.Context(), w, message("warm")); got != "ack ok" {
		t.Fatalf("warm: %s", got)
	}
	wire.Trips()
	wire.Lose("evalsha")
	if got := handle(t.Context(), w, message("r-1")); got != "ack ok" {
		t.Errorf("r-1: %s", got)
	}
	trips, _ := split(wire.Trips())
	if len(trips) != 3 {
		t.Errorf("round trips %v, want the lost one, its repeat and the end", trips)
	}
	if n := calls.calls.Load(); n != 2 {
		t.Errorf("%d provider calls, want one each", n)
	}
	if m := p.stored("r-1").Reply.Meta; m.Attempts != 1 || m.Takeovers != 0 {
		t.Errorf("meta %+v, want one attempt and no takeover", m)
	}
	if fence := rdb.HGet(t.Context(), p.space.Call(tenant, request("r-1").RID()).Claim, "fence").Val(); fence != "1" {
		t.Errorf("fence %s, want that of one take", fence)
	}
	wantQuiet(t, p.log)
}
