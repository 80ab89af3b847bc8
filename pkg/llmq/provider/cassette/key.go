package cassette

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Key tells requests apart: a hash of method, URL and canonical body. Two requests have the same
// key when
//
//   - their methods are equal,
//   - their URLs have the same scheme, host, port and path (as it is escaped), and the same values
//     of the query parameters that Options.Query names,
//   - their bodies are equal: as JSON, if both are a JSON object or array, or else byte by byte. A
//     gzip'd body counts as what is inside.
//
// As JSON means: white space, the order of an object's members and the spelling of strings don't
// count, the order of arrays does. Numbers are compared by their exact decimal value, so 0 and 0.0
// are equal. Ids of accounts, organizations and requests are blanked before, in both.
type Key [sha256.Size]byte

// String is how the key begins, as it stands in file names.
func (k Key) String() string { return hex.EncodeToString(k[:6]) }

// keyOf is the key of a request, live or recorded, and so is the same for both.
func (t *Tape) keyOf(r *recording) Key {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", r.request.method, t.matched(r.request.url))
	if r.request.isJSON {
		h.Write([]byte("json\n"))
		h.Write(r.request.json.appendTo(nil))
	} else {
		h.Write([]byte("bytes\n"))
		h.Write(r.request.body)
	}
	return Key(h.Sum(nil))
}

// request is what is kept of a live request; body is as it was sent.
func (t *Tape) request(req *http.Request, body []byte) request {
	r := request{
		method: req.Method, url: t.matched(req.URL), header: allowed(req.Header, requestHeaders), body: body,
		secrets: secretsOf(req), before: []string{t.before(req.URL), headerText(picked(req.Header, requestHeaders))},
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	if plain, err := decoded(body, req.Header); err == nil {
		r.body = plain
	} else {
		r.refused = fmt.Errorf("request: %w", err)
	}
	return r.scrubbed()
}

// scrubbed blanks the ids in a request and reads its body as JSON.
func (r request) scrubbed() request {
	if clean := blank(r.body); len(clean) > 0 && &clean[0] != &r.body[0] {
		r.before = append(slices.Clone(r.before), string(r.body))
		r.body = clean
	}
	r.json, r.isJSON = parse(r.body)
	return r
}

// matched is the part of a URL that is matched and stored, in one form: no user, no fragment, no
// port that goes without saying, and of the query only what is allowed.
func (t *Tape) matched(u *url.URL) *url.URL {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	port := u.Port()
	scheme := strings.ToLower(u.Scheme)
	if port == "443" && scheme == "https" || port == "80" && scheme == "http" || t.opts.AnyLoopbackPort && loopback(host) {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	out := &url.URL{Scheme: scheme, Host: host}
	escaped := string(blank([]byte(u.EscapedPath())))
	if p, err := url.PathUnescape(escaped); err == nil {
		out.Path, out.RawPath = p, escaped
	}
	query := url.Values{}
	for name, values := range u.Query() {
		if slices.Contains(t.opts.Query, name) {
			for _, v := range values {
				query.Add(name, string(blank([]byte(v))))
			}
		}
	}
	out.RawQuery = query.Encode()
	return out
}

// before is what [Tape.matched] reads: as it was spelled, ids and all.
func (t *Tape) before(u *url.URL) string {
	parts := []string{u.Scheme + "://" + u.Host + u.EscapedPath()}
	for name, values := range u.Query() {
		if slices.Contains(t.opts.Query, name) {
			parts = append(parts, values...)
		}
	}
	return strings.Join(parts, "\n")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// readRequest reads a request's body and closes it. It is nil where there is none.
func readRequest(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, MaxBodyBytes+1))
	if err := errors.Join(err, req.Body.Close()); err != nil {
		return nil, fmt.Errorf("cassette: read the request: %w", err)
	}
	if len(body) > MaxBodyBytes {
		return nil, fmt.Errorf("cassette: the request is larger than %d bytes", MaxBodyBytes)
	}
	return body, nil
}

// gunzip undoes gzip within the limit of a body.
func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, MaxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if len(plain) > MaxBodyBytes {
		return nil, fmt.Errorf("gzip: more than %d bytes inside", MaxBodyBytes)
	}
	return plain, nil
}
