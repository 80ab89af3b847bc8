package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strings"
)

// keyring holds the hashes of the keys that open something.
type keyring [][sha256.Size]byte

func newKeyring(keys ...string) keyring {
	ring := make(keyring, 0, len(keys))
	for _, key := range keys {
		ring = append(ring, sha256.Sum256([]byte(key)))
	}
	return ring
}

// has says whether key is on the ring, in a time that depends on the ring's size alone.
func (k keyring) has(key string) bool {
	sum := sha256.Sum256([]byte(key))
	found := 0
	for i := range k {
		found |= subtle.ConstantTimeCompare(sum[:], k[i][:])
	}
	return found == 1
}

// KeyHash is how logs and counters name a key: the first 12 hexadecimal digits of its SHA-256.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

// isKeyHash says whether a text looks like a KeyHash, which no key of ours does.
func isKeyHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == 6 && text == strings.ToLower(text)
}

// bearer is the token of an Authorization header of that scheme, whose name has no case.
func bearer(r *http.Request) (token string, found bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

// sigV4 is the part of a SigV4 Authorization header that says who signs for where.
type sigV4 struct {
	accessKey, region, service string
}

const sigV4Scheme = "AWS4-HMAC-SHA256"

// parseSigV4 reads "AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request,
// SignedHeaders=…, Signature=…". It checks the form, not the signature.
func parseSigV4(header string) (signer sigV4, ok bool) {
	scheme, rest, _ := strings.Cut(header, " ")
	if scheme != sigV4Scheme {
		return sigV4{}, false
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if _, twice := fields[name]; !found || twice || value == "" {
			return sigV4{}, false
		}
		fields[name] = value
	}
	if len(fields) != 3 || fields["SignedHeaders"] == "" || fields["Signature"] == "" {
		return sigV4{}, false
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || slices.Contains(scope, "") {
		return sigV4{}, false
	}
	return sigV4{accessKey: scope[0], region: scope[2], service: scope[3]}, true
}

// refuseBrowser returns why r must not be served: it comes from a web page, or for a name that is
// not this server's, as after DNS rebinding. Empty means it may.
func (s *Server) refuseBrowser(r *http.Request) string {
	if _, has := r.Header["Origin"]; has {
		return "fakellm does not serve web pages: the request has an Origin header"
	}
	if !s.hostAllowed(r) {
		return "fakellm does not serve this Host"
	}
	return ""
}

func (s *Server) hostAllowed(r *http.Request) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil { // no port: the scheme's own
		host, port = strings.Trim(r.Host, "[]"), "80"
		if r.TLS != nil {
			port = "443"
		}
	}
	if host == "" {
		return false
	}
	if slices.Contains(s.opts.Hosts, host) || slices.Contains(s.opts.Hosts, r.Host) {
		return true
	}
	// Names below localhost are this machine by their own rule (RFC 6761), so a host may carry a
	// region: bedrock-runtime.us-east-1.localhost.
	regional := regionOfHost(host) != "" && strings.HasSuffix(host, ".localhost")
	if host != "127.0.0.1" && host != "localhost" && host != "::1" && !regional {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok { // not served from a socket, so there is no port to compare with
		return true
	}
	_, own, err := net.SplitHostPort(local.String())
	return err != nil || own == port // a pipe's address has no port either
}

// redacted stands in the call log for the value of a header that holds a secret.
const redacted = "(redacted)"

// visible copies the headers that the log may show.
func visible(h http.Header) http.Header {
	shown := h.Clone()
	for name := range shown {
		switch strings.ToLower(name) {
		case "authorization", "proxy-authorization", "x-amz-security-token", "api-key", "x-api-key", "cookie":
			shown[name] = []string{redacted}
		}
	}
	return shown
}
