package llmq

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// MaxIDBytes bounds the ids that callers choose (SECURITY-DESIGN IN4).
const MaxIDBytes = 128

// RID is a request's id inside llmq: the caller's id scoped by its tenant, so that
// two tenants may use the same one and neither can guess the other's. Records,
// claims, results and stored objects are named by it, never by the caller's text.
type RID string

// NewRID scopes a caller's id (SECURITY-DESIGN section 0.2).
func NewRID(tenant, id string) RID {
	h := sha256.New()
	h.Write([]byte("rid1"))
	h.Write([]byte(tenant))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return RID(encode(h.Sum(nil)))
}

// NewID makes an id for a request whose caller chose none: 128 random bits.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the process instead
	return "req_" + encode(b[:])
}

// DoctorTenant is whose the messages are by which an operator tries each lane. Operators may read its results and no
// others', so nobody should be of it.
const DoctorTenant = "llmq-doctor"

// TenantHash is how a tenant appears in names that outsiders may see: Valkey keys,
// object names, message groups. 80 bits keep tenants apart.
func TenantHash(tenant string) string {
	h := sha256.Sum256([]byte("tenant1" + tenant))
	return encode(h[:10])
}

func encode(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// CheckID refuses an id that is empty, longer than [MaxIDBytes] or holds anything
// but letters, digits and . _ : -. The field is named in the error.
func CheckID(field, id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return Errorf(CodeInvalidRequest, "%s must have 1 to %d characters, has %d", field, MaxIDBytes, len(id)).At(field)
	}
	for i, c := range []byte(id) {
		if !alphanumeric(c) && strings.IndexByte("._:-", c) < 0 {
			return Errorf(CodeInvalidRequest, "%s holds an illegal character at position %d; use letters, digits and . _ : -", field, i+1).At(field)
		}
	}
	return nil
}

// CheckTenant refuses a tenant name that does not match [a-z0-9-]{1,48}.
func CheckTenant(t string) error {
	ok := len(t) >= 1 && len(t) <= 48
	for _, c := range []byte(t) {
		ok = ok && ('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-')
	}
	if !ok {
		return Errorf(CodeInvalidRequest, "tenant %q must match [a-z0-9-]{1,48}", Clip(t, 60)).At("tenant")
	}
	return nil
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
