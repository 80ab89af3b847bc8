package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// errAddress is the refusal of an address that policy forbids.
var errAddress = errors.New("address is not allowed for this provider")

// never are addresses that no policy opens: this host, this link, everybody on it, and the
// metadata services of clouds.
var never = prefixes(
	"0.0.0.0/8",      // this network; Linux takes 0.0.0.0 for loopback
	"169.254.0.0/16", // link-local: metadata, X-Ray
	"224.0.0.0/4",    // multicast
	"240.0.0.0/4",    // reserved, and broadcast
	"::/128",         // unspecified
	"fe80::/10",      // link-local
	"fec0::/10",      // site-local, withdrawn
	"ff00::/8",       // multicast
	"fd00:ec2::/32",  // metadata, DNS and time of EC2 over IPv6
)

// special are addresses that a public provider can't have. Package netip calls only part of them
// private; the rest it calls global, though none is (IANA's special-purpose registries).
var special = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // private
	"100.64.0.0/10",                                     // carrier NAT; also cluster networks
	"192.0.0.0/24",                                      // protocol assignments
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", // documentation
	"192.88.99.0/24",             // 6to4 relays
	"198.18.0.0/15",              // benchmarks
	"::/96",                      // IPv4-compatible, withdrawn
	"64:ff9b::/96",               // NAT64: an IPv4 address that the checks above would not see
	"64:ff9b:1::/48",             // NAT64, local use
	"100::/64",                   // discard
	"2001::/23",                  // protocol assignments, Teredo among them
	"2001:db8::/32", "3fff::/20", // documentation
	"2002::/16", // 6to4: IPv4 again
	"5f00::/16", // segment routing
	"fc00::/7",  // unique local
)

// guard says which addresses may be dialled.
type guard struct {
	allowed  []netip.Prefix // when not empty, nothing outside
	loopback bool           // the own machine too
	plain    bool           // no TLS, so nothing on the public internet
}

// control runs between the creation of a socket and its connect, so it sees the address that is
// really dialled: a name that changes its answer after a check gains nothing.
func (g guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s %s: %w", network, address, errAddress)
	}
	if !g.permits(ap.Addr()) {
		return fmt.Errorf("dial %s %s: %w", network, ap.Addr(), errAddress)
	}
	return nil
}

func (g guard) permits(a netip.Addr) bool {
	if a.Zone() != "" { // a zone only means something on a link
		return false
	}
	a = a.Unmap() // ::ffff:127.0.0.1 reaches 127.0.0.1
	switch {
	case a.IsLoopback():
		return g.loopback
	case within(never, a):
		return false
	case within(g.allowed, a):
		return true
	case len(g.allowed) > 0, g.plain:
		return false
	}
	return !within(special, a)
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(ss ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(ss))
	for i, s := range ss {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}
