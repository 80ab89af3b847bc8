package wiring

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/secrets"
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

// D9: who set OPENAI_BASE_URL is told which variable to mend where the endpoint refuses the key, or wants one; of a deployment's secret
// callers are told nothing.
func TestProviders_RefusedKeyTellsWhatToMend(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":{"message":"Incorrect API key provided: sk-wrong","code":"invalid_api_key"}}`))
	}))
	t.Cleanup(srv.Close)
	env := []string{"OPENAI_BASE_URL=" + srv.URL + "/v1"}
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"a wrong key": {append([]string{"OPENAI_API_KEY=sk-wrong-key-0123456789"}, env...), "status 401: it refuses the key in OPENAI_API_KEY,"},
		"no key":      {env, "status 401: it wants a key and is sent none; set OPENAI_API_KEY beside OPENAI_BASE_URL,"},
	} {
		c, _, found, err := config.FromOpenAIEnv(tc.env, nil)
		if err != nil || !found {
			t.Fatalf("%s: %v %v", name, found, err)
		}
		p := &Process{Config: config.Default(config.KindLocal), secrets: secrets.NewResolver(tc.env, nil)}
		made, err := p.provider(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = made.Call(t.Context(), provider.Request{Op: llmq.OpChat, ModelID: "m", Body: []byte(`{}`)})
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != llmq.CodeProviderAuth || !strings.HasPrefix(e.Message, tc.want) || strings.Contains(e.Message, "sk-wrong") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	deployed := config.Provider{Name: "openai", Type: config.ProviderOpenAI, APIKey: config.Secret{ARN: "arn:aws:secretsmanager:eu-west-1:111122223333:secret:x"}}
	if said := refused(deployed, config.KindAWS); said != "" {
		t.Errorf("on AWS: %q", said)
	}
}
