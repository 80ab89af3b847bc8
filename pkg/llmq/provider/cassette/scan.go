package cassette

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// SecretError says that bytes hold a secret, and does not show it.
type SecretError struct {
	What string // such as "a known secret in base64", or "what looks like an AWS access key id"
	Line int    // where, from 1; 0 where it shows only in what the bytes stand for
}

// Error names the kind and the place.
func (e *SecretError) Error() string {
	if e.Line == 0 {
		return "holds " + e.What
	}
	return fmt.Sprintf("line %d holds %s", e.Line, e.What)
}

// shapes are what keys look like. Each expression matches a beginning of bounded length, so that a
// search is linear.
var shapes = []shape{
	newShape("a bearer token", "bearer", `(?i:bearer)(?:\s|%20|\+){1,8}[A-Za-z0-9._~+/=-]{16}`),
	newShape("a provider's API key", "sk- pk- rk- sess- xai- pplx-", `(?:sk|pk|rk|sess|xai|pplx)-[A-Za-z0-9_-]{16}`),
	newShape("a provider's API key", "gsk_ gsk- hf_ hf- nvapi_ nvapi- r8_", `(?:gsk[_-]|hf[_-]|nvapi[_-]|r8_)[A-Za-z0-9_-]{16}`),
	newShape("a Google API key", "aiza", `AIza[A-Za-z0-9_-]{30}`),
	newShape("a Google access token", "ya29. gocspx-", `(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{16}`),
	newShape("a token of GitHub or GitLab", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat-", `(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{16}`),
	newShape("a token of Slack", "xoxa- xoxb- xoxp- xoxr- xoxs-", `xox[abprs]-[A-Za-z0-9-]{10}`),
	newShape("an AWS access key id", "akia asia", `(?:AKIA|ASIA)[A-Z0-9]{12}`),
	newShape("a Bedrock API key", "absk bedrock-api-key-", `(?:ABSK[A-Za-z0-9+/=]{20}|bedrock-api-key-[A-Za-z0-9+/=_-]{8})`),
	newShape("a signature", "signature security-token", `(?i:signature|security-token)(?:=|%3D)[A-Za-z0-9%+/]{16}`),
	newShape("a key of llmq", "llmq_", `llmq_[A-Za-z0-9_]{16}`),
	newShape("a private key", "-----begin", `-----BEGIN [A-Z ]{0,30}PRIVATE KEY`),
}

type shape struct {
	what string
	opening
}

// longestShape is more than any shape's expression matches, in bytes.
const longestShape = 96

func newShape(what, words, re string) shape {
	return shape{"what looks like " + what, newOpening(words, re, longestShape)}
}

// Bounds of a search.
const (
	maxLayers  = 3       // of encoding that are undone, one in another
	workPer    = 128     // bytes that are looked at, for each byte that is searched
	workAtBase = 4 << 20 // and for none
)

// Scan searches b for secrets, those given and whatever has the shape of a vendor's key: as they
// are, and under up to three layers of encoding in any order. Layers are escapes of JSON,
// percent-encoding, base64 (at each alignment, both alphabets, broken into lines or not), UTF-16, and
// strings of JSON that only make sense together, such as the deltas of a stream. It looks at no more
// than 128 bytes for each byte of b, and 4 MiB; what would take more counts as found. Secrets of less
// than 8 bytes are ignored. What is found is a *SecretError, which shows none of it.
//
// It is also the check of what is committed: call it on the files of a tree.
func Scan(b []byte, secrets ...string) error {
	s := newSearch(len(b), secrets)
	if found := s.look(b, maxLayers); found != nil {
		return found
	}
	return nil
}

// search is one Scan.
type search struct {
	needles []string
	budget  int // bytes that may still be looked at
	seed    maphash.Seed
	seen    map[uint64]int // how many layers were looked for in a form
}

func newSearch(size int, secrets []string) *search {
	s := &search{budget: workPer*size + workAtBase, seed: maphash.MakeSeed(), seen: map[uint64]int{}}
	for _, text := range secrets {
		if len(text) < MinSecretBytes {
			continue
		}
		s.needles = append(s.needles, text)
		for _, esc := range []string{url.QueryEscape(text), url.PathEscape(text)} {
			if esc != text {
				s.needles = append(s.needles, esc)
			}
		}
	}
	return s
}

// look searches b and what it stands for.
func (s *search) look(b []byte, layers int) *SecretError {
	hash := maphash.Bytes(s.seed, b)
	if done, ok := s.seen[hash]; ok && done >= layers {
		return nil
	}
	s.seen[hash] = layers
	what, at := s.plain(b)
	if what != "" {
		if layers < maxLayers {
			return &SecretError{What: what + ", encoded"}
		}
		return &SecretError{What: what, Line: 1 + bytes.Count(b[:at], []byte("\n"))}
	}
	if what, _ := s.known(withoutBlanks(b)); what != "" {
		return &SecretError{What: what + ", in lines"}
	}
	if layers == 0 {
		return nil
	}
	bytes64 := decodeBase64(b)
	if what, _ := s.known(bytes64); what != "" {
		return &SecretError{What: what + ", encoded"}
	}
	if found := s.look(readable(bytes64), layers-1); found != nil {
		return found
	}
	for _, step := range steps {
		if next := step(b); len(next) > 0 {
			if found := s.look(next, layers-1); found != nil {
				return found
			}
		}
	}
	return nil
}

// plain searches b as it is.
func (s *search) plain(b []byte) (what string, at int) {
	if s.budget -= len(b); s.budget < 0 {
		return "more layers of encoding than can be searched", 0
	}
	if what, at := s.known(b); what != "" {
		return what, at
	}
	if at := webToken(b); at >= 0 {
		return "what looks like a JSON web token", at
	}
	small := lower(b)
	for _, shape := range shapes {
		for m := range shape.matches(b, small, &s.budget) {
			return shape.what, m[0]
		}
	}
	return "", 0
}

func (s *search) known(b []byte) (what string, at int) {
	for _, n := range s.needles {
		if i := bytes.Index(b, []byte(n)); i >= 0 {
			return "a known secret", i
		}
	}
	return "", 0
}

// webToken finds the beginning of a JSON web token, however long it is: a first part of any length,
// and enough of the second. It is -1 where there is none.
func webToken(b []byte) int {
	const least = 8
	for i := 0; ; {
		next := bytes.Index(b[i:], []byte("eyJ"))
		if next < 0 {
			return -1
		}
		start := i + next
		i = endOfPart(b, start, len(b)) // of all that begin in this part, none ends elsewhere
		if i-start >= 3+least && bytes.HasPrefix(b[i:], []byte(".eyJ")) && endOfPart(b, i+4, i+4+least) == i+4+least {
			return start
		}
	}
}

func endOfPart(b []byte, i, most int) int {
	for i < min(len(b), most) && (alphanumeric(b[i]) || b[i] == '-' || b[i] == '_') {
		i++
	}
	return i
}

// startsWord reports whether what begins at i is no part of a longer word. The last letter of an escape is none either.
func startsWord(b []byte, i int) bool {
	if i == 0 || !alphanumeric(b[i-1]) {
		return true
	}
	return i >= 2 && b[i-2] == '\\' && bytes.IndexByte([]byte("bfnrt"), b[i-1]) >= 0 ||
		i >= 6 && b[i-6] == '\\' && b[i-5] == 'u' ||
		i >= 3 && b[i-3] == '%'
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// unescapeJSON undoes the escapes of JSON strings wherever they stand.
func unescapeJSON(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return nil
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 >= len(b) {
			out = append(out, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := escaped(b[i-1:])
			if n == 0 {
				out = append(out, '\\', 'u')
				continue
			}
			out = utf8.AppendRune(out, r)
			i += n - 2
		default:
			out = append(out, c)
		}
	}
	return out
}

// escaped reads \uXXXX, or two of them that make one character, and how long that was.
func escaped(b []byte) (rune, int) {
	one := func(b []byte) (rune, bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		return rune(v), err == nil
	}
	high, ok := one(b)
	if !ok {
		return 0, 0
	}
	if low, ok := one(b[6:]); ok && utf16.IsSurrogate(high) {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, 12
		}
	}
	return high, 6
}

// unescapeURL undoes percent-encoding wherever it stands, and + for a space in queries.
func unescapeURL(b []byte, plus bool) []byte {
	if bytes.IndexByte(b, '%') < 0 && (!plus || bytes.IndexByte(b, '+') < 0) {
		return nil
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '%' && i+2 < len(b):
			if v, err := strconv.ParseUint(string(b[i+1:i+3]), 16, 8); err == nil {
				out = append(out, byte(v))
				i += 2
				continue
			}
			out = append(out, '%')
		case b[i] == '+' && plus:
			out = append(out, ' ')
		default:
			out = append(out, b[i])
		}
	}
	return out
}

// scanParts searches what a file says beyond its bytes: bodies that it holds in pieces or in
// base64, put together again.
func scanParts(r *recording, secrets []string) error {
	for _, part := range []struct {
		name string
		b    []byte
	}{
		{"url", []byte(r.request.url.String())},
		{"request body", r.request.body},
		{"reply's body", r.response.joined()},
		{"headers", []byte(headerText(r.request.header) + headerText(r.response.header))},
	} {
		if err := Scan(part.b, secrets...); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b) // a Builder takes everything
	return b.String()
}
