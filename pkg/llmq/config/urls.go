package config

import (
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// parseURL reads a URL that calls are sent below. No message shows it, for a
// password may be in it. The host is lower-cased and loses a trailing dot, the path
// a trailing slash.
func parseURL(raw string) (*url.URL, string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return nil, "must be a URL such as https://api.openai.com/v1"
	case u.User != nil:
		return nil, "must hold no user or password; a key is given as a secret"
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return nil, "must end after the path, without ? and #"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, "has a port that is none; ports are 1 to 65535"
		}
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	addr, isAddr := parseAddr(host)
	switch {
	case isAddr && addr.Zone() != "":
		return nil, "must hold no zone in its address"
	case isAddr:
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	case numberLike(host):
		return nil, "has a host that some programs read as an address; write addresses as 10.0.3.7"
	case !hostPattern.MatchString(host):
		return nil, "has a host that is no name: letters, digits and hyphens, parted by dots"
	}
	trimmed := strings.TrimRight(u.Path, "/")
	if u.RawPath != "" || (trimmed != "" && path.Clean(trimmed) != trimmed) {
		return nil, "must have a plain path, without //, . or .. and escapes"
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host, u.Path = host, trimmed
	return u, ""
}

var hostPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)

// parseAddr reads an address, a mapped one as the IPv4 address that would be dialled.
func parseAddr(host string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(host)
	return addr.Unmap(), err == nil
}

// numberLike reports hosts such as 2130706433 or 127.0x1, which resolvers may read
// as IPv4 addresses: their last label is a number.
func numberLike(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last == "0x"
}

// isLoopback reports whether a host of a parsed URL is this machine.
func isLoopback(host string) bool {
	if addr, ok := parseAddr(host); ok {
		return addr.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// loopbackCIDRs are what a provider on this machine may dial.
func loopbackCIDRs() []string { return []string{"127.0.0.0/8", "::1/128"} }

// deriveBaseURL brings a provider's base URL into its one form. A local provider on
// loopback becomes private, so that adapters have one rule: what is not private is
// never dialled at a private address.
func deriveBaseURL(kind Kind, p *Provider) {
	u, problem := parseURL(p.BaseURL)
	if problem != "" {
		return // the rules report it
	}
	p.BaseURL = u.String()
	if kind == KindLocal && isLoopback(u.Hostname()) && !p.Private && p.AllowedCIDRs == nil {
		p.Private, p.AllowedCIDRs = true, loopbackCIDRs()
	}
}

// checkBaseURL holds a provider's base URL against SECURITY-DESIGN EG1.
func checkBaseURL(kind Kind, p Provider) string {
	u, problem := parseURL(p.BaseURL)
	if problem != "" {
		return problem
	}
	addr, isAddr := parseAddr(u.Hostname())
	switch {
	case u.Scheme == "http" && !p.Private:
		return "must be https; http is for private providers (private: true with allowed_cidrs)" + locally(kind)
	case isAddr && !p.Private:
		return "must have a host name; an address is for private providers (private: true with allowed_cidrs)" + locally(kind)
	case isLoopback(u.Hostname()) && kind == KindAWS:
		return "is this function itself; loopback is for kind: local only"
	case isAddr && len(p.AllowedCIDRs) > 0 && !allowed(addr, p.AllowedCIDRs):
		return "has the address " + addr.String() + ", which allowed_cidrs leaves out"
	}
	return ""
}

func locally(kind Kind) string {
	if kind == KindLocal {
		return " or on loopback"
	}
	return ""
}

func allowed(addr netip.Addr, cidrs []string) bool {
	for _, text := range cidrs {
		if prefix, err := netip.ParsePrefix(text); err != nil || prefix.Contains(addr) {
			return true // a faulty one is reported for itself
		}
	}
	return false
}

func quoted(s string) string { return strconv.Quote(llmq.Clip(s, 60)) }

func listPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
