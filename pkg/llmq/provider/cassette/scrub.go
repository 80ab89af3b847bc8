package cassette

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// The headers that are stored. Whatever is not named here is not: credentials, cookies, ids of
// organizations, projects, requests and rays among them, and those that vendors will think of.
var (
	requestHeaders  = []string{"Accept", "Content-Type"}
	responseHeaders = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Amzn-Errortype", "X-Should-Retry"}
	// responsePrefixes are of families that say how much of a rate or of tokens is left or used.
	responsePrefixes = []string{"X-Ratelimit-", "Anthropic-Ratelimit-", "X-Amzn-Bedrock-"}
)

// allowed are the headers that may be stored.
func allowed(h http.Header, names []string, prefixes ...string) http.Header {
	out := http.Header{}
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(names, name) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			for _, v := range values {
				out.Add(name, string(blank([]byte(v))))
			}
		}
	}
	return out
}

// ids match what names an account, organization, project or request. The group is what is blanked.
var ids = []opening{
	// arn:aws:bedrock:eu-central-1:123456789012:inference-profile/…, in a path perhaps escaped
	newOpening("arn:aws arn%3aaws", `(?i)arn(?::|%3A)aws[a-z-]*(?::|%3A)[a-z0-9-]*(?::|%3A)[a-z0-9-]*(?::|%3A)([0-9]{12})`),
	newOpening("account", `(?i)account(?:[ _-]?id)?\\?["']?[ :=]{1,3}\\?["']?([0-9]{12})(?:[^0-9]|$)`),
	newOpening("org-", `org-([A-Za-z0-9]{20,})`),
	newOpening("proj_", `proj_([A-Za-z0-9]{16,})`),
	newOpening("req_", `req_([A-Za-z0-9]{16,})`),
	newOpening("request", `(?i)request[ _-]?id\\?["']?[ :=]{1,3}\\?["']?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`),
}

// blank writes zeros over such ids. The length stays, and so do the places of a reply's chunks and
// the lengths that are told elsewhere. It returns b itself where there is none.
func blank(b []byte) []byte {
	out := b
	small := lower(b)
	for _, id := range ids {
		for m := range id.matches(b, small) {
			if !startsWord(b, m[0]) {
				continue
			}
			if &out[0] == &b[0] {
				out = slices.Clone(b)
			}
			for i := m[2]; i < m[3]; i++ {
				if out[i] != '-' {
					out[i] = '0'
				}
			}
		}
	}
	return out
}

// credential matches the names of headers and query parameters whose values are secrets.
var credential = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|passw|pwd|credential|signature|^sig$`)

// secretsOf are the secrets that a request carries where credentials belong.
func secretsOf(req *http.Request) []string {
	var out []string
	add := func(values ...string) {
		for _, v := range values {
			if v = strings.TrimSpace(v); len(v) >= MinSecretBytes {
				out = append(out, v)
			}
		}
	}
	for name, values := range req.Header {
		if !credential.MatchString(name) || name == "Idempotency-Key" {
			continue
		}
		for _, v := range values {
			add(v)
			if scheme, rest, ok := strings.Cut(v, " "); ok {
				add(rest)
				add(partsOf(scheme, rest)...)
			}
		}
	}
	if req.URL.User != nil {
		password, _ := req.URL.User.Password()
		add(req.URL.User.Username(), password)
	}
	for name, values := range req.URL.Query() {
		if credential.MatchString(name) {
			add(values...)
			for _, v := range values { // X-Amz-Credential=AKIA…/20260101/…
				key, _, _ := strings.Cut(v, "/")
				add(key)
			}
		}
	}
	return out
}

// partsOf are the secrets inside an Authorization header's value.
func partsOf(scheme, rest string) []string {
	switch {
	case strings.EqualFold(scheme, "Basic"):
		if plain, err := base64.StdEncoding.DecodeString(rest); err == nil {
			user, password, _ := strings.Cut(string(plain), ":")
			return []string{string(plain), user, password}
		}
	case strings.HasPrefix(scheme, "AWS4-"): // Credential=AKIA…/…, SignedHeaders=…, Signature=…
		var out []string
		for part := range strings.SplitSeq(rest, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if name == "Credential" || name == "Signature" {
				id, _, _ := strings.Cut(value, "/")
				out = append(out, id)
			}
		}
		return out
	}
	return nil
}
