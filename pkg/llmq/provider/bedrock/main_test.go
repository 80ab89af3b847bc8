package bedrock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func TestMain(m *testing.M) {
	llmqtest.OwnEnvironment()
	goleak.VerifyTestMain(m)
}
