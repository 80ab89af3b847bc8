package live

import (
	"context"
	"testing"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

var servers = luatest.NewServers(func(ctx context.Context, cluster bool) (luatest.Server, error) {
	s, err := valkey.Start(ctx, valkey.Options{Engine: valkey.Real, Standalone: !cluster})
	if err != nil {
		return luatest.Server{}, err
	}
	return luatest.Server{Addr: s.Addr(), Password: s.Password(), Stop: s.Close}, nil
}) //nolint:gochecknoglobals // TestMain and the tests share nothing else

func TestMain(m *testing.M) { servers.Main(m) }
