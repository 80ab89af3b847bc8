package live

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

var servers luatest.Servers //nolint:gochecknoglobals // TestMain and the tests share nothing else

func TestMain(m *testing.M) { servers.Main(m) }
