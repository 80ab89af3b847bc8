// Package localonly keeps web pages away from the servers of a local cloud. AWS's own APIs are
// kept by signatures, which are not verified here, so a page that is open in a browser of this
// machine must not be able to call them.
package localonly

import (
	"net"
	"net/http"
	"strings"
)

// Handler lets through what [Allows] does, and refuses the rest in plain text.
func Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Allows(r) {
			http.Error(w, "only programs of this machine may call this, by 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Allows reports whether a request is of a program: of no page, and for a name of this machine
// alone. A page whose own name was pointed at 127.0.0.1 (DNS rebinding) shows in Host.
func Allows(r *http.Request) bool { return !FromPage(r) && isLoopback(r.Host) }

// FromPage reports whether a web page sent a request: those that may do harm carry an Origin,
// though it may be empty or "null".
func FromPage(r *http.Request) bool {
	_, page := r.Header["Origin"]
	return page
}

// isLoopback reports whether a Host, with or without a port, names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
