package wiring_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// acme is a vendor that speaks OpenAI's wire and takes no service tiers.
type acme struct{ *openai.Provider }

// Call is one attempt, as [provider.Provider] has it.
func (a acme) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	r.Tier = ""
	return a.Provider.Call(ctx, r)
}

func newAcme(c wiring.ProviderConfig) (provider.Provider, error) {
	p, err := openai.New(openai.Config{Name: c.Name, BaseURL: c.BaseURL, APIKey: c.Key, Network: c.Network})
	return acme{p}, err
}

const acmeFile = `kind: local
env: example
region: eu-central-1
queues: {endpoint_url: "http://127.0.0.1:9", url_base: "http://127.0.0.1:9/000000000000", sender_ids: [llmq]}
valkey: {address: "127.0.0.1:9", cluster: false, tls: false}
storage: {state_bucket: keys, endpoint_url: "http://127.0.0.1:9"}
key_pepper: {env: PEPPER}
providers:
  own: {type: acme, base_url: "https://llm.acme.test/v1", api_key: {env: ACME_KEY}}
models:
  chat:
    targets: [{name: main, provider: own, model_id: acme-1, wires: [openai]}]
`

// environment is that of a program with the example's file.
func environment(dir string) ([]string, error) {
	path := filepath.Join(dir, "llmq.yaml")
	env := []string{"LLMQ_CONFIG=" + path, "PEPPER=" + strings.Repeat("p", 32), "ACME_KEY=k", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s"}
	return env, os.WriteFile(path, []byte(acmeFile), 0o600)
}

// A worker of one's own that calls a vendor whose API is none of llmq's dialects. The configuration says type: acme.
func ExampleWithProvider() {
	dir, err := os.MkdirTemp("", "llmq-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	env, err := environment(dir) // a program has os.Environ()
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := wiring.Start(env, slog.New(slog.DiscardHandler), wiring.WithProvider("acme", newAcme))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = p.Close() }()
	w, err := p.Worker() // lambda.Start gets what hands it the batches
	fmt.Println(w != nil, err)
	// Output: true <nil>
}

// D8: a program that doesn't know a type of its file says so when it starts, and what it knows.
func TestWithProvider_UnknownTypesAreToldAtTheStart(t *testing.T) {
	t.Parallel()
	env, err := environment(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := func(opts ...wiring.Option) *wiring.Process {
		p, err := wiring.New(t.Context(), env, slog.New(slog.DiscardHandler), opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	p := start(wiring.WithProvider("other", newAcme))
	_, worker := p.Worker()
	_, caller := p.Client()
	for _, err := range []error{worker, caller} {
		if !errors.Is(err, llmq.CodeConfiguration) || !strings.Contains(err.Error(), "providers.own.type: this program knows no type acme; it knows bedrock, openai, other") {
			t.Errorf("err = %v, want it to name the types that are known", err)
		}
	}
	c, err := start(wiring.WithProvider("acme", newAcme)).Client()
	if err != nil {
		t.Fatalf("with the type: %v", err)
	}
	c.Close()
}

// What can be no type, or is one already, is told before anything else is read.
func TestWithProvider_RefusesWhatIsNoTypeOfOnesOwn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]wiring.Option{
		"must match":              {wiring.WithProvider("Acme!", newAcme)},
		"the type openai is":      {wiring.WithProvider("openai", newAcme)},
		"the type acme is":        {wiring.WithProvider("acme", newAcme), wiring.WithProvider("acme", newAcme)},
		"without what makes its ": {wiring.WithProvider("acme", nil)},
	} {
		if _, err := wiring.New(t.Context(), nil, slog.New(slog.DiscardHandler), opts...); !errors.Is(err, llmq.CodeConfiguration) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
