// Package egress is the one way out to providers: a client bound to one origin that makes exactly
// one HTTP exchange per call, under limits of address, time and size (SECURITY-DESIGN EG1 to EG3).
package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// The limits of EG3, in bytes.
const (
	MaxHeaderBytes    = 64 << 10
	MaxBodyBytes      = 20 << 20
	maxErrorBodyBytes = 1 << 20 // of a refusal only a message of 512 characters is used
)

// idleTimeout closes unused connections before a NAT gateway drops them (350 s on AWS) without
// telling us, and before most load balancers do (60 s), whose close could cross a new request.
const idleTimeout = 55 * time.Second

// Client sends requests to one provider. It is safe for concurrent use. It follows no redirect,
// keeps no cookie and asks no proxy; and as it refuses every other origin, a credential in a
// request can't reach a host that it was not meant for.
type Client struct {
	base      *url.URL
	transport *Rested
	exchange  http.RoundTripper // transport, or what is wrapped around it
}

// hooks replace what tests can't use: the system's resolver and certificate authorities, and
// limits that take long to reach.
type hooks struct {
	resolver *net.Resolver
	roots    *x509.CertPool
	silence  time.Duration // 0 is the constant
}

// New makes a client for the endpoint at base, for instance https://api.openai.com/v1. It names
// every fault of its arguments at once. Nothing is resolved or dialled yet.
func New(base string, n provider.Network) (*Client, error) { return newClient(base, n, hooks{}) }

func newClient(base string, n provider.Network, h hooks) (*Client, error) {
	u, err := parseBase(base, n)
	if err := errors.Join(err, checkNetwork(n)); err != nil {
		return nil, fmt.Errorf("egress to %s: %w", llmq.Clip(redact(base), 200), err)
	}
	g := guard{allowed: n.AllowedCIDRs, loopback: n.Loopback, plain: u.Scheme == "http"}

	// HTTP/2 is off: its transport repeats a request by itself when a connection is shut down
	// under it, and with one connection for all calls a dead peer holds up every one of them.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:                  nil, // not ProxyFromEnvironment: whoever can set HTTPS_PROXY would read the prompts
		Protocols:              protocols,
		DialContext:            dialer(n.ConnectTimeout, g, h).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: h.roots},
		TLSHandshakeTimeout:    n.ConnectTimeout,
		ResponseHeaderTimeout:  n.ReadTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           n.MaxIdle,
		MaxIdleConnsPerHost:    n.MaxIdle,
		MaxResponseHeaderBytes: MaxHeaderBytes,
		DisableCompression:     true,
	}
	rested := Rest(transport)
	c := &Client{base: u, transport: rested, exchange: rested}
	if n.Wrap != nil {
		c.exchange = n.Wrap(rested)
	}
	return c, nil
}

// Base is the endpoint's URL in its normal form, without a slash at the end: what paths are
// appended to.
func (c *Client) Base() string { return c.base.String() }

// Close closes the connections that are idle. Calls in flight are not touched.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// owns reports whether u has the client's scheme, host and port.
func (c *Client) owns(u *url.URL) bool {
	return strings.EqualFold(u.Scheme, c.base.Scheme) && normalHost(u.Hostname()) == c.base.Hostname() && port(u) == port(c.base)
}

func parseBase(raw string, n provider.Network) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("base URL can't be parsed") // the parser's own error would show a password
	}
	var faults []error
	near := n.Loopback || len(n.AllowedCIDRs) > 0
	switch {
	case u.Scheme == "https", u.Scheme == "http" && near:
	case u.Scheme == "http":
		faults = append(faults, errors.New("base URL must be https; http is for private and local endpoints only"))
	default:
		faults = append(faults, errors.New("base URL must begin with https://"))
	}
	host := normalHost(u.Hostname())
	if host == "" {
		faults = append(faults, errors.New("base URL names no host"))
	}
	if _, err := netip.ParseAddr(host); err == nil && !near {
		faults = append(faults, errors.New("base URL must name a host, not an address"))
	}
	if host != "" && n.Denied != nil && n.Denied(host) {
		faults = append(faults, errors.New("base URL names a host that is denied"))
	}
	if u.User != nil {
		faults = append(faults, errors.New("base URL must hold no user or password"))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		faults = append(faults, errors.New("base URL must hold no query or fragment"))
	}
	u.Host = strings.TrimSuffix(net.JoinHostPort(host, u.Port()), ":")
	if u.Port() == "" && strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, errors.Join(faults...)
}

func checkNetwork(n provider.Network) error {
	var faults []error
	if n.MaxIdle < 1 {
		faults = append(faults, fmt.Errorf("MaxIdle is %d, it must be at least 1", n.MaxIdle))
	}
	if n.ConnectTimeout <= 0 {
		faults = append(faults, fmt.Errorf("ConnectTimeout is %v, it must be above 0", n.ConnectTimeout))
	}
	if n.ReadTimeout <= 0 {
		faults = append(faults, fmt.Errorf("ReadTimeout is %v, it must be above 0", n.ReadTimeout))
	}
	for _, p := range n.AllowedCIDRs {
		if !p.IsValid() || p.Addr().Is4In6() {
			faults = append(faults, fmt.Errorf("AllowedCIDRs holds %v, which is no IPv4 or IPv6 prefix", p))
		}
	}
	return errors.Join(faults...)
}

// redact shows a URL that may be malformed without what may be a password.
func redact(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		return raw[i+1:]
	}
	return raw
}

// normalHost is a host name as it is compared: small letters, no dot at the end.
func normalHost(h string) string { return strings.TrimSuffix(strings.ToLower(h), ".") }

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if strings.EqualFold(u.Scheme, "http") {
		return "80"
	}
	return "443"
}

// userAgent is llmq/<version of this module>.
var userAgent = sync.OnceValue(func() string {
	const path = "github.com/llm-queue/llmq"
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == path && m.Version != "" && m.Version != "(devel)" {
				version = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "llmq/" + version
})
