// Package authtest is keys for tests: records in memory, and a checker that knows them. Nothing that is deployed
// may import it.
package authtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// Env is the environment of the keys.
const Env = "test"

// Pepper seals them.
const Pepper = "a-pepper-of-tests-that-is-no-secret-at-all"

// Peppers is the source of [Pepper].
func Peppers(context.Context) ([][]byte, error) { return [][]byte{[]byte(Pepper)}, nil }

// Objects are records in memory. The zero value is empty, and safe for concurrent use.
type Objects struct {
	mu    sync.Mutex // guards all below
	kept  map[string][]byte
	fail  error
	reads int
}

var _ auth.Objects = (*Objects)(nil)

// Fail makes every call fail from now on; nil makes them work again.
func (o *Objects) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = err
}

// Calls is how many calls there were.
func (o *Objects) Calls() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads
}

// Plant puts an object there, whatever it holds; nil removes it.
func (o *Objects) Plant(key string, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(key, body)
}

func (o *Objects) write(key string, body []byte) {
	if o.kept == nil {
		o.kept = map[string][]byte{}
	}
	if o.kept[key] = slices.Clone(body); body == nil {
		delete(o.kept, key)
	}
}

func version(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

// Get implements [auth.Objects].
func (o *Objects) Get(_ context.Context, key string) ([]byte, string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	body, ok := o.kept[key]
	switch {
	case o.fail != nil:
		return nil, "", o.fail
	case !ok:
		return nil, "", auth.ErrUnknown
	}
	return slices.Clone(body), version(body), nil
}

// Put implements [auth.Objects].
func (o *Objects) Put(_ context.Context, key string, body []byte, over string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	if o.fail != nil {
		return o.fail
	}
	had, ok := o.kept[key]
	if ok && over != version(had) || !ok && over != "" {
		return auth.ErrChanged
	}
	o.write(key, body)
	return nil
}

// List implements [auth.Objects].
func (o *Objects) List(_ context.Context, prefix, after string, most int) ([]string, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	if o.fail != nil {
		return nil, false, o.fail
	}
	var keys []string
	for k := range o.kept {
		if strings.HasPrefix(k, prefix) && k > after {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys[:min(most, len(keys))], len(keys) > most, nil
}

// Keys are keys in memory with those who make and check them.
type Keys struct {
	Objects  *Objects
	Registry *auth.Registry
	Records  *auth.Records
	Checker  *auth.Checker
}

// New has no key yet.
func New() *Keys {
	k := &Keys{Objects: &Objects{}}
	k.Registry = auth.NewRegistry(Env, Peppers, k.Objects)
	k.Records = auth.NewRecords(k.Objects)
	var err error
	if k.Checker, err = auth.NewChecker(Env, Peppers, k.Records); err != nil {
		panic(err)
	}
	return k
}

// All is the wish of a tenant's key that may do everything with these models.
func All(tenant string, models ...string) auth.Wish {
	return auth.Wish{Tenant: tenant, Scopes: auth.Scopes(), Models: models, Lanes: llmq.Lanes()}
}

// Issue makes a key.
func (k *Keys) Issue(w auth.Wish) auth.Issued {
	i, err := k.Registry.Create(context.Background(), "test", w)
	if err != nil {
		panic(err)
	}
	return i
}

// Door is a checker of the same keys with a memory of its own, as another process has; a bubble of synctest needs one made
// inside it.
func (k *Keys) Door() *auth.Checker {
	c, err := auth.NewChecker(Env, Peppers, auth.NewRecords(k.Objects))
	if err != nil {
		panic(err)
	}
	return c
}

// NoRates is for doors none of whose keys has a rate.
type NoRates struct{}

// Take panics.
func (NoRates) Take(context.Context, string, int, string) (auth.Rate, error) {
	panic("authtest: no key of this test has a rate")
}
