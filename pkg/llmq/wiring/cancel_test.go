package wiring

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// fake serves the fake provider on a socket, and makes the adapter that calls it.
func fake(t testing.TB) (*server.Server, provider.Provider) {
	t.Helper()
	f, err := server.New(server.Options{APIKeys: []string{"fake-key"}})
	if err != nil {
		t.Fatalf("fake provider: %v", err)
	}
	srv := httptest.NewServer(f)
	t.Cleanup(func() { f.Close(); srv.Close() })
	n := provider.DefaultNetwork()
	n.Loopback = true
	p, err := openai.New(openai.Config{
		Name: "fake", BaseURL: srv.URL + "/v1", Network: n,
		APIKey: func(context.Context) (string, error) { return "fake-key", nil },
	})
	if err != nil {
		t.Fatalf("provider: %v", err)
	}
	return f, p
}

// figures are the p50, p99 and maximum of some times.
func figures(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("p50 %v, p99 %v, max %v", d[len(d)/2].Round(10*time.Microsecond), d[len(d)*99/100].Round(10*time.Microsecond), d[len(d)-1].Round(10*time.Microsecond))
}

// A5, DS29: from the moment when a cancel has returned until the provider sees its connection closed, and until the slot is
// free in the store. The goal is a p99 of 20 ms on a machine that does nothing else; it is printed and not held, since this one may
// be busy. What is held is that no cancel waits for a renewal or a lease.
func TestCancel_FreesSlotAndSocketAtOnce(t *testing.T) {
	t.Parallel()
	const cancels, most = 250, 5 * time.Second
	store := realValkey(t, true)
	admin := direct(t, store)
	space := preset(t, admin)
	f, calls := fake(t)
	hung := make([]server.Reply, cancels)
	for i := range hung {
		hung[i] = server.Reply{Hang: true}
	}
	if err := f.Program(server.Match{}, hung...); err != nil {
		t.Fatalf("program: %v", err)
	}
	workers := newProcess(t, dial(t, store, store.Addr(), true, 5*time.Second), space)
	caller := newProcess(t, dial(t, store, store.Addr(), true, 5*time.Second), space)
	watcher := newProcess(t, admin, space)
	w, c := workers.worker("w", calls), caller.client(noQueue{})
	var closed, freed, told []time.Duration
	for i := range cancels {
		id := fmt.Sprintf("c-%d", i)
		ended := make(chan string, 1)
		go func() { ended <- handle(t.Context(), w, chat(id)) }()
		if err := f.AwaitInFlight(within(t, most), "", 1); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		sent := time.Now()
		got, err := c.Cancel(t.Context(), tenant, id)
		start := time.Now()
		if err != nil || !got.Running {
			t.Fatalf("cancel %s = %+v, %v; want it running", id, got, err)
		}
		gone := make(chan time.Duration, 1)
		go func() {
			if err := f.AwaitInFlight(within(t, most), "", 0); err != nil {
				t.Errorf("%s: the upstream socket stays open: %v", id, err)
			}
			gone <- time.Since(start)
		}()
		for watcher.inUse() > 0 {
			if time.Since(start) > most {
				t.Fatalf("%s: the slot is held", id)
			}
		}
		freed, told = append(freed, time.Since(start)), append(told, start.Sub(sent))
		closed = append(closed, <-gone)
		if end := <-ended; end != "ack cancelled" {
			t.Fatalf("%s: %s", id, end)
		}
	}
	t.Logf("%d cancels of running attempts; cancel's own round trip: %s", cancels, figures(told))
	t.Logf("from its return until the upstream socket is closed: %s", figures(closed))
	t.Logf("until the slot is free in the store: %s", figures(freed))
	for _, call := range f.Calls() {
		if call.Outcome != server.Aborted {
			t.Errorf("a call ended as %s", call.Outcome)
		}
	}
	if n := len(f.Calls()); n != cancels {
		t.Errorf("%d provider calls, want %d", n, cancels)
	}
}

// chat is a message whose body a provider understands.
func chat(id string) queue.Message {
	m := message(id)
	m.Body = []byte(strings.Replace(string(m.Body), `{"for":"`+id+`"}`, `{"model":"chat-a","messages":[{"role":"user","content":"`+id+`"}]}`, 1))
	return m
}

// inUse is how many slots of the one target are held.
func (p *process) inUse() int {
	p.t.Helper()
	var b luascript.Batch
	peeked := p.gate.Peek(&b, target())
	if err := b.Run(p.t.Context(), p.valkey); err != nil {
		p.t.Fatalf("peek: %v", err)
	}
	state, err := peeked()
	if err != nil {
		p.t.Fatalf("peek: %v", err)
	}
	return state.InUse
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
