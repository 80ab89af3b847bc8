package provider

import (
	"net/http"
	"net/netip"
	"time"
)

// Network says how a provider's endpoint may be reached. Each adapter builds its own transport
// from it, so none can be made without these bounds. The zero value is not valid; begin with
// [DefaultNetwork].
type Network struct {
	// AllowedCIDRs makes the endpoint a private one: only addresses inside are dialled, and plain
	// http is legal. Empty means a public one: every public address, https only. Loopback,
	// link-local (where clouds keep their metadata), unspecified and multicast addresses are
	// refused even when a prefix holds them.
	AllowedCIDRs []netip.Prefix

	// Loopback makes addresses of the own machine legal, over plain http too. Only local
	// environments may set it: in Lambda the Runtime API listens there.
	Loopback bool

	// Denied reports hosts that may not be called, whatever else allows them, given in small letters without a dot at the end.
	// Nil denies none.
	Denied func(host string) bool

	// MaxIdle is how many connections to the endpoint are kept open while unused, at least one.
	// With fewer than the calls that the process has in flight, each surplus call pays for a new
	// connection. Default 64.
	MaxIdle int

	// ConnectTimeout bounds each of TCP connect (DNS included) and TLS handshake. Default 10 s.
	ConnectTimeout time.Duration

	// ReadTimeout bounds the wait for the reply's header, counted from the end of the request. It
	// is a last guard: the attempt's context is what usually ends first. Default 300 s.
	ReadTimeout time.Duration

	// Wrap stands between an adapter and its transport, as a cassette does. Its transport is asked
	// for each exchange and given those for the provider's own origin only. Where it has an answer
	// of its own it says what an error means by an *[Error]. Nil leaves the transport alone.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// DefaultNetwork is that of a public endpoint.
func DefaultNetwork() Network {
	return Network{MaxIdle: 64, ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second}
}
