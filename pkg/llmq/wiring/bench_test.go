package wiring

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// The key that the benchmark calls with.
var (
	testKeys = authtest.New()
	benchKey = testKeys.Issue(authtest.All("bench", "chat-a")).Key
)

// instant is a provider that answers at once.
type instant struct{}

func (instant) Call(context.Context, provider.Request) (*provider.Response, error) {
	return ok(`{"id":"x","choices":[]}`), nil
}

// handOver is a queue that gives each message to a worker at once, so that what is
// measured is llmq and not somebody's queue.
type handOver struct {
	noQueue
	messages chan queue.Message
}

func (q *handOver) Send(_ context.Context, name queue.Name, m queue.Outgoing) error {
	q.messages <- queue.Message{ID: "m", Receipt: "r", Queue: name, Body: m.Body, SentAt: time.Now(), SenderID: "door", Attributes: m.Attributes}
	return nil
}

// BenchmarkOneCall is a call through the door, the client, the engine and the worker in
// one process, with a real Valkey, a queue that hands over at once and a provider that
// answers at once: llmq's own time and allocations, without HTTP servers and AWS's SDK.
func BenchmarkOneCall(b *testing.B) {
	door, w, q := oneProcess(b, realValkey(b, false))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case m := <-q.messages:
				if out := w.Handle(ctx, []queue.Message{m}); out[0].Action != worker.Ack {
					b.Errorf("outcome = %+v", out)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	b.Cleanup(func() { cancel(); <-done })

	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"model":"chat-a","messages":[{"role":"user","content":"hello, queue"}]}`))
		req.Header.Set("Authorization", "Bearer "+benchKey)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "bench-"+strconv.Itoa(i))
		rec := httptest.NewRecorder()
		door.ServeHTTP(rec, req)
		if rec.Code != http.StatusOK {
			b.Fatalf("answer %d: %s", rec.Code, rec.Body)
		}
	}
}

func oneProcess(b *testing.B, server *valkey.Server) (http.Handler, *worker.Worker, *handOver) {
	b.Helper()
	rdb := direct(b, server)
	p := newProcess(b, rdb, preset(b, rdb))
	p.logger = slog.New(slog.DiscardHandler)
	q := &handOver{messages: make(chan queue.Message, 1)}
	door, err := httpapi.New(httpapi.DefaultConfig(), httpapi.Deps{
		Calls: p.client(q), Keys: testKeys.Checker, Rates: authtest.NoRates{}, Catalogue: catalogue(), Logger: p.logger, HashID: func(id string) string { return id },
	})
	if err != nil {
		b.Fatal(err)
	}
	return door, p.worker("bench", instant{}), q
}
