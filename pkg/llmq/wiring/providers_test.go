package wiring

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// D8: what a program registered makes the providers of its type, from what the file says of them.
func TestProviders_OfATypeOfOnesOwn(t *testing.T) {
	t.Parallel()
	cfg := config.Default(config.KindLocal)
	cfg.Routing.DeniedHosts = []string{"evil.test"}
	cfg.Providers = []config.Provider{{Name: "own", Type: "acme", BaseURL: "https://llm.acme.test"}}
	var got ProviderConfig
	p := &Process{Config: cfg, makers: map[config.ProviderType]NewProvider{"acme": func(c ProviderConfig) (provider.Provider, error) {
		got = c
		return callFunc(func(context.Context, provider.Request) (*provider.Response, error) { return ok(`{"by":"acme"}`), nil }), nil
	}}}
	made, err := p.providers()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := made["own"].Call(t.Context(), provider.Request{Body: []byte(`{}`)})
	if err != nil || string(reply.Body) != `{"by":"acme"}` {
		t.Errorf("%+v %v", reply, err)
	}
	if got.Name != "own" || got.BaseURL != "https://llm.acme.test" || got.Key != nil || !got.Network.Denied("a.evil.test") {
		t.Errorf("made from %+v", got)
	}
	p.makers["acme"] = func(ProviderConfig) (provider.Provider, error) { return nil, errors.New("no such plan") }
	if _, err := p.providers(); err == nil || !strings.Contains(err.Error(), "provider own: no such plan") {
		t.Errorf("err = %v", err)
	}
}
