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
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	store "github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// instant is a provider that answers at once.
type instant struct{}

func (instant) Call(context.Context, provider.Request) (*provider.Response, error) {
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"id":"x","choices":[]}`)}, nil
}

// handOver is a queue that gives each message to a worker at once, so that what is
// measured is llmq and not somebody's queue.
type handOver struct {
	messages chan queue.Message
}

func (q *handOver) Send(_ context.Context, name queue.Name, m queue.Outgoing) error {
	q.messages <- queue.Message{ID: "m", Receipt: "r", Queue: name, Body: m.Body, SentAt: time.Now(), Attributes: m.Attributes}
	return nil
}

func (q *handOver) Extend(_ context.Context, _ queue.Name, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

func (q *handOver) Depth(context.Context, queue.Name) (queue.Depth, error) { return queue.Depth{}, nil }

// BenchmarkOneCall is a call through the door, the client, the engine and the worker in
// one process, with a real Valkey, a queue that hands over at once and a provider that
// answers at once: llmq's own time and allocations, without HTTP servers and AWS's SDK.
func BenchmarkOneCall(b *testing.B) {
	server, err := valkey.Start(b.Context(), valkey.Options{Engine: valkey.Real, Standalone: true})
	if err != nil {
		b.Skipf("needs valkey-server: %v", err)
	}
	b.Cleanup(func() { server.Close() })
	door, w, q := oneProcess(b, server)
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
		req.Header.Set("Authorization", "Bearer bench-key")
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
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	rdb, err := store.Dial(store.Options{Address: server.Addr(), Password: server.Password(), CommandTimeout: 5 * time.Second, DialTimeout: 5 * time.Second})
	must(err)
	b.Cleanup(func() { rdb.Close() })
	log := slog.New(slog.DiscardHandler)
	catalogue := llmq.NewCatalogue([]llmq.Model{{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{
		{Model: "chat-a", Name: "main", Provider: "p", ModelID: "m", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 20},
	}}})
	space, names := keys.New("bench"), queue.Names{Prefix: "llm"}
	must(capacity.PresetStore(context.Background(), rdb, "bench"))
	cl, gate := claims.New(space), capacity.New(space)
	res := results.New(rdb, space, noBodies{}, 200<<10)
	hub, stops := results.NewHub(res), claims.NewStops(rdb, space)
	b.Cleanup(func() { hub.Close(); stops.Close() })
	q := &handOver{messages: make(chan queue.Message, 1)}

	c, err := client.New(client.Config{Names: names, Catalogue: catalogue, InlineMaxBytes: 200 << 10},
		client.Deps{Valkey: rdb, Queue: q, Claims: cl, Results: res, Hub: hub, Bodies: noBodies{}, Log: log})
	must(err)
	auth, err := httpapi.NewStaticKeys([]httpapi.StaticKey{{ID: "bench", Tenant: "bench", Secret: "bench-key"}})
	must(err)
	door, err := httpapi.New(httpapi.DefaultConfig(), httpapi.Deps{
		Calls: c, Authenticator: auth, Catalogue: catalogue, Logger: log, HashID: func(id string) string { return id },
	})
	must(err)
	e, err := engine.New(engine.Config{Worker: "bench", AttemptTimeout: time.Minute, RTCapacityWait: time.Second, Retry: retry.Default()}, engine.Deps{
		Valkey: rdb, Catalogue: catalogue, Claims: cl, Stops: stops, Capacity: gate, Results: res, Providers: map[string]provider.Provider{"p": instant{}}, Log: log,
	})
	must(err)
	timeouts := map[llmq.Lane]worker.Timeouts{}
	for _, l := range llmq.Lanes() {
		timeouts[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	w, err := worker.New(worker.Config{Names: names, Catalogue: catalogue, Timeouts: timeouts}, worker.Deps{Queue: q, Engine: e, Bodies: noBodies{}, Log: log})
	must(err)
	return door, w, q
}
