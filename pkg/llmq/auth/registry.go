package auth

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// How long keys and rotations last (SECURITY-DESIGN KT3).
const (
	DefaultLife    = 90 * 24 * time.Hour
	MaxLife        = 365 * 24 * time.Hour
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 7 * 24 * time.Hour

	// mostSecrets bounds the secrets of a key that hold at once: the new one and three that overlap with it.
	mostSecrets = 4
	// mostTries is how often a change is begun anew because somebody else's came between.
	mostTries = 5
)

// Registry makes keys and changes them. It is safe for concurrent use, also by several processes: every change is
// written only over what it was made from.
type Registry struct {
	env     string
	peppers Peppers
	objects Objects
}

// NewRegistry keeps the keys of one environment in objects.
func NewRegistry(env string, peppers Peppers, objects Objects) *Registry {
	return &Registry{env: env, peppers: peppers, objects: objects}
}

// Wish is what a new key is to be.
type Wish struct {
	Name           string
	Tenant         string
	Scopes         []Scope
	Models         llmq.ModelSet
	Lanes          []llmq.Lane
	CallsPerMinute int           // 0 is no bound
	MaxChoices     int           // of one call; 0 is [DefaultMaxChoices]
	Life           time.Duration // 0 is [DefaultLife]
}

// Issued is a key with its secret, which is shown this once: no verb ever returns it again.
type Issued struct {
	Record *Record
	Key    string // what its holder sends
}

// String redacts the secret.
func (i Issued) String() string { return "key " + i.Record.KID }

// GoString redacts it too.
func (i Issued) GoString() string { return i.String() }

// Create makes a key. by is who asks for it.
func (g *Registry) Create(ctx context.Context, by string, w Wish) (Issued, error) {
	now := time.Now()
	expires, err := expiry(now, w.Life)
	if err != nil {
		return Issued{}, err
	}
	r := Record{
		V: recordVersion, Name: w.Name, Tenant: w.Tenant, Scopes: orEmpty(w.Scopes), Models: orEmpty(w.Models), Lanes: orEmpty(w.Lanes),
		CallsPerMinute: w.CallsPerMinute, MaxChoices: w.MaxChoices, CreatedAt: stamp(now), CreatedBy: by,
	}
	if err := r.checkRights(); err != nil {
		return Issued{}, err
	}
	pepper, err := g.pepper(ctx)
	if err != nil {
		return Issued{}, err
	}
	for range mostTries {
		t := newToken(g.env, newKID(), pepper)
		fresh := r
		fresh.KID, fresh.Secrets = t.kid, []Secret{{Digest: hex.EncodeToString(t.digest(pepper)), CreatedAt: stamp(now), ExpiresAt: stamp(expires)}}
		err := g.put(ctx, &fresh, "")
		if errors.Is(err, ErrChanged) {
			continue // the id is taken
		}
		if err != nil {
			return Issued{}, err
		}
		return Issued{Record: &fresh, Key: t.spell()}, nil
	}
	return Issued{}, llmq.Errorf(llmq.CodeInternal, "no free key id was found")
}

// Rotate gives a key a new secret. The ones so far hold on for the overlap, and never longer than they would have;
// kid, tenant and rights stay. overlap 0 ends them at once; life 0 is [DefaultLife].
func (g *Registry) Rotate(ctx context.Context, kid string, overlap, life time.Duration) (Issued, error) {
	now := time.Now()
	if overlap < 0 || overlap > MaxOverlap {
		return Issued{}, llmq.Errorf(llmq.CodeInvalidRequest, "overlap must be 0 to %d hours", int(MaxOverlap.Hours())).At("overlap_hours")
	}
	expires, err := expiry(now, life)
	if err != nil {
		return Issued{}, err
	}
	pepper, err := g.pepper(ctx)
	if err != nil {
		return Issued{}, err
	}
	t := newToken(g.env, kid, pepper)
	r, err := g.change(ctx, kid, func(r *Record) error {
		if r.RevokedAt != nil {
			return llmq.Errorf(llmq.CodeInvalidRequest, "the key %s is revoked; create a new one", kid).At("kid")
		}
		secrets := []Secret{{Digest: hex.EncodeToString(t.digest(pepper)), CreatedAt: stamp(now), ExpiresAt: stamp(expires)}}
		for _, s := range r.Secrets {
			if s.Digest == secrets[0].Digest {
				continue // written before, by a try whose answer was lost
			}
			if last := stamp(now.Add(overlap)); s.ExpiresAt.After(last) {
				s.ExpiresAt = last
			}
			if s.ExpiresAt.After(now) {
				secrets = append(secrets, s)
			}
		}
		if len(secrets) > mostSecrets {
			return llmq.Errorf(llmq.CodeInvalidRequest, "%d secrets of the key %s hold already; rotate it with overlap_hours 0, or wait until one has ended", mostSecrets, kid).At("overlap_hours")
		}
		r.Secrets = secrets
		return nil
	})
	if err != nil {
		return Issued{}, err
	}
	return Issued{Record: r, Key: t.spell()}, nil
}

// Revoke ends a key for good: doors and workers refuse it within 30 s. A key that is revoked already stays as it is.
func (g *Registry) Revoke(ctx context.Context, by, kid string) (*Record, error) {
	now := stamp(time.Now())
	return g.change(ctx, kid, func(r *Record) error {
		if r.RevokedAt == nil {
			r.RevokedAt, r.RevokedBy = &now, by
		}
		return nil
	})
}

// Show reads a key's record.
func (g *Registry) Show(ctx context.Context, kid string) (*Record, error) {
	r, _, err := g.get(ctx, kid)
	return r, err
}

// List reads the records of a page of keys, in the order of their ids, after one of them. more says whether others
// follow.
func (g *Registry) List(ctx context.Context, after string, most int) (list []*Record, more bool, err error) {
	if after != "" {
		if err := CheckKID(after); err != nil {
			return nil, false, err
		}
		after = objectOf(after)
	}
	names, more, err := g.objects.List(ctx, objectPrefix, after, most)
	if err != nil {
		return nil, false, unreadable(err)
	}
	for _, name := range names {
		kid := strings.TrimSuffix(strings.TrimPrefix(name, objectPrefix), ".json")
		if !legalKID(kid) {
			continue // nothing of ours
		}
		r, _, err := g.get(ctx, kid)
		if err != nil {
			return nil, false, err
		}
		list = append(list, r)
	}
	return list, more, nil
}

// change makes a change of a record and writes it over the version that it was made from.
func (g *Registry) change(ctx context.Context, kid string, make func(*Record) error) (*Record, error) {
	for range mostTries {
		r, version, err := g.get(ctx, kid)
		if err != nil {
			return nil, err
		}
		if err := make(r); err != nil {
			return nil, err
		}
		err = g.put(ctx, r, version)
		if errors.Is(err, ErrChanged) {
			continue
		}
		return r, err
	}
	return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the key %s is being changed by others; ask again", kid).After(time.Second)
}

func (g *Registry) get(ctx context.Context, kid string) (*Record, string, error) {
	if err := CheckKID(kid); err != nil {
		return nil, "", err
	}
	body, version, err := g.objects.Get(ctx, objectOf(kid))
	if errors.Is(err, ErrUnknown) {
		return nil, "", noSuchKey(kid)
	}
	if err != nil {
		return nil, "", unreadable(err)
	}
	r, err := readRecord(kid, body)
	if err != nil {
		return nil, "", llmq.Errorf(llmq.CodeInternal, "the record of key %s can't be read", kid).Because(err)
	}
	return r, version, nil
}

func (g *Registry) put(ctx context.Context, r *Record, version string) error {
	body, err := r.encode()
	if err != nil {
		return err
	}
	err = g.objects.Put(ctx, objectOf(r.KID), body, version)
	if err == nil || errors.Is(err, ErrChanged) {
		return err
	}
	return unreadable(err)
}

// pepper is the one that new keys get.
func (g *Registry) pepper(ctx context.Context) ([]byte, error) {
	peppers, err := g.peppers(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return peppers[0], nil
}

func noSuchKey(kid string) error {
	return llmq.Errorf(llmq.CodeInvalidRequest, "there is no key %q; GET /keys lists them", kid).At("kid")
}

func unreadable(err error) error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the state bucket can't be reached").Because(fmt.Errorf("keys: %w", err))
}

func expiry(now time.Time, life time.Duration) (time.Time, error) {
	if life == 0 {
		life = DefaultLife
	}
	if life < 0 || life > MaxLife {
		return time.Time{}, llmq.Errorf(llmq.CodeInvalidRequest, "a key lives for 1 to %d days", int(MaxLife.Hours()/24)).At("expires_in_days")
	}
	return now.Add(life), nil
}

// stamp is a time as records keep it: whole seconds, so that it is written as people read it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// orEmpty keeps null out of records: an empty list means none, and is to be seen.
func orEmpty[S ~[]E, E any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}
