package egress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestNew_ChecksBaseURL(t *testing.T) {
	t.Parallel()
	private := provider.DefaultNetwork()
	private.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	denying := private // D8: denied hosts win
	denying.Denied = func(host string) bool { return host == "api.openai.com" || host == "vllm.internal" }
	tests := []struct {
		name, base string
		network    provider.Network
		want       string // the base in its normal form; "" where it is refused
		fault      string
	}{
		{"public", "https://api.openai.com/v1", provider.DefaultNetwork(), "https://api.openai.com/v1", ""},
		{"capitals, dots and slashes", "HTTPS://API.OpenAI.com./v1//", provider.DefaultNetwork(), "https://api.openai.com/v1", ""},
		{"port", "https://llm.example:8443", provider.DefaultNetwork(), "https://llm.example:8443", ""},
		{"private over http", "http://vllm.internal:8000/v1", private, "http://vllm.internal:8000/v1", ""},
		{"private address", "http://10.1.2.3:8000", private, "http://10.1.2.3:8000", ""},
		{"local", "http://127.0.0.1:1234/v1", local(), "http://127.0.0.1:1234/v1", ""},
		{"local over IPv6", "http://[::1]:1234", local(), "http://[::1]:1234", ""},
		{"local over IPv6 without a port", "http://[::1]/v1", local(), "http://[::1]/v1", ""},
		{"public over http", "http://api.openai.com/v1", provider.DefaultNetwork(), "", "must be https"},
		{"public address", "https://1.1.1.1/v1", provider.DefaultNetwork(), "", "not an address"},
		{"public IPv6 address", "https://[2606:4700::1111]/v1", provider.DefaultNetwork(), "", "not an address"},
		{"other scheme", "ftp://api.openai.com", provider.DefaultNetwork(), "", "must begin with https"},
		{"denied", "https://API.OpenAI.com./v1", denying, "", "is denied"},
		{"denied though it is private", "http://vllm.internal:8000/v1", denying, "", "is denied"},
		{"not denied", "https://llm.example", denying, "https://llm.example", ""},
		{"no scheme", "api.openai.com/v1", provider.DefaultNetwork(), "", "must begin with https"},
		{"empty", "", provider.DefaultNetwork(), "", "names no host"},
		{"password", "https://u:hunter2@api.openai.com", provider.DefaultNetwork(), "", "no user or password"},
		{"password that breaks the URL", "https://u:hunter2 %zz@api.openai.com:x", provider.DefaultNetwork(), "", "can't be parsed"},
		{"query", "https://api.openai.com?key=1", provider.DefaultNetwork(), "", "no query"},
		{"fragment", "https://api.openai.com#x", provider.DefaultNetwork(), "", "no query or fragment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := New(tt.base, tt.network)
			if tt.want != "" {
				if err != nil {
					t.Fatalf("New(%q): %v", tt.base, err)
				}
				if got := c.Base(); got != tt.want {
					t.Errorf("New(%q).Base() = %q, want %q", tt.base, got, tt.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Fatalf("New(%q) = %v, want an error that says %q", tt.base, err, tt.fault)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("New(%q) shows the password: %v", tt.base, err)
			}
		})
	}
}

func TestNew_NamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := New("http://u@", provider.Network{AllowedCIDRs: []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")}})
	if err == nil {
		t.Fatal("New took a network without any bound")
	}
	for _, want := range []string{"no host", "no user", "MaxIdle", "ConnectTimeout", "ReadTimeout", "invalid Prefix", "::ffff:10.0.0.0/104"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("New does not say %q: %v", want, err)
		}
	}
}

func TestClient_RefusesOtherOrigins(t *testing.T) {
	t.Parallel()
	c := open(t, "https://api.openai.com/v1", provider.DefaultNetwork(), hooks{})
	for _, url := range []string{
		"http://api.openai.com/v1", "https://api.openai.com:8443/v1", "https://api.openai.com.evil.example/v1",
		"https://evil.example/api.openai.com", "https://api.openai.co", "https://xapi.openai.com",
	} {
		if _, err := c.Do(post(t, url, "{}")); !isOrigin(err) {
			t.Errorf("Do(%s) = %v, want a refusal", url, err)
		}
	}
	req := post(t, "https://api.openai.com/v1", "{}")
	req.Host = "evil.example"
	if _, err := c.Do(req); !isOrigin(err) {
		t.Errorf("Do with another Host = %v, want a refusal", err)
	}
	for _, url := range []string{"https://api.openai.com/v1/x", "https://API.openai.com:443/y", "https://api.openai.com./z"} {
		if !c.owns(post(t, url, "").URL) {
			t.Errorf("%s is not taken for the origin that it names", url)
		}
	}
}

func TestClient_SpeaksOnlyHTTP1AndNewTLS(t *testing.T) {
	t.Parallel()
	c := open(t, "https://api.openai.com", provider.DefaultNetwork(), hooks{})
	if p := c.transport.transport.Protocols; p.HTTP2() || p.UnencryptedHTTP2() || !p.HTTP1() {
		t.Errorf("protocols = %v, want HTTP/1 alone", p)
	}
	if c.transport.transport.TLSClientConfig.InsecureSkipVerify {
		t.Error("certificates are not verified")
	}
}
