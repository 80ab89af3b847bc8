package admin

import (
	"context"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/live"
)

// InForce is what holds now of limits and chains, which operators may change while processes run.
type InForce struct {
	Catalogue llmq.Catalogue
	Chains    map[string][]llmq.Target // by model: its targets and those that stand in for them, in the order in which they are tried
	CapFrom   map[string]config.Source // by target, as alias@target: the layer that its cap of calls is of
}

// InForce reads it. Where that can't be done, or what is stored is of no use, it is as configured: that is what a new process would run on.
func (s *Settings) InForce(ctx context.Context) InForce {
	st, err := s.deps.Store.Load(ctx)
	if err != nil {
		st = live.State{}
	}
	merged, over, _ := s.merged(st)
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

// merged is what is stored laid over the configuration, and what of it is known here; with a fault, that says why, it is the configuration.
func (s *Settings) merged(st live.State) (merged *config.Config, known config.Overrides, fault string) {
	known, _ = s.deps.Config.Known(st.Overrides)
	merged, err := s.deps.Config.Override(known)
	if st.Err != nil {
		err = st.Err
	}
	if err != nil {
		return s.deps.Config, config.Overrides{}, err.Error()
	}
	return merged, known, ""
}

// chains lists, by model, the targets that its calls are tried at in turn: its own and those of the models that stand
// in for it.
func chains(cfg *config.Config, c llmq.Catalogue) map[string][]llmq.Target {
	targets := map[string][]llmq.Target{}
	for _, m := range c.Models() {
		targets[m.Alias] = m.Targets
	}
	out := map[string][]llmq.Target{}
	for _, j := range cfg.Jobs { // which nothing stands in for
		out[j.Name] = targets[j.Name]
	}
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
