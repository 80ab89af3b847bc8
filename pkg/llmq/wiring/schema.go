package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
)

// schemaWait bounds the look at the store's schema: a function starts without a store too.
const schemaWait = time.Second

// checkSchema refuses a state store that a newer release has written to, whose state this one
// would misread (FEATURES B13); an older one it marks as its own. A store that can't be asked is
// no reason not to start, nor is one that this process may only read.
func checkSchema(ctx context.Context, store redis.UniversalClient, space keys.Space, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, schemaWait)
	defer cancel()
	text, err := store.Get(ctx, space.Schema()).Result()
	switch found, broken := strconv.Atoi(text); {
	case errors.Is(err, redis.Nil):
	case err != nil:
		log.Warn("schema of the state store not looked at", "error", err)
		return nil
	case broken != nil || found > keys.Schema:
		return llmq.Errorf(llmq.CodeConfiguration, "the state store was written to by a newer release: its schema is %q and this release knows %d; deploy the newer release, or another env",
			llmq.Clip(text, 20), keys.Schema)
	case found == keys.Schema:
		return nil
	}
	if err := store.Set(ctx, space.Schema(), keys.Schema, 0).Err(); err != nil {
		log.Debug("schema of the state store not marked", "error", fmt.Errorf("set %s: %w", space.Schema(), err))
	}
	return nil
}
