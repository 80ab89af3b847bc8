package wiring

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/internal/offload"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// B9: without a bucket a call with a large body and a large reply goes from end to end over the state store; the body
// is there while the call runs, and gone once its message is.
func TestNoBucket_LargeBodiesGoByTheStateStore(t *testing.T) {
	t.Parallel()
	m := llmqtest.NewMiniredis(t)
	rdb := luatest.Pipe(t, m)
	p := newProcess(t, rdb, preset(t, rdb))
	bodies := func() int {
		return len(slices.DeleteFunc(m.Keys(), func(k string) bool { return !strings.Contains(k, ":off:") }))
	}
	large := strings.Repeat("x", 400<<10)
	q := &toWorker{ends: make(chan string, 1), worker: p.worker("w", callFunc(func(_ context.Context, r provider.Request) (*provider.Response, error) {
		if !strings.Contains(string(r.Body), large) || bodies() != 1 {
			t.Errorf("a body of %d bytes arrives, %d are stored", len(r.Body), bodies())
		}
		return ok(`{"reply":"` + large + `"}`), nil
	}))}
	req := request("large")
	req.Body = []byte(`{"for":"` + large + `"}`)
	got, err := p.client(q).Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got.Body), large) {
		t.Errorf("a reply of %d bytes came back", len(got.Body))
	}
	if end := <-q.ends; end != "ack ok" || bodies() != 0 {
		t.Errorf("worker: %s, and %d bodies are left", end, bodies())
	}
	if said := p.log.String(); strings.Contains(said, "body store failed") {
		t.Errorf("said\n%s", said)
	}
}

// The configuration decides: a process without a bucket keeps bodies in the state store.
func TestNoBucket_IsWiredToTheStateStore(t *testing.T) {
	t.Parallel()
	p := &Process{Config: config.Default(config.KindLocal), valkey: luatest.Pipe(t, llmqtest.NewMiniredis(t)), space: keys.New("dev")}
	got, _ := p.storage()
	if _, ok := got.(*offload.Valkey); !ok {
		t.Errorf("with the bucket %q bodies lie in a %T", p.Config.Storage.Bucket, got)
	}
}
