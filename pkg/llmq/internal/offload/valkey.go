package offload

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
)

const (
	// MaxValkeyBytes bounds a body in the state store: the memory is dear there, and a large value holds
	// everybody's commands up.
	MaxValkeyBytes = 4 << 20
	// keepFor outlives the message: four days in its queue, and up to fourteen, counted from the same start, once it is a dead
	// letter. A day more is for clocks.
	keepFor = 15 * 24 * time.Hour
)

// Valkey keeps the bodies of requests in the state store, for deployments without a bucket. It keeps nothing else: neither
// results, which lie there anyway, nor what producers put aside. A store that is full or wiped loses bodies, and
// what is lost is told as missing. It is safe for concurrent use.
type Valkey struct {
	client redis.UniversalClient
	space  keys.Space
}

// NewValkey is the store of one environment.
func NewValkey(client redis.UniversalClient, space keys.Space) *Valkey {
	return &Valkey{client, space}
}

// name is the store's own for a body's key; false where the key is of no request.
func (v *Valkey) name(key string) (string, bool) {
	tail, ours := strings.CutPrefix(key, "off/")
	tenant, rid, _ := strings.Cut(tail, "/")
	return v.space.Body(tenant, llmq.RID(rid)), ours && legal(key)
}

// Put stores a body. The same key is overwritten: keys are named by request. What is larger than [MaxValkeyBytes] is
// [llmq.CodeTooLarge].
func (v *Valkey) Put(ctx context.Context, key string, body []byte) (llmq.Ref, error) {
	name, ok := v.name(key)
	if !ok {
		return llmq.Ref{}, fmt.Errorf("offload: key %q is illegal without a bucket", llmq.Clip(key, 80))
	}
	if len(body) > MaxValkeyBytes {
		return llmq.Ref{}, llmq.Errorf(llmq.CodeTooLarge, "the body has %d bytes; without a bucket the largest has %d", len(body), MaxValkeyBytes)
	}
	if err := v.client.Set(ctx, name, body, keepFor).Err(); err != nil {
		return llmq.Ref{}, unreachable("put", key, err)
	}
	return refTo(key, body), nil
}

// Get fetches a body and checks its length and hash, with the errors of [Bucket.Get].
func (v *Valkey) Get(ctx context.Context, ref llmq.Ref) ([]byte, error) {
	if !formed(ref) {
		return nil, llmq.Errorf(llmq.CodeBadEnvelope, "ref is not of its form").At("ref")
	}
	name, ok := v.name(ref.Key)
	if !ok {
		return nil, llmq.Errorf(llmq.CodeBadEnvelope, "ref points into a bucket, and none is configured").At("ref")
	}
	body, err := v.client.GetRange(ctx, name, 0, ref.Bytes).Bytes() // a byte more than announced, where there is one
	switch {
	case err != nil:
		return nil, unreachable("get", ref.Key, err)
	case len(body) == 0:
		return nil, missing(fs.ErrNotExist)
	}
	return announced(ref, body)
}

// Delete removes what lies under a key; nothing there is no error.
func (v *Valkey) Delete(ctx context.Context, key string) error {
	name, ok := v.name(key)
	if !ok {
		return fmt.Errorf("offload: key %q is illegal without a bucket", llmq.Clip(key, 80))
	}
	if err := v.client.Del(ctx, name).Err(); err != nil {
		return unreachable("delete", key, err)
	}
	return nil
}
