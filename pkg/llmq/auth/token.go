package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"math/big"
	"regexp"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// A key as its holder sends it: llmq_<env>_<kid>_<secret>_<tag>, in letters, digits and
// underscores alone, so that it is a legal OpenAI key and a legal Bedrock bearer token.
const (
	tokenPrefix = "llmq_"
	kidChars    = 10 // 50 random bits, in Crockford's base32
	secretChars = 43 // 256 random bits, in base62
	tagChars    = 6  // the first of an HMAC: keeps what is no key of ours away from every store
)

const (
	crockford = "0123456789abcdefghjkmnpqrstvwxyz"
	base62    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// token is a key taken apart. What is in it is a secret.
type token struct{ env, kid, secret, tag string }

// String redacts what a log or an error may not show.
func (t token) String() string { return "key " + t.kid }

// GoString redacts the same.
func (t token) GoString() string { return t.String() }

// spell is the key as its holder sends it.
func (t token) spell() string {
	return tokenPrefix + spellEnv(t.env) + "_" + t.kid + "_" + t.secret + "_" + t.tag
}

// spellEnv is the environment's name without the character that keys lack. No name has an underscore, so that no two
// become one.
func spellEnv(env string) string { return strings.ReplaceAll(env, "-", "_") }

// parseToken takes a key of env apart, by the lengths of its parts. It does no I/O and allocates nothing that
// grows with what it is given.
func parseToken(s, env string) (token, bool) {
	head := tokenPrefix + spellEnv(env) + "_"
	if len(s) != len(head)+kidChars+1+secretChars+1+tagChars || s[:len(head)] != head {
		return token{}, false
	}
	rest := s[len(head):]
	t := token{env: env, kid: rest[:kidChars], secret: rest[kidChars+1 : kidChars+1+secretChars], tag: rest[len(rest)-tagChars:]}
	if rest[kidChars] != '_' || rest[kidChars+1+secretChars] != '_' || !legalKID(t.kid) || !of(base62, t.secret) || !of(base62, t.tag) {
		return token{}, false
	}
	return t, true
}

// keyLike is a key of any environment, or as much of one as holds a piece of its secret.
var keyLike = regexp.MustCompile(`(llmq_[0-9a-z_]+_)([` + crockford + `]{10})_[0-9A-Za-z]{1,43}(_[0-9A-Za-z]*)?`)

// Redact cuts the secret out of every key in s, and leaves the key's id, which is public. It is for what was sent in place of
// something else and is to be logged or quoted.
func Redact(s string) string {
	return keyLike.ReplaceAllString(s, "${1}${2}_[redacted]")
}

// aKey is the id of the key that s is, or "" where it looks like none.
func aKey(s string) string {
	if m := keyLike.FindStringSubmatch(s); m != nil {
		return m[2]
	}
	return ""
}

// CheckKID refuses what is no key's id, without a word of it: it may be the key.
func CheckKID(kid string) error {
	if legalKID(kid) {
		return nil
	}
	if id := aKey(kid); id != "" {
		return llmq.Errorf(llmq.CodeInvalidRequest, "that is a key, not its id; its id is %s. Whoever saw the key can use it: rotate it with overlap_hours 0", id).At("kid")
	}
	return llmq.Errorf(llmq.CodeInvalidRequest, "that is no key's id, which has %d characters; GET /keys lists them", kidChars).At("kid")
}

// legalKID reports whether kid may name an object or a key of the state store.
func legalKID(kid string) bool { return len(kid) == kidChars && of(crockford, kid) }

// of reports whether s is made of the alphabet's characters alone.
func of(alphabet, s string) bool {
	return strings.Trim(s, alphabet) == ""
}

// newKID draws a public id.
func newKID() string {
	var b [kidChars]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	for i := range b {
		b[i] = crockford[b[i]%32]
	}
	return string(b[:])
}

// newToken draws a secret for kid and seals it with the pepper.
func newToken(env, kid string, pepper []byte) token {
	var b [sha256.Size]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	t := token{env: env, kid: kid, secret: inBase62(b[:])}
	t.tag = t.seal(pepper)
	return t
}

// seal is the tag that the pepper gives to the rest of the key.
func (t token) seal(pepper []byte) string {
	return inBase62(mac(pepper, t.env, t.kid, t.secret))[:tagChars]
}

// sealed reports whether the tag is the one that the pepper gives.
func (t token) sealed(pepper []byte) bool {
	return hmac.Equal([]byte(t.tag), []byte(t.seal(pepper)))
}

// digest is what is stored of a secret. 256 random bits need no slow hash.
func (t token) digest(pepper []byte) []byte { return mac(pepper, t.secret) }

// mac is the HMAC-SHA-256 of the parts, which have fixed lengths but for the first.
func mac(pepper []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, pepper)
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

// inBase62 writes 32 bytes as 43 characters.
func inBase62(b []byte) string {
	n, digit, radix := new(big.Int).SetBytes(b), new(big.Int), big.NewInt(int64(len(base62)))
	var out [secretChars]byte
	for i := len(out) - 1; i >= 0; i-- {
		n.QuoRem(n, radix, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out[:])
}
