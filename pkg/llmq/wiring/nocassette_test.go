//go:build !llmq_cassette

package wiring

import (
	"errors"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// CS2, LM2: a program without cassettes does not call the provider instead.
func TestWorker_WithoutCassettesRefusesThem(t *testing.T) {
	t.Parallel()
	p := &Process{Config: &config.Config{Kind: config.KindLocal, Cassette: config.Cassette{Mode: "replay", Dir: "/c"}}}
	p.engine = p.makeEngine
	_, err := p.Worker()
	if !errors.Is(err, llmq.CodeConfiguration) || !strings.Contains(err.Error(), "llmq_cassette") {
		t.Errorf("error = %v", err)
	}
}
