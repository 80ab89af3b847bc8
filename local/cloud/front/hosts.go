package front

import (
	"net"
	"net/http"
	"strings"

	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
)

// ours says whether a request was meant for this server. A web page must not be able to use it: neither by a request of
// its own, which carries an Origin, nor by a name that its owner has pointed at 127.0.0.1 (DNS rebinding), which shows in
// Host. An empty Host is refused, too.
func (f *Front) ours(r *http.Request) bool {
	if localonly.FromPage(r) {
		return false
	}
	name, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		// No port: it is the scheme's.
		name, port = r.Host, "80"
		if r.TLS != nil {
			port = "443"
		}
	}
	for _, allowed := range f.opts.Hosts {
		if allowed != "" && (strings.EqualFold(allowed, r.Host) || strings.EqualFold(allowed, name)) {
			return true
		}
	}
	if name != "127.0.0.1" && !strings.EqualFold(name, "localhost") {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	_, ourPort, err := net.SplitHostPort(local.String())
	return err == nil && port == ourPort
}
