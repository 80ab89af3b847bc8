package openai

import (
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// SEC12: OpenRouter is known by its host, whose members of a body choose vendors.
func TestIsRouted_ByHost(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]bool{
		"https://openrouter.ai/api/v1": true, "https://eu.openrouter.ai/api/v1": true,
		"https://api.openai.com/v1": false, "https://notopenrouter.ai/v1": false, "https://openrouter.ai.x.example/v1": false, "http://vllm:8000/v1": false,
	} {
		if got := isRouted(base); got != want {
			t.Errorf("%s: %t", base, got)
		}
	}
}

// SEC12, SEC13: on a server of one's own, two tenants with the same prompt, and the same salt of their own choice, share no cache. What
// is routed elsewhere passes there.
func TestRequest_SEC13TenantsShareNoCache(t *testing.T) {
	t.Parallel()
	network := provider.DefaultNetwork()
	network.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	p, err := New(Config{Name: "vllm", BaseURL: "http://10.0.0.1:8000/v1", Network: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for _, tc := range []struct {
		op         llmq.Op
		body, want string // @ is the salt
		value      string
	}{
		{llmq.OpChat, `{"model":"m"}`, `{"cache_salt":"@","model":"m"}`, ""},
		{llmq.OpResponses, `{"model":"m","store":false,"cache_salt":null}`, `{"model":"m","store":false,"cache_salt":"@"}`, ""},
		{llmq.OpChat, `{"model":"m","models":["x"],"route":"x","provider":{},"plugins":[],"cache_salt":"s"}`, `{"model":"m","models":["x"],"route":"x","provider":{},"plugins":[],"cache_salt":"@"}`, "s"},
		{llmq.OpEmbeddings, `{"model":"m"}`, `{"model":"m"}`, ""},
	} {
		for _, tenant := range []string{"a", "b"} {
			hreq, _, err := p.request(t.Context(), provider.Request{Op: tc.op, ModelID: "m", Body: []byte(tc.body), Tenant: tenant}, "", p.edits)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := io.ReadAll(hreq.Body)
			if want := strings.Replace(tc.want, "@", provider.Scoped(tenant, tc.value), 1); err != nil || string(sent) != want {
				t.Errorf("%s of %s: sent %s, want %s", tc.op, tc.body, sent, want)
			}
		}
	}
	if provider.Scoped("a", "") == provider.Scoped("b", "") || provider.Scoped("a", "b") == provider.Scoped("ab", "") {
		t.Error("two tenants share a salt")
	}
}
