// Package results reads how requests ended and wakes those who wait: one
// subscription connection and one reader per process, however many wait. Storing is
// the business of the claim's fence, so it is not done here.
package results

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Bodies fetches and stores bodies that are too large for the state store.
type Bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
	Get(ctx context.Context, ref llmq.Ref) ([]byte, error)
}

// Store encodes and reads results. It is safe for concurrent use.
type Store struct {
	// Mixed is called when a read gave another request's result, before it is read anew: the state store's replies may be mixed up,
	// or somebody wrote it there. It is set before the store is used; nil is nobody.
	Mixed func(llmq.Request)

	client redis.UniversalClient
	keys   keys.Space
	bodies Bodies
	inline int
}

// New is the store of one environment's results. Bodies of more than inline bytes
// lie in bodies.
func New(client redis.UniversalClient, space keys.Space, bodies Bodies, inline int) *Store {
	return &Store{client: client, keys: space, bodies: bodies, inline: inline}
}

// putWithin bounds how long a large body may take to be put aside, so that the caller
// has time left to store it otherwise.
const putWithin = 3 * time.Second

// Encode makes the stored form of a result, putting a large body aside first, and with kept, for a result that lies
// a day, any body where there is a bucket: the state store's memory is dear. Where that
// fails, the body stays inside all the same, since it is paid for and no provider gives
// one that the state store could not hold; inside then says why.
func (s *Store) Encode(ctx context.Context, r llmq.Result, kept bool) (stored []byte, inside, err error) {
	_, bucket := s.bodies.(Spills)
	if r.Reply == nil || len(r.Reply.Body) <= s.inline && (!kept || !bucket || len(r.Reply.Body) == 0) {
		stored, err = llmq.EncodeResult(r, nil)
		return stored, nil, err
	}
	putting, cancel := context.WithTimeout(ctx, putWithin)
	defer cancel()
	ref, inside := s.bodies.Put(putting, prefix(r.Tenant)+string(r.RID), r.Reply.Body)
	if inside != nil {
		stored, err = llmq.EncodeResult(r, nil)
		return stored, inside, err
	}
	stored, err = llmq.EncodeResult(r, &ref)
	return stored, nil, err
}

// Look reads the stored form of r's result; it is nil when there is none.
func (s *Store) Look(b *luascript.Batch, r llmq.Request) luascript.Pending[[]byte] {
	call := b.Command("GET", s.keys.Call(r.Tenant, r.RID()).Result)
	return func() ([]byte, error) {
		text, ok, err := call.Text()
		if err != nil || !ok {
			return nil, err
		}
		return []byte(text), nil
	}
}

// Decode reads what [Store.Look] or a [Waiter] gave, checks that it is r's own, and
// fetches a body that lies elsewhere.
func (s *Store) Decode(ctx context.Context, r llmq.Request, stored []byte) (llmq.Result, error) {
	return s.DecodeFrom(ctx, r, stored, 0)
}

// DecodeFrom is Decode for a reader who has the first bytes of the reply's body: they are left out, and where
// he has all of it nothing is fetched.
func (s *Store) DecodeFrom(ctx context.Context, r llmq.Request, stored []byte, from int64) (llmq.Result, error) {
	res, ref, err := llmq.DecodeResult(stored, r.RID(), r.Tenant)
	if errors.Is(err, llmq.ErrAnothersResult) {
		if stored = s.again(ctx, r); stored != nil {
			res, ref, err = llmq.DecodeResult(stored, r.RID(), r.Tenant)
		}
	}
	if err != nil {
		return llmq.Result{}, llmq.Errorf(llmq.CodeInternal, "the stored result can't be read").Because(err)
	}
	if ref != nil && ref.Bytes > from {
		if res.Reply.Body, err = s.fetch(ctx, r, *ref); err != nil {
			return llmq.Result{}, err
		}
	}
	if from > 0 && res.Reply != nil {
		res.Reply.Body = res.Reply.Body[min(from, int64(len(res.Reply.Body))):]
	}
	return res, nil
}

// again reads r's result anew, after another's came in its place. Nil: there is none to be had.
func (s *Store) again(ctx context.Context, r llmq.Request) []byte {
	if s.Mixed != nil {
		s.Mixed(r)
	}
	if s.client == nil {
		return nil
	}
	stored, err := s.client.Get(ctx, s.keys.Call(r.Tenant, r.RID()).Result).Bytes()
	if err != nil {
		return nil
	}
	return stored
}

func (s *Store) fetch(ctx context.Context, r llmq.Request, ref llmq.Ref) ([]byte, error) {
	if !strings.HasPrefix(ref.Key, prefix(r.Tenant)) {
		return nil, llmq.Errorf(llmq.CodeInternal, "the stored result can't be read").Because(errors.New("its body lies outside the tenant's prefix"))
	}
	body, err := s.bodies.Get(ctx, ref)
	if err != nil && !errors.Is(err, llmq.CodeQueueUnavailable) {
		err = llmq.Errorf(llmq.CodeResultExpired, "the request has ended and its result is no longer stored").Because(err)
	}
	return body, err
}

// prefix is where a tenant's large replies lie.
func prefix(tenant string) string { return "res/" + llmq.TenantHash(tenant) + "/" }
