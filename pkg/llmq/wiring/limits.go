package wiring

import (
	"log/slog"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
)

// newGate is the gate with the law as it is configured. A start above a target's cap is said
// once, where somebody set it (FEATURES C1).
func newGate(space keys.Space, cfg *config.Config, catalogue llmq.Catalogue, log *slog.Logger) *capacity.Gate {
	for _, m := range catalogue.Models() {
		for _, t := range m.Targets {
			if most := t.MaxConcurrency; most > 0 && t.Limits.Initial > most {
				log.Warn("limiter_initial_clamped", "target", t.String(), "limiter_initial", t.Limits.Initial, "max_concurrency", most)
			}
		}
	}
	l, law := cfg.Limiter, capacity.DefaultLaw()
	law.MaxSlots, law.BackgroundShare, law.RTRateShare = l.Max, l.BackgroundShare.Of, l.RTRateShare.Of
	law.Window, law.MinThrottles, law.LossTolerance = l.Window, l.MinThrottles, l.LossTolerance.Of
	law.PauseRatio, law.Pause = l.PauseRatio.Of, l.Pause
	return capacity.New(space).Tuned(law, l.Lease)
}
