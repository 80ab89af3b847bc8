// Package keyrate counts the calls of each key, over all doors: in any 60 s a key makes no more than its rate
// (FEATURES A15). Each call is remembered for a minute, so that the bound is exact and so is the wait that a
// refused caller is told.
package keyrate

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

//go:embed lua/take.lua
var takeText string

// window is the time in which a key's calls are counted.
const window = time.Minute

// takeWithin bounds the question: a store that is slow to answer costs each call no more.
const takeWithin = time.Second

// Meter counts. It is safe for concurrent use.
type Meter struct {
	valkey redis.UniversalClient
	space  keys.Space
	take   luascript.Script
	within time.Duration // [takeWithin]
}

// New counts in the state store.
func New(valkey redis.UniversalClient, space keys.Space) *Meter {
	return &Meter{valkey: valkey, space: space, take: luascript.New("take", takeText), within: takeWithin}
}

// Take counts a call of the key, which may make perMinute of them in any 60 s, at least 1. call is unique
// to the call; a repeat of it counts once. Where the store can't be asked the error is
// [llmq.CodeQueueUnavailable], and it is the caller's to decide.
func (m *Meter) Take(ctx context.Context, kid string, perMinute int, call string) (auth.Rate, error) {
	ctx, cancel := context.WithTimeout(ctx, m.within)
	defer cancel()
	var b luascript.Batch
	taken := b.Script(&m.take, []string{m.space.Rate(kid)}, "", perMinute, window.Milliseconds(), call)
	if err := b.Run(ctx, m.valkey); err != nil {
		return auth.Rate{}, fmt.Errorf("count a call of key %s: %w", kid, err)
	}
	v, err := taken.Ints(4)
	if err != nil {
		return auth.Rate{}, fmt.Errorf("count a call of key %s: %w", kid, err)
	}
	return auth.Rate{Limit: perMinute, Left: int(v[1]), RetryAfter: ms(v[2]), Reset: ms(v[3])}, nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
