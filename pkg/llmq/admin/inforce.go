package admin

import (
	"context"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// InForce is what holds now of limits and chains, which operators may change while processes run.
type InForce struct {
	Catalogue llmq.Catalogue
	Chains    map[string][]llmq.Target // by model: its targets and those that stand in for them, in the order in which they are tried
	CapFrom   map[string]config.Source // by target, as alias@target: the layer that its cap of calls is of
}

// InForce reads it. Where that can't be done, or what is stored is of no use, it is as configured: that is what a new process would run on.
func (s *Settings) InForce(ctx context.Context) InForce {
	over, merged := config.Overrides{}, s.deps.Config
	if st, err := s.deps.Store.Load(ctx); err == nil && st.Err == nil {
		known, _ := s.deps.Config.Known(st.Overrides)
		if c, err := s.deps.Config.Override(known); err == nil {
			over, merged = known, c
		}
	}
	f := InForce{Catalogue: merged.Catalogue(), CapFrom: map[string]config.Source{}}
	f.Chains = chains(merged, f.Catalogue)
	for _, m := range f.Catalogue.Models() {
		all, _ := s.deps.Config.ModelSettings(over, m.Alias) // the alias is known
		for _, t := range m.Targets {
			for _, of := range all {
				if of.Name == "max_concurrency" && (of.Target == "" || of.Target == t.Name) {
					f.CapFrom[t.String()] = of.Source
				}
			}
		}
	}
	return f
}

// chains lists, by model, the targets that its calls are tried at in turn: its own and those of the models that stand
// in for it.
func chains(cfg *config.Config, c llmq.Catalogue) map[string][]llmq.Target {
	targets := map[string][]llmq.Target{}
	for _, m := range c.Models() {
		targets[m.Alias] = m.Targets
	}
	out := map[string][]llmq.Target{}
	for _, m := range cfg.Models {
		stages := []string{m.Alias}
		for _, f := range m.Fallback {
			stages = append(stages, f.Model)
		}
		for _, alias := range stages {
			for _, t := range targets[alias] {
				if !slices.Contains(m.SkipTargets, t.Name) {
					out[m.Alias] = append(out[m.Alias], t)
				}
			}
		}
	}
	return out
}
