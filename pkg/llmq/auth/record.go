package auth

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Record is what is kept of a key: keys/<kid>.json in the state bucket. It is read-only once read.
type Record struct {
	V              int           `json:"v"`
	KID            string        `json:"kid"`
	Name           string        `json:"name,omitempty"` // for people
	Tenant         string        `json:"tenant"`
	Scopes         []Scope       `json:"scopes"`
	Models         llmq.ModelSet `json:"models"`
	Lanes          []llmq.Lane   `json:"lanes"`
	CallsPerMinute int           `json:"calls_per_minute,omitempty"` // 0 is no bound
	MaxChoices     int           `json:"max_choices,omitempty"`      // 0 is [DefaultMaxChoices]
	CreatedAt      time.Time     `json:"created_at"`
	CreatedBy      string        `json:"created_by"`
	RevokedAt      *time.Time    `json:"revoked_at,omitempty"`
	RevokedBy      string        `json:"revoked_by,omitempty"`
	Secrets        []Secret      `json:"secrets"` // the newest first
}

// Secret is one of a key's secrets: the current one, and while a rotation overlaps the one before.
type Secret struct {
	Digest    string    `json:"digest"` // HMAC-SHA-256 in hexadecimal; never the secret
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

const (
	recordVersion  = 1
	maxRecordBytes = 64 << 10
	maxModels      = 200
	maxNameBytes   = 100
	// DefaultMaxChoices is how many choices one call may ask for by a key that says nothing of it.
	DefaultMaxChoices = 8
	// MaxChoices is the most that a key may allow.
	MaxChoices = 128
	// MaxCallsPerMinute is the largest rate of a key: the state store remembers each call for a minute.
	MaxCallsPerMinute = 60_000
)

// secret finds which of the key's secrets one of the digests is of, and until when that one holds. All are
// compared, each in constant time.
func (r *Record) secret(digests [][]byte) (until time.Time, ok bool) {
	for _, s := range r.Secrets {
		stored, err := hex.DecodeString(s.Digest)
		if err != nil {
			continue // check has refused such a record
		}
		for _, d := range digests {
			if hmac.Equal(stored, d) {
				until, ok = s.ExpiresAt, true
			}
		}
	}
	return until, ok
}

// ExpiresAt is when the last of the key's secrets ends.
func (r *Record) ExpiresAt() time.Time {
	var last time.Time
	for _, s := range r.Secrets {
		if s.ExpiresAt.After(last) {
			last = s.ExpiresAt
		}
	}
	return last
}

func (r *Record) encode() ([]byte, error) {
	if err := r.check(r.KID); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// readRecord reads what lies under a kid. What is not a whole record of that kid, or is of a newer form, is an error:
// half a record must open nothing.
func readRecord(kid string, body []byte) (*Record, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var r Record
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("read the record of key %s: %w", kid, err)
	}
	if err := r.check(kid); err != nil {
		return nil, fmt.Errorf("read the record of key %s: %w", kid, err)
	}
	return &r, nil
}

func (r *Record) check(kid string) error {
	switch {
	case r.V != recordVersion:
		return fmt.Errorf("its version is %d, this release reads %d", r.V, recordVersion)
	case r.KID != kid || !legalKID(r.KID):
		return errors.New("it is another key's")
	case len(r.Secrets) == 0:
		return errors.New("it has no secret")
	}
	for _, s := range r.Secrets {
		if b, err := hex.DecodeString(s.Digest); err != nil || len(b) != digestBytes || s.ExpiresAt.IsZero() {
			return errors.New("a secret's digest or end is not of its form")
		}
	}
	return r.checkRights()
}

// digestBytes is the length of an HMAC-SHA-256.
const digestBytes = 32

// checkRights refuses what a key can't be for. The error names the field.
func (r *Record) checkRights() error {
	bad := func(field, format string, args ...any) error {
		return llmq.Errorf(llmq.CodeInvalidRequest, format, args...).At(field)
	}
	if err := llmq.CheckTenant(r.Tenant); err != nil {
		return err
	}
	if len(r.Name) > maxNameBytes {
		return bad("name", "name has %d bytes; at most %d are kept", len(r.Name), maxNameBytes)
	}
	for _, s := range r.Scopes {
		if !slices.Contains(Scopes(), s) {
			return bad("scopes", "scope %q is unknown; use call, submit, read, cancel or batch", llmq.Clip(string(s), 40))
		}
	}
	for _, l := range r.Lanes {
		if _, err := llmq.ParseLane(string(l)); err != nil || l == "" {
			return bad("lanes", "lane %q is unknown; use rt, bg or bulk", llmq.Clip(string(l), 40))
		}
	}
	if len(r.Models) > maxModels {
		return bad("models", "%d models are listed; at most %d are kept", len(r.Models), maxModels)
	}
	for _, m := range r.Models {
		if _, err := llmq.ParseModelRef(m); err != nil {
			return bad("models", "%q is neither a model nor model@target", llmq.Clip(m, 80))
		}
	}
	if r.CallsPerMinute < 0 || r.CallsPerMinute > MaxCallsPerMinute {
		return bad("calls_per_minute", "calls_per_minute must be 1 to %d, or 0 for no bound", MaxCallsPerMinute)
	}
	if r.MaxChoices < 0 || r.MaxChoices > MaxChoices {
		return bad("max_choices", "max_choices must be 1 to %d, or 0 for %d", MaxChoices, DefaultMaxChoices)
	}
	return nil
}
