package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

const (
	fresh = 5 * time.Minute // a fetched value is used as it is for this long
	pause = time.Minute     // between two fetches of one secret, whatever came of the first
	stale = time.Hour       // a value outlives failing fetches for this long
)

// ErrNotFound says that a secret does not exist, or no longer does.
var ErrNotFound = errors.New("no such secret")

// Store is where secrets with an ARN lie; [Manager] is AWS's.
type Store interface {
	// GetSecretValue returns the current value. The error is ErrNotFound when there
	// is none; no error holds the value.
	GetSecretValue(ctx context.Context, arn string) (Secret, error)
	// GetPreviousValue returns the value before the last rotation, and ErrNotFound where
	// there was none.
	GetPreviousValue(ctx context.Context, arn string) (Secret, error)
}

// Resolver finds the values of references. It is safe for concurrent use; two calls
// at once for one secret that is not cached may both fetch it.
type Resolver struct {
	env   map[string]string
	store Store

	mu     sync.Mutex // guards cached; never held while fetching
	cached map[string]entry
}

// entry is what is known of an ARN.
type entry struct {
	secret  Secret
	fetched time.Time // when secret was current; zero: never
	tried   time.Time // last fetch begun
	gone    error     // what the last fetch said, when it said that there is no secret
}

// NewResolver reads variables from env (as os.Environ gives them) and ARNs from
// store, which may be nil where no reference has an ARN.
func NewResolver(env []string, store Store) *Resolver {
	r := &Resolver{env: map[string]string{}, store: store, cached: map[string]entry{}}
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			r.env[name] = value
		}
	}
	return r
}

// Resolve finds a reference's value. One with an ARN is cached for 5 min, and for up
// to an hour while the store fails for another reason than that the secret is gone;
// that it is gone is remembered for a minute.
// Errors have [llmq.CodeConfiguration] when the reference is at fault.
func (r *Resolver) Resolve(ctx context.Context, ref config.Secret) (Secret, error) {
	if ref.ARN == "" {
		return r.variable(ref)
	}
	return r.resolve(ctx, ref.ARN)
}

func (r *Resolver) resolve(ctx context.Context, name string) (Secret, error) {
	now := time.Now()
	e := r.entry(name)
	if e.gone != nil && now.Sub(e.tried) < pause {
		return Secret{}, e.gone
	}
	if !e.fetched.IsZero() && (now.Sub(e.fetched) < fresh || now.Sub(e.tried) < pause && now.Sub(e.fetched) < stale) {
		return e.secret, nil
	}
	return r.fetch(ctx, name, now)
}

// previous marks the entry of the value before the last rotation. No ARN has a #.
const previous = "#previous"

// Versions finds the values of a secret that rotates under those who use it: the current one first, and the one before where there
// is one. Both are cached as [Resolver.Resolve] says, that there is none before too.
func (r *Resolver) Versions(ctx context.Context, ref config.Secret) ([]Secret, error) {
	current, err := r.Resolve(ctx, ref)
	if err != nil || ref.ARN == "" {
		return []Secret{current}, err
	}
	before, err := r.resolve(ctx, ref.ARN+previous)
	if errors.Is(err, ErrNotFound) {
		return []Secret{current}, nil
	}
	return []Secret{current, before}, err
}

// Refresh fetches a reference's value anew, because the cached one was refused: a
// provider's 401 after a rotation. A secret is fetched once a minute at most; in
// between the cached value is returned, as [Resolver.Resolve] would.
func (r *Resolver) Refresh(ctx context.Context, ref config.Secret) (Secret, error) {
	now := time.Now()
	if ref.ARN == "" || now.Sub(r.entry(ref.ARN).tried) < pause {
		return r.Resolve(ctx, ref)
	}
	return r.fetch(ctx, ref.ARN, now)
}

func (r *Resolver) variable(ref config.Secret) (Secret, error) {
	if ref.Env == "" {
		return Secret{}, llmq.Errorf(llmq.CodeConfiguration, "a secret is needed and none is configured")
	}
	s, err := usable(r.env[ref.Env])
	if err != nil {
		return Secret{}, llmq.Errorf(llmq.CodeConfiguration, "secret variable %s %v", ref.Env, err)
	}
	return s, nil
}

func (r *Resolver) entry(arn string) entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cached[arn]
}

// fetch asks the store, and notes first that it does, so that a storm of refusals
// makes one fetch.
func (r *Resolver) fetch(ctx context.Context, name string, now time.Time) (Secret, error) {
	r.mu.Lock()
	e := r.cached[name]
	e.tried = now
	r.cached[name] = e
	r.mu.Unlock()

	arn, before := strings.CutSuffix(name, previous)
	if r.store == nil {
		return Secret{}, llmq.Errorf(llmq.CodeConfiguration, "secret %s needs Secrets Manager, which this program does not use", arn)
	}
	get := r.store.GetSecretValue
	if before {
		get = r.store.GetPreviousValue
	}
	s, err := get(ctx, arn)
	if err == nil {
		s, err = usable(s.Reveal())
		if err != nil {
			err = llmq.Errorf(llmq.CodeConfiguration, "its value %v", err)
		}
	}
	switch {
	case err == nil:
		r.put(name, entry{secret: s, fetched: now, tried: now})
		return s, nil
	case errors.Is(err, ErrNotFound):
		gone := llmq.Errorf(llmq.CodeConfiguration, "secret %s does not exist", arn).Because(err)
		r.put(name, entry{tried: now, gone: gone}) // a deleted key must stop working
		return Secret{}, gone
	case !e.fetched.IsZero() && now.Sub(e.fetched) < stale:
		return e.secret, nil
	}
	return Secret{}, fmt.Errorf("reading secret %s: %w", arn, err)
}

func (r *Resolver) put(arn string, e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cached[arn] = e
}

// usable checks a value and cuts the spaces and line ends around it that editors and
// shells leave. What is left goes into an HTTP header, so it has to be printable.
func usable(value string) (Secret, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return Secret{}, errors.New("is missing or empty")
	}
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			return Secret{}, errors.New("holds a space, a line break or another character that no key has")
		}
	}
	return New(value), nil
}
