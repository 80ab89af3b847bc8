package config

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// FromOpenAIEnv makes a provider "openai" and a model "default", which takes every
// name, of OPENAI_BASE_URL and OPENAI_API_KEY (FEATURES D9). It reports false where no
// base URL is set: many shells hold a key alone, and what nobody asked for must not be
// paid for. It is for [KindLocal] and the Go client only: on AWS base URLs come from
// the deployed file.
//
// The base URL may be http, and then has to be on loopback or at a private address,
// where no key is needed; else it is https at a host name. One of our own listeners
// (host:port or URL), which `make run` tells people to export under the same name, is
// refused: calls would go in circles. Errors have [llmq.CodeConfiguration].
func FromOpenAIEnv(env, listeners []string) (Provider, Model, bool, error) {
	vars := variables(env)
	raw, hasKey := vars["OPENAI_BASE_URL"], vars["OPENAI_API_KEY"] != ""
	if raw == "" {
		return Provider{}, Model{}, false, nil
	}
	p := Provider{
		Name: "openai", Type: ProviderOpenAI, BaseURL: raw,
		ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second, RemoteMedia: "refuse",
	}
	if hasKey {
		p.APIKey = Secret{Env: "OPENAI_API_KEY"}
	}
	fail := func(format string, args ...any) (Provider, Model, bool, error) {
		return Provider{}, Model{}, false, llmq.Errorf(llmq.CodeConfiguration, format, args...)
	}
	u, problem := parseURL(p.BaseURL)
	if problem != "" {
		return fail("OPENAI_BASE_URL %s", problem)
	}
	for _, l := range listeners {
		if sameListener(u, l) {
			return fail("OPENAI_BASE_URL is %s, where this program itself listens: calls would go in circles; unset it, or set it to the provider's URL", u.Host)
		}
	}
	if addr, ok := parseAddr(u.Hostname()); ok && addr.IsPrivate() {
		p.Private, p.AllowedCIDRs = true, []string{netip.PrefixFrom(addr, addr.BitLen()).String()}
	}
	deriveBaseURL(KindLocal, &p)
	if problem := checkBaseURL(KindLocal, p); problem != "" {
		return fail("OPENAI_BASE_URL %s", problem)
	}
	if !hasKey && !p.Private {
		return fail("OPENAI_API_KEY is missing, and %s is not on this machine or network", u.Host)
	}
	m := Model{
		Alias: "default", Any: true, Lanes: llmq.Lanes(),
		Targets: []Target{{Name: "main", Provider: p.Name, Wires: p.Wires()}},
	}
	return p, m, true, nil
}

// sameListener reports whether calls to u would reach a listener of ours.
func sameListener(u *url.URL, listener string) bool {
	port := cmp.Or(u.Port(), defaultPort(u.Scheme))
	var host, ours string
	if l, err := url.Parse(listener); err == nil && l.Host != "" {
		host, ours = l.Hostname(), cmp.Or(l.Port(), defaultPort(l.Scheme))
	} else if host, ours, err = net.SplitHostPort(listener); err != nil {
		return false
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if port != ours {
		return false
	}
	if addr, ok := parseAddr(host); host == "" || ok && addr.IsUnspecified() {
		host = "localhost" // it listens everywhere, on loopback too
	}
	return u.Hostname() == host || isLoopback(u.Hostname()) && isLoopback(host)
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}
