// Package auth is who may call, and what: the keys of the door (SECURITY-DESIGN KT1 to KT4).
//
// A key is checked in three steps, the cheapest first. Its shape and its tag, an HMAC under
// a pepper that only we hold, need no I/O, so that a flood of keys that are none costs no
// state. Then its record is looked up by its public id ([Records]), which is kept in memory
// for a short while; last its secret is compared. [Registry] makes, rotates and revokes keys.
//
// A record lies in a versioned bucket and nowhere else: the state store evicts, and may be
// wiped.
package auth

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Peppers returns the secrets that seal keys: the one that new keys get first, then those
// that old ones may still have. There is at least one. It is safe for concurrent use.
type Peppers func(ctx context.Context) ([][]byte, error)

// MinPepperBytes is the shortest pepper that is taken.
const MinPepperBytes = 32

// maxAuthorizationBytes bounds the header (SECURITY-DESIGN KT1).
const maxAuthorizationBytes = 512

// Checker decides who a caller is. It is safe for concurrent use.
type Checker struct {
	env     string
	peppers Peppers
	records *Records
}

// NewChecker checks the keys of one environment.
func NewChecker(env string, peppers Peppers, records *Records) (*Checker, error) {
	if env == "" || peppers == nil || records == nil {
		return nil, errors.New("auth: a checker needs an environment, peppers and records")
	}
	return &Checker{env: env, peppers: peppers, records: records}, nil
}

// Check reads an Authorization header's value, "" when there is none.
//
// Whatever is no key of this environment is [llmq.CodeInvalidKey], in one and the same
// message, which shows nothing of the value; only the holder of a key's secret is told
// that it has expired, or, by [llmq.CodeKeyRevoked], that it was revoked. A record that
// can't be read is [llmq.CodeQueueUnavailable]: who can't be checked is not served.
func (c *Checker) Check(ctx context.Context, authorization string) (Caller, error) {
	scheme, presented, _ := strings.Cut(authorization, " ")
	if len(authorization) > maxAuthorizationBytes || !strings.EqualFold(scheme, "Bearer") {
		return Caller{}, refusal(scheme, presented)
	}
	t, ok := parseToken(presented, c.env)
	if !ok {
		return Caller{}, refusal(scheme, presented)
	}
	digests, err := c.digests(ctx, t)
	if err != nil {
		return Caller{}, err
	}
	if len(digests) == 0 {
		return Caller{}, refusal(scheme, presented)
	}
	r, err := c.records.Look(ctx, t.kid)
	if errors.Is(err, ErrUnknown) {
		hmac.Equal(digests[0], mac(nil)) // a known id is told from an unknown one by no time
		return Caller{}, refusal(scheme, presented)
	}
	if err != nil {
		return Caller{}, unavailable(err)
	}
	until, ok := r.secret(digests)
	if !ok {
		if r, err = c.records.look(ctx, t.kid, missFor); err != nil {
			return Caller{}, unavailable(err)
		}
		until, ok = r.secret(digests)
	}
	switch {
	case !ok:
		return Caller{}, refusal(scheme, presented)
	case r.RevokedAt != nil:
		return Caller{}, revoked(r)
	case !time.Now().Before(until):
		return Caller{}, llmq.Errorf(llmq.CodeInvalidKey, "the key expired at %s; ask for a new one", until.UTC().Format(time.RFC3339)).At("Authorization")
	}
	return Caller{key: r}, nil
}

// digests are what may be stored of the key's secret: under each pepper that its tag is of. None means that it is
// no key of ours.
func (c *Checker) digests(ctx context.Context, t token) ([][]byte, error) {
	peppers, err := c.peppers(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	var out [][]byte
	for _, p := range peppers {
		if t.sealed(p) {
			out = append(out, t.digest(p))
		}
	}
	return out, nil
}

func unavailable(err error) error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "keys can't be checked at the moment").Because(fmt.Errorf("check a key: %w", err))
}

func revoked(r *Record) *llmq.Error {
	return llmq.Errorf(llmq.CodeKeyRevoked, "the key %s was revoked at %s", r.KID, r.RevokedAt.UTC().Format(time.RFC3339)).At("Authorization")
}

// refusal is the one answer to all that is no key. Who sent somebody else's credentials is told so. A key that has left its
// place must be rotated; a signature tells nothing of the secret that made it.
func refusal(scheme, presented string) error {
	says := "the key is missing or unknown; send an llmq key as Authorization: Bearer KEY"
	switch {
	case strings.HasPrefix(scheme, "AWS4-"):
		says = "this is an AWS signature; send an llmq key as Authorization: Bearer KEY"
	case foreign(scheme, presented):
		says = "this looks like a provider's key; send an llmq key as Authorization: Bearer KEY, and rotate that one, for it has left its place"
	}
	return llmq.Errorf(llmq.CodeInvalidKey, "%s", says).At("Authorization")
}

// foreign reports whether a caller sent somebody else's key: an OpenAI-like one, or a Bedrock API key of either kind.
func foreign(scheme, presented string) bool {
	for _, prefix := range []string{"sk-", "ABSK", "bedrock-api-key-"} {
		if strings.HasPrefix(presented, prefix) || strings.HasPrefix(scheme, prefix) {
			return true
		}
	}
	return false
}
