package cassette

import (
	"net/http"
	"net/url"
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

// picked are the headers that may be stored, ids and all.
func picked(h http.Header, names []string, prefixes ...string) http.Header {
	out := http.Header{}
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(names, name) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out[name] = append(out[name], values...)
		}
	}
	return out
}

// allowed are those headers as they are stored.
func allowed(h http.Header, names []string, prefixes ...string) http.Header {
	out := picked(h, names, prefixes...)
	for _, values := range out {
		for i, v := range values {
			values[i] = string(blank([]byte(v)))
		}
	}
	return out
}

// longestID is more than any of the ids is long with what stands before it, in bytes.
const longestID = 512

// ids match what names an account, organization, project or request. The group is what is blanked.
var ids = []opening{
	// arn:aws:bedrock:eu-central-1:123456789012:inference-profile/…, in a path perhaps escaped
	newOpening("arn:aws arn%3aaws", `(?i)arn(?::|%3A)aws[a-z-]*(?::|%3A)[a-z0-9-]*(?::|%3A)[a-z0-9-]*(?::|%3A)([0-9]{12})`, longestID),
	newOpening("account", `(?i)account(?:[ _-]?id)?\\?["']?[ :=]{1,3}\\?["']?([0-9]{12})(?:[^0-9]|$)`, longestID),
	newOpening("org-", `org-([A-Za-z0-9]{20,})`, longestID),
	newOpening("proj_", `proj_([A-Za-z0-9]{16,})`, longestID),
	newOpening("req_", `req_([A-Za-z0-9]{16,})`, longestID),
	newOpening("request", `(?i)request[ _-]?id\\?["']?[ :=]{1,3}\\?["']?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`, longestID),
}

// blank writes zeros over such ids. The length stays, and so do the places of a reply's chunks and
// the lengths that are told elsewhere. It returns b itself where there is none.
func blank(b []byte) []byte {
	out := b
	small := lower(b)
	var work int // is bounded by what the expressions are
	for _, id := range ids {
		for m := range id.matches(b, small, &work) {
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

// harmless are the headers of a request whose values are no secrets: what is said to everybody, and
// ids, which replies repeat and which are blanked. All others count as secrets, also those that
// vendors will think of.
var harmless = regexp.MustCompile(`(?i)^(?:accept|content|user-agent|x-stainless|amz-sdk|x-amzn-bedrock|if)(?:-|$)|` +
	`^(?:idempotency-key|cache-control|pragma|connection|te|expect|host|origin|referer|http-referer|x-title|` +
	`anthropic-version|anthropic-beta|openai-beta|openai-organization|openai-project|x-amz-date|x-amz-target|x-amz-content-sha256)$|request-id$`)

// secretsOf are the secrets that a request carries where credentials belong.
func secretsOf(req *http.Request) []string {
	var out []string
	add := func(values ...string) {
		for _, v := range values {
			if v = strings.TrimSpace(v); len(v) >= MinSecretBytes && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	for name, values := range req.Header {
		if harmless.MatchString(name) {
			continue
		}
		for _, v := range values {
			add(v)
			add(partsOf(v)...)
		}
	}
	if req.URL.User != nil {
		password, _ := req.URL.User.Password()
		add(req.URL.User.Username(), password)
	}
	// Not by way of url.ParseQuery, which drops what it can't read.
	for part := range strings.FieldsFuncSeq(req.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, named := strings.Cut(part, "=")
		if !named {
			name, value = "key", part
		}
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if !credential.MatchString(name) {
			continue
		}
		add(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			key, _, _ := strings.Cut(plain, "/") // X-Amz-Credential=AKIA…/20260101/…
			add(plain, key)
		}
	}
	return out
}

var quoted = regexp.MustCompile(`"([^"]*)"`)

// partsOf are the secrets inside a header's value: of Authorization, Cookie or one like them.
func partsOf(v string) []string {
	var out []string
	for _, m := range quoted.FindAllStringSubmatch(v, -1) {
		out = append(out, m[1])
	}
	scheme, rest, ok := strings.Cut(strings.TrimSpace(v), " ")
	if !ok || strings.ContainsAny(scheme, ",;=") {
		rest = v // no scheme, such as Bearer or AWS4-HMAC-SHA256, which would be no secret
	} else {
		out = append(out, rest)
	}
	for token := range strings.FieldsFuncSeq(rest, func(c rune) bool { return strings.ContainsRune(" \t,;", c) }) {
		name, value, named := strings.Cut(token, "=")
		if strings.EqualFold(name, "SignedHeaders") || !named && strings.HasPrefix(v, "AWS4-") {
			continue // names of headers
		}
		value = strings.Trim(value, `"`)
		id, _, _ := strings.Cut(value, "/") // Credential=AKIA…/…
		out = append(out, token, strings.Trim(token, `"`), strings.TrimRight(token, "="), value, id)
	}
	if strings.EqualFold(scheme, "Basic") {
		plain := appendDecoded(nil, []byte(strings.TrimRight(strings.TrimSpace(rest), "=")))
		user, password, _ := strings.Cut(string(plain), ":")
		out = append(out, string(plain), user, password)
	}
	return out
}
