package admin

import (
	"cmp"
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// Keys serves the verbs of callers' keys (FEATURES A15). It is safe for concurrent use and keeps no state.
//
// Nothing that it returns or logs opens a door, but [NewKey.Key], which is shown once.
type Keys struct {
	registry  *auth.Registry
	catalogue llmq.Catalogue
	trail     Trail
}

// NewKeys makes the verbs. Keys may only list what the catalogue has.
func NewKeys(r *auth.Registry, c llmq.Catalogue, t Trail) *Keys {
	return &Keys{registry: r, catalogue: c, trail: t}
}

// CreateKeyRequest asks for a new key. A list that is left out is empty, and an empty list means none.
type CreateKeyRequest struct {
	Tenant         string        `json:"tenant"` // whose requests it makes
	Name           string        `json:"name"`   // for people
	Scopes         []auth.Scope  `json:"scopes"`
	Models         llmq.ModelSet `json:"models"` // alias or alias@target
	Lanes          []llmq.Lane   `json:"lanes"`
	CallsPerMinute int           `json:"calls_per_minute"` // 0 is no bound
	MaxChoices     int           `json:"max_choices"`      // that one call may ask for; 0 is 8
	ExpiresInDays  int           `json:"expires_in_days"`  // 0 is 90
}

// KeyView is what is shown of a key: all but its secrets.
type KeyView struct {
	KID            string        `json:"kid"`
	Name           string        `json:"name,omitempty"`
	Tenant         string        `json:"tenant"`
	State          KeyState      `json:"state"`
	Scopes         []auth.Scope  `json:"scopes"`
	Models         llmq.ModelSet `json:"models"`
	Lanes          []llmq.Lane   `json:"lanes"`
	CallsPerMinute int           `json:"calls_per_minute"` // 0 is no bound
	MaxChoices     int           `json:"max_choices"`      // that one call may ask for
	CreatedAt      time.Time     `json:"created_at"`
	CreatedBy      string        `json:"created_by"`
	ExpiresAt      time.Time     `json:"expires_at"`
	RevokedAt      *time.Time    `json:"revoked_at,omitempty"`
	RevokedBy      string        `json:"revoked_by,omitempty"`
	Secrets        []SecretView  `json:"secrets"` // newest first; more than one while a rotation overlaps
}

// SecretView is what is shown of a secret.
type SecretView struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// KeyState says whether a key opens the door.
type KeyState string

// The states.
const (
	KeyActive  KeyState = "active"
	KeyExpired KeyState = "expired"
	KeyRevoked KeyState = "revoked"
)

// NewKey is a key with its secret.
type NewKey struct {
	Key  string  `json:"key"` // what its holder sends; no verb shows it again
	View KeyView `json:"record"`
	Note string  `json:"note"`
}

// KeyRequest names a key.
type KeyRequest struct {
	KID string `json:"kid"`
}

// RotateKeyRequest asks for a new secret.
type RotateKeyRequest struct {
	KID           string `json:"kid"`
	OverlapHours  *int   `json:"overlap_hours"`   // how long the secrets so far hold on, 0 to 168; null is 24
	ExpiresInDays int    `json:"expires_in_days"` // of the new one; 0 is 90
}

// KeyList is a page of keys, in the order of their ids.
type KeyList struct {
	Keys []KeyView `json:"keys"`
	Next string    `json:"next,omitempty"` // more follow after this kid
}

// keysPerPage bounds a page: each key is a read of the bucket.
const keysPerPage = 100

const onceNote = "this is the only time that the key is shown"

// CreateKey makes a key.
func (k *Keys) CreateKey(ctx context.Context, by string, r CreateKeyRequest) (made NewKey, err error) {
	defer func() {
		d := deed{by: by, verb: "keys create", args: []any{
			"kid", made.View.KID, "tenant", llmq.Clip(r.Tenant, 48), "name", llmq.Clip(r.Name, 100), "models", len(r.Models), "expires_at", made.View.ExpiresAt,
		}}
		if err == nil {
			d.after = made.View
		}
		err = k.trail.record(ctx, d, err)
	}()
	if err := noKeyIn(r); err != nil {
		return NewKey{}, err
	}
	if err := k.known(r.Models); err != nil {
		return NewKey{}, err
	}
	life, err := days(r.ExpiresInDays)
	if err != nil {
		return NewKey{}, err
	}
	issued, err := k.registry.Create(ctx, by, auth.Wish{
		Name: r.Name, Tenant: r.Tenant, Scopes: r.Scopes, Models: r.Models, Lanes: r.Lanes, CallsPerMinute: r.CallsPerMinute, MaxChoices: r.MaxChoices, Life: life,
	})
	if err != nil {
		return NewKey{}, err
	}
	return NewKey{Key: issued.Key, View: view(issued.Record), Note: onceNote}, nil
}

// RotateKey gives a key a new secret, beside which the old one holds for a while.
func (k *Keys) RotateKey(ctx context.Context, by string, r RotateKeyRequest) (made NewKey, err error) {
	overlap := auth.DefaultOverlap
	d := deed{by: by, verb: "keys rotate"}
	defer func() {
		d.args = []any{"kid", loggedKID(r.KID), "overlap_hours", int(overlap.Hours()), "expires_at", made.View.ExpiresAt}
		err = k.trail.record(ctx, d, err)
	}()
	if r.OverlapHours != nil {
		if *r.OverlapHours < 0 || *r.OverlapHours > int(auth.MaxOverlap.Hours()) {
			return NewKey{}, llmq.Errorf(llmq.CodeInvalidRequest, "overlap_hours must be 0 to %d", int(auth.MaxOverlap.Hours())).At("overlap_hours")
		}
		overlap = time.Duration(*r.OverlapHours) * time.Hour
	}
	life, err := days(r.ExpiresInDays)
	if err != nil {
		return NewKey{}, err
	}
	before, err := k.ShowKey(ctx, r.KID)
	if err != nil {
		return NewKey{}, err
	}
	issued, err := k.registry.Rotate(ctx, r.KID, overlap, life)
	if err != nil {
		return NewKey{}, err
	}
	d.before, d.after = before, view(issued.Record)
	return NewKey{Key: issued.Key, View: view(issued.Record), Note: onceNote}, nil
}

// RevokeKey ends a key: doors refuse it within 30 s, and queued calls that it made end as key_revoked when they are taken next.
func (k *Keys) RevokeKey(ctx context.Context, by string, r KeyRequest) (v KeyView, err error) {
	d := deed{by: by, verb: "keys revoke", args: []any{"kid", loggedKID(r.KID)}}
	defer func() { err = k.trail.record(ctx, d, err) }()
	before, err := k.ShowKey(ctx, r.KID)
	if err != nil {
		return KeyView{}, err
	}
	record, err := k.registry.Revoke(ctx, by, r.KID)
	if err != nil {
		return KeyView{}, err
	}
	d.before, d.after = before, view(record)
	return view(record), nil
}

// ShowKey shows a key.
func (k *Keys) ShowKey(ctx context.Context, kid string) (KeyView, error) {
	record, err := k.registry.Show(ctx, kid)
	if err != nil {
		return KeyView{}, err
	}
	return view(record), nil
}

// ListKeys shows a page of keys, those after a kid; "" is the first page.
func (k *Keys) ListKeys(ctx context.Context, after string) (KeyList, error) {
	records, more, err := k.registry.List(ctx, after, keysPerPage)
	if err != nil {
		return KeyList{}, err
	}
	list := KeyList{Keys: make([]KeyView, 0, len(records))}
	for _, r := range records {
		list.Keys = append(list.Keys, view(r))
	}
	if more && len(records) > 0 {
		list.Next = records[len(records)-1].KID
	}
	return list, nil
}

// loggedKID is a key's id as the log has it. What is none is not logged: it may be the key.
func loggedKID(kid string) string {
	if auth.CheckKID(kid) != nil {
		return ""
	}
	return kid
}

// noKeyIn refuses a wish with a key in one of its fields: a record keeps them, and every list shows them.
func noKeyIn(r CreateKeyRequest) error {
	check := func(field string, values ...string) error {
		for _, v := range values {
			if auth.Redact(v) != v {
				return llmq.Errorf(llmq.CodeInvalidRequest, "%s holds a key, which is a secret", field).At(field)
			}
		}
		return nil
	}
	err := cmp.Or(check("tenant", r.Tenant), check("name", r.Name), check("models", r.Models...))
	for _, s := range r.Scopes {
		err = cmp.Or(err, check("scopes", string(s)))
	}
	for _, l := range r.Lanes {
		err = cmp.Or(err, check("lanes", string(l)))
	}
	return err
}

// known refuses models that the configuration lacks: a misspelt one would be a key that opens nothing.
func (k *Keys) known(models llmq.ModelSet) error {
	var names []string
	for _, m := range k.catalogue.Models() {
		names = append(names, m.Alias)
		for _, t := range m.Targets {
			names = append(names, t.String())
		}
	}
	for _, asked := range models {
		found := false
		for _, name := range names {
			found = found || name == asked
		}
		if found {
			continue
		}
		hint := "; GET /status lists the targets"
		if near := llmq.Nearest(asked, names); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return llmq.Errorf(llmq.CodeInvalidRequest, "no model or target %q is configured%s", llmq.Clip(asked, 80), hint).At("models")
	}
	return nil
}

func days(n int) (time.Duration, error) {
	most := int(auth.MaxLife / (24 * time.Hour))
	if n < 0 || n > most {
		return 0, llmq.Errorf(llmq.CodeInvalidRequest, "expires_in_days must be 1 to %d, or 0 for %d", most, int(auth.DefaultLife/(24*time.Hour))).At("expires_in_days")
	}
	return time.Duration(n) * 24 * time.Hour, nil
}

func view(r *auth.Record) KeyView {
	v := KeyView{
		KID: r.KID, Name: r.Name, Tenant: r.Tenant, State: KeyActive, Scopes: r.Scopes, Models: r.Models, Lanes: r.Lanes, CallsPerMinute: r.CallsPerMinute, MaxChoices: cmp.Or(r.MaxChoices, auth.DefaultMaxChoices),
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, ExpiresAt: r.ExpiresAt(), RevokedAt: r.RevokedAt, RevokedBy: r.RevokedBy,
	}
	for _, s := range r.Secrets {
		v.Secrets = append(v.Secrets, SecretView{CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt})
	}
	switch {
	case r.RevokedAt != nil:
		v.State = KeyRevoked
	case !time.Now().Before(v.ExpiresAt):
		v.State = KeyExpired
	}
	return v
}
