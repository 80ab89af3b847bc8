package cloud

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// presetStore marks the state store as new, so that the first calls need not wait until
// those that a wiped store has forgotten have registered.
func (c *Cloud) presetStore(ctx context.Context) (err error) {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{c.Valkey.Addr()}, Password: c.Valkey.Password(), IsClusterMode: c.Valkey.Cluster(),
		DisableIdentity: true, ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := capacity.PresetStore(ctx, client, c.Config.Env); err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	return nil
}
