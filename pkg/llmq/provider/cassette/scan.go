package cassette

import (
	"bytes"
	"encoding/base64"
	"fmt"
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

// shapes are what keys look like.
var shapes = []shape{
	newShape("a bearer token", "bearer", `(?i:bearer)(?:\s|%20|\+)+[A-Za-z0-9._~+/=-]{16,}`),
	newShape("a provider's API key", "sk- pk- rk- sess- xai- pplx-", `(?:sk|pk|rk|sess|xai|pplx)-[A-Za-z0-9_-]{16,}`),
	newShape("a provider's API key", "gsk_ gsk- hf_ hf- nvapi_ nvapi-", `(?:gsk|hf|nvapi)[_-][A-Za-z0-9_-]{16,}`),
	newShape("a Google API key", "aiza", `AIza[A-Za-z0-9_-]{30,}`),
	newShape("an AWS access key id", "akia asia", `(?:AKIA|ASIA)[A-Z0-9]{12,}`),
	newShape("a Bedrock API key", "absk bedrock-api-key-", `(?:ABSK[A-Za-z0-9+/=]{20,}|bedrock-api-key-[A-Za-z0-9+/=_-]{8,})`),
	newShape("a JSON web token", "eyj", `eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`),
	newShape("a signature", "signature security-token", `(?i:signature|security-token)(?:=|%3D)[A-Za-z0-9%+/]{16,}`),
	newShape("a key of llmq", "llmq_", `llmq_[A-Za-z0-9_]{16,}`),
	newShape("a private key", "-----begin", `-----BEGIN [A-Z ]*PRIVATE KEY`),
}

type shape struct {
	what string
	opening
}

func newShape(what, words, re string) shape {
	return shape{"what looks like " + what, newOpening(words, re)}
}

// Scan searches b for secrets: those given, raw, in base64 (at each of its three alignments, both
// alphabets, broken into lines or not), URL-escaped or JSON-escaped, also three times over; and for
// anything that has the shape of a vendor's key. Secrets of less than 8 bytes are ignored. What is
// found is a *SecretError, which shows none of it.
//
// It is also the check of what is committed: call it on the files of a tree.
func Scan(b []byte, secrets ...string) error {
	needles := needlesOf(secrets)
	for i, form := range forms(b) {
		what, at := known(form, needles)
		if what == "" {
			what, at = shaped(form)
		}
		if what == "" {
			// Base64 may be broken into lines.
			what, at = known(bytes.Join(bytes.Fields(form), nil), needles)
			i++ // the place is not one of b's
		}
		if what == "" {
			continue
		}
		line := 0
		if i == 0 {
			line = 1 + bytes.Count(form[:at], []byte("\n"))
		}
		return &SecretError{What: what, Line: line}
	}
	return nil
}

// forms are b and what it says once escapes are undone, which is how a secret is found however its
// writer spelled it.
func forms(b []byte) [][]byte {
	out := [][]byte{b}
	last := b
	for range 3 { // JSON inside JSON inside JSON
		next := unescapeJSON(last)
		if bytes.Equal(next, last) {
			break
		}
		out, last = append(out, next), next
	}
	for _, f := range out {
		if bytes.IndexByte(f, '%') < 0 {
			continue
		}
		out = append(out, unescapeURL(f, false), unescapeURL(f, true))
	}
	return out
}

type needle struct{ what, text string }

func needlesOf(secrets []string) []needle {
	var out []needle
	for _, s := range secrets {
		if len(s) < MinSecretBytes {
			continue
		}
		out = append(out, needle{"a known secret", s})
		for shift := range 3 {
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				// Only the characters that depend on nothing but the secret.
				text := enc.EncodeToString(append(make([]byte, shift), s...))
				out = append(out, needle{"a known secret in base64", text[(shift*8+5)/6 : (shift+len(s))*8/6]})
			}
		}
		if esc := url.QueryEscape(s); esc != s {
			out = append(out, needle{"a known secret", esc}, needle{"a known secret", url.PathEscape(s)})
		}
	}
	return out
}

func known(b []byte, needles []needle) (what string, at int) {
	for _, n := range needles {
		if i := bytes.Index(b, []byte(n.text)); i >= 0 {
			return n.what, i
		}
	}
	return "", 0
}

func shaped(b []byte) (what string, at int) {
	small := lower(b)
	for _, s := range shapes {
		for m := range s.matches(b, small) {
			if startsWord(b, m[0]) {
				return s.what, m[0]
			}
		}
	}
	return "", 0
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
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 >= len(b) {
			out = append(out, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'b', 'f', 'n', 'r', 't':
			out = append(out, '\n') // a blank, whichever
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
		{"headers", []byte(headerText(r))},
	} {
		if err := Scan(part.b, secrets...); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func headerText(r *recording) string {
	var b strings.Builder
	_ = r.request.header.Write(&b)  // a Builder takes everything
	_ = r.response.header.Write(&b) // so too
	return b.String()
}
