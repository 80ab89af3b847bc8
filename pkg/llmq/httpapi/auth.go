package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Caller is who a request comes from. The zero value is nobody and may do nothing,
// so that a check that was forgotten refuses (SECURITY-DESIGN KT5).
type Caller struct {
	tenant string
	keyID  string
}

// NewCaller is for authenticators: it vouches for a caller of the tenant, who used
// the key of that public id. Without a valid tenant there is no caller.
func NewCaller(tenant, keyID string) (Caller, error) {
	if err := llmq.CheckTenant(tenant); err != nil {
		return Caller{}, fmt.Errorf("make a caller: %w", err)
	}
	return Caller{tenant: tenant, keyID: keyID}, nil
}

// may refuses nobody's requests.
func (c Caller) may() error {
	if c.tenant == "" {
		return llmq.Errorf(llmq.CodeForbidden, "the request has no caller")
	}
	return nil
}

// Authenticator decides who a caller is. Implementations are safe for concurrent use.
type Authenticator interface {
	// Check reads an Authorization header's value, "" when there is none. A value
	// that it does not know is [llmq.CodeInvalidKey], in one and the same message,
	// which shows nothing of the value.
	Check(authorization string) (Caller, error)
}

// StaticKey is a key that the configuration lists.
type StaticKey struct {
	ID     string // public name; may be logged
	Tenant string // whose requests it makes
	Secret string // what callers send as Bearer
}

// StaticKeys lets in the callers that hold one of a fixed set of keys. It keeps
// digests only.
type StaticKeys struct{ keys []hashedKey }

type hashedKey struct {
	digest [sha256.Size]byte
	caller Caller
}

var _ Authenticator = (*StaticKeys)(nil)

// maxAuthorizationBytes bounds the header (SECURITY-DESIGN KT1).
const maxAuthorizationBytes = 512

// NewStaticKeys takes the keys, or says everything that is wrong with them, without
// showing a secret.
func NewStaticKeys(keys []StaticKey) (*StaticKeys, error) {
	var faults []error
	if len(keys) == 0 {
		faults = append(faults, errors.New("no key is configured, so that nobody could call"))
	}
	s := &StaticKeys{}
	ids, digests := map[string]bool{}, map[[sha256.Size]byte]string{}
	for i, k := range keys {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("key %d (%q): %w", i+1, llmq.Clip(k.ID, 48), fmt.Errorf(format, args...)))
		}
		if err := llmq.CheckID("id", k.ID); err != nil {
			fault("%w", err)
		}
		if ids[k.ID] {
			fault("the id is used twice")
		}
		ids[k.ID] = true
		caller, err := NewCaller(k.Tenant, k.ID)
		if err != nil {
			fault("%w", err)
		}
		if !legalSecret(k.Secret) {
			fault("the secret must be 1 to %d printable ASCII characters without spaces", maxAuthorizationBytes-len("Bearer "))
		}
		digest := sha256.Sum256([]byte(k.Secret))
		if other, twice := digests[digest]; twice {
			fault("the secret is that of key %q too", other)
		}
		digests[digest] = k.ID
		s.keys = append(s.keys, hashedKey{digest: digest, caller: caller})
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("read the keys: %w", errors.Join(faults...))
	}
	return s, nil
}

func legalSecret(s string) bool {
	return s != "" && len(s) <= maxAuthorizationBytes-len("Bearer ") &&
		strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Check compares with every key, in a time that tells nothing about which is near.
func (s *StaticKeys) Check(authorization string) (Caller, error) {
	scheme, secret, _ := strings.Cut(authorization, " ")
	if len(authorization) <= maxAuthorizationBytes && strings.EqualFold(scheme, "Bearer") {
		digest := sha256.Sum256([]byte(secret))
		var found Caller
		for _, k := range s.keys {
			if subtle.ConstantTimeCompare(k.digest[:], digest[:]) == 1 {
				found = k.caller
			}
		}
		if found.tenant != "" {
			return found, nil
		}
	}
	if foreign(scheme, secret) {
		return Caller{}, llmq.Errorf(llmq.CodeInvalidKey, "this looks like a provider's key or an AWS signature; send an llmq key as Authorization: Bearer KEY, and rotate that one, for it has left its place").At("Authorization")
	}
	return Caller{}, llmq.Errorf(llmq.CodeInvalidKey, "the key is missing or unknown; send an llmq key as Authorization: Bearer KEY").At("Authorization")
}

// foreign reports whether a caller sent somebody else's credentials: an OpenAI-like
// key, a Bedrock API key of either kind, or a signed AWS request.
func foreign(scheme, secret string) bool {
	if strings.HasPrefix(scheme, "AWS4-") {
		return true
	}
	for _, prefix := range []string{"sk-", "ABSK", "bedrock-api-key-"} {
		if strings.HasPrefix(secret, prefix) || strings.HasPrefix(scheme, prefix) {
			return true
		}
	}
	return false
}
