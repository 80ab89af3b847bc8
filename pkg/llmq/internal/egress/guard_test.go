package egress

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// forbidden holds an address of every range of EG2, its edges among them.
var forbidden = []string{
	"127.0.0.1", "127.255.255.255", "::1", "0.0.0.0", "0.1.2.3", "::",
	"10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "fc00::1", "fdff::1",
	"169.254.169.254", "169.254.79.129", "fe80::1", "febf::1", "fec0::1", "fd00:ec2::254",
	"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1",
	"100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.0.255", "198.18.0.1", "198.19.255.255",
	"240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1",
	"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1",
	"::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:100.64.0.1",
}

var public = []string{
	"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
	"192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8", "2606:4700::1111", "2600:1f18::1", "2a05:d018::1",
}

func TestGuard_PublicEndpoint(t *testing.T) {
	t.Parallel()
	for _, s := range forbidden {
		if (guard{}).permits(netip.MustParseAddr(s)) {
			t.Errorf("%s may be dialled for a public provider", s)
		}
	}
	for _, s := range public {
		if !(guard{}).permits(netip.MustParseAddr(s)) {
			t.Errorf("%s may not be dialled for a public provider", s)
		}
	}
	if (guard{}).permits(netip.MustParseAddr("2606:4700::1111").WithZone("eth0")) {
		t.Error("an address with a zone may be dialled")
	}
}

func TestGuard_Policies(t *testing.T) {
	t.Parallel()
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	ten := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	tests := []struct {
		name   string
		guard  guard
		yes    []string
		refuse []string
	}{
		{"private", guard{allowed: ten}, []string{"10.1.2.3", "::ffff:10.1.2.3"}, []string{"10.2.0.1", "8.8.8.8", "127.0.0.1", "fc00::1"}},
		{
			"private without bounds",
			guard{allowed: everything},
			[]string{"10.1.2.3", "fc00::1", "100.64.0.1", "8.8.8.8"},
			[]string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"},
		},
		{"loopback", guard{loopback: true}, []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "8.8.8.8"}, []string{"10.1.2.3", "169.254.169.254", "0.0.0.0"}},
		{"loopback over http", guard{loopback: true, plain: true}, []string{"127.0.0.1", "::1"}, []string{"8.8.8.8", "10.1.2.3"}},
		{"private and loopback", guard{allowed: ten, loopback: true, plain: true}, []string{"127.0.0.1", "10.1.2.3"}, []string{"8.8.8.8", "10.2.0.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range tt.yes {
				if !tt.guard.permits(netip.MustParseAddr(s)) {
					t.Errorf("%s may not be dialled", s)
				}
			}
			for _, s := range tt.refuse {
				if tt.guard.permits(netip.MustParseAddr(s)) {
					t.Errorf("%s may be dialled", s)
				}
			}
		})
	}
}

// SEC20: whatever a provider's name resolves to, the address dialled is what counts.
func TestClient_SEC20NameOfForbiddenAddress(t *testing.T) {
	t.Parallel()
	for _, s := range forbidden {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			// Resolvers give a mapped address as an AAAA record; Go dials it as IPv4.
			c := open(t, "https://provider.test", provider.DefaultNetwork(), hooks{resolver: names(t, []string{s})})
			_, err := c.Do(post(t, "https://provider.test/x", "{}"))
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || !errors.Is(err, errAddress) {
				t.Fatalf("Do = %v, want the address refused", err)
			}
			if e.Class != provider.TargetFatal || e.Code != llmq.CodeProviderError {
				t.Errorf("Do = %v %v, want target_fatal provider_error", e.Class, e.Code)
			}
		})
	}
}

func isOrigin(err error) bool { return errors.Is(err, errOrigin) }
