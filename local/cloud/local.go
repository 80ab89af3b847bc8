package cloud

import (
	"net"
	"net/http"
	"strings"
)

// local lets programs of this machine through, and no web page: neither one that calls a
// port here (its requests carry an Origin), nor one whose name was pointed at 127.0.0.1
// (the Host shows it). AWS's own APIs are kept by signatures, which are not verified here.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, page := r.Header["Origin"]; page || !isLoopback(r.Host) {
			http.Error(w, "only programs of this machine may call this, by 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
